//! Calls that block, made off the runtime's threads.

use crate::error::{ErrorKind, StorageError};

/// Runs `work` on a thread that may block. Dropping the future does not undo it.
pub(crate) async fn blocking<T: Send + 'static>(
    object: &str,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(StorageError::new(
            ErrorKind::Unavailable,
            object,
            format!("a blocking call failed: {e}"),
        )),
    }
}
