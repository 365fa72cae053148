//! Request to stop, checked between steps of work and awaited beside I/O.

use crate::error::ModelsError;
use tokio_util::sync::CancellationToken;

/// A stop request, shared by all clones. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Stop(CancellationToken);

impl Stop {
    /// Returns a stop that is never requested.
    pub fn never() -> Self {
        Self::default()
    }

    /// Requests a stop.
    pub fn stop(&self) {
        self.0.cancel();
    }

    /// Fails after a stop was requested.
    ///
    /// # Errors
    /// [`ModelsError::Interrupted`].
    pub fn check(&self) -> Result<(), ModelsError> {
        match self.0.is_cancelled() {
            true => Err(ModelsError::Interrupted),
            false => Ok(()),
        }
    }

    /// Runs a future until it ends or a stop is requested, whichever comes first.
    ///
    /// # Errors
    /// [`ModelsError::Interrupted`], or the future's error.
    pub async fn race<T>(&self, work: impl Future<Output = Result<T, ModelsError>>) -> Result<T, ModelsError> {
        let done = self.0.run_until_cancelled(work).await;
        done.unwrap_or(Err(ModelsError::Interrupted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_ends_both_kinds_of_work() {
        let stop = Stop::default();
        assert!(stop.check().is_ok());
        assert_eq!(stop.race(async { Ok(3) }).await.unwrap(), 3);
        stop.stop();
        assert!(stop.check().is_err());
        assert!(
            stop.race(std::future::pending::<Result<(), ModelsError>>())
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn without_anybody_to_ask_the_work_runs_on() {
        assert_eq!(
            Stop::never()
                .race(async {
                    tokio::task::yield_now().await;
                    Ok(5)
                })
                .await
                .unwrap(),
            5
        );
    }
}
