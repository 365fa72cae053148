//! A request to end a run. In: the program's handler of signals raises it. Out: a flag that every step watches.

use tokio::sync::watch;

/// Exit code of an interrupted run: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Request to end a run.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Creates an interrupt, and the function that raises it.
    pub fn new() -> (impl Fn() + Send + 'static, Self) {
        let (sender, receiver) = watch::channel(false);
        let raise = move || {
            sender.send_replace(true);
        };
        (raise, Self(receiver))
    }

    /// Creates an interrupt that is never raised.
    pub fn never() -> Self {
        Self(watch::channel(false).1)
    }

    /// True if it was raised.
    pub fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns once it is raised.
    pub async fn raised(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|raised| *raised).await.is_err() {
            // The handler has ended: it is never raised.
            std::future::pending::<()>().await;
        }
    }
}
