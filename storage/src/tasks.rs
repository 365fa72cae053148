//! Work on other threads and tasks: blocking calls, and concurrent pieces of work.

use crate::{ErrorKind, StorageError};
use futures::future::try_join_all;
use tokio::task::JoinSet;

/// Runs `work` on a thread that may block. Dropping the future does not undo it.
pub(crate) async fn blocking<T: Send + 'static>(
    object: &str,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(ErrorKind::Unavailable.error(object, format!("a blocking call failed: {e}"))),
    }
}

/// Runs pieces of work about an object on separate tasks to use several cores; a single piece runs on the caller's
/// task. Returns results in order, and passes each to `on_done` as it ends. Dropping the future cancels all.
pub(crate) async fn concurrently<T: Send + 'static>(
    object: &str,
    work: Vec<impl Future<Output = Result<T, StorageError>> + Send + 'static>,
    mut on_done: impl FnMut(&T),
) -> Result<Vec<T>, StorageError> {
    if work.len() <= 1 {
        let results = try_join_all(work).await?;
        results.iter().for_each(on_done);
        return Ok(results);
    }
    let mut results = Vec::with_capacity(work.len());
    let mut tasks = JoinSet::new();
    for (number, future) in work.into_iter().enumerate() {
        tasks.spawn(async move { future.await.map(|done| (number, done)) });
    }
    while let Some(ended) = tasks.join_next().await {
        let broken = |e: tokio::task::JoinError| ErrorKind::Unavailable.error(object, e.to_string());
        let (number, done) = ended.map_err(broken)??;
        on_done(&done);
        results.push((number, done));
    }
    results.sort_unstable_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, done)| done).collect())
}
