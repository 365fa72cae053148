//! Request to stop, checked between steps of work and awaited beside I/O.

use crate::error::ModelsError;
use tokio::sync::watch;

/// Sender of a stop request. Dropping it requests nothing.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Receiver of a stop request. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// Creates a connected pair.
#[must_use]
pub fn pair() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Requests a stop.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Creates a receiver without a sender.
    #[must_use]
    pub fn never() -> Self {
        pair().1
    }

    /// Fails after a stop was requested.
    ///
    /// # Errors
    /// [`ModelsError::Interrupted`].
    pub fn check(&self) -> Result<(), ModelsError> {
        if *self.0.borrow() {
            Err(ModelsError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Runs a future until it ends or a stop is requested, whichever comes first.
    ///
    /// # Errors
    /// [`ModelsError::Interrupted`], or the future's error.
    pub async fn or<T>(&self, work: impl Future<Output = Result<T, ModelsError>>) -> Result<T, ModelsError> {
        let mut asked = self.0.clone();
        tokio::select! {
            done = work => done,
            Ok(_) = asked.wait_for(|stop| *stop) => Err(ModelsError::Interrupted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_ends_both_kinds_of_work() {
        let (stopper, stop) = pair();
        assert!(stop.check().is_ok());
        assert_eq!(stop.or(async { Ok(3) }).await.unwrap(), 3);
        stopper.stop();
        assert!(stop.check().is_err());
        assert!(
            stop.or(std::future::pending::<Result<(), ModelsError>>())
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn without_anybody_to_ask_the_work_runs_on() {
        assert_eq!(
            Stop::never()
                .or(async {
                    tokio::task::yield_now().await;
                    Ok(5)
                })
                .await
                .unwrap(),
            5
        );
    }
}
