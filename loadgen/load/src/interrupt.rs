//! Handling of Ctrl-C and SIGTERM. In: the signal. Out: a flag that every step watches. The first signal requests an
//! orderly end, the second ends the process at once.
//!
//! Installed before goose, so that goose cannot install its own handler.

use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Exit code of an interrupted run: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;
/// Time in which further signals belong to the first: `timeout` signals the process, and then its group.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Signal that ends a run.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Handles the process's SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// A handler is in place already.
    pub fn install() -> Result<Self, ctrlc::Error> {
        let (sender, receiver) = watch::channel(false);
        let first = OnceLock::new();
        ctrlc::set_handler(move || {
            if first.get_or_init(Instant::now).elapsed() > SAME_SIGNAL {
                eprintln!("interrupted again: ending at once");
                std::process::exit(i32::from(EXIT_CODE));
            }
            if !sender.send_replace(true) {
                eprintln!("interrupted: dropping the step, writing finished ones; interrupt again to end at once");
            }
        })?;
        Ok(Self(receiver))
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
