//! Work on other threads and tasks: blocking calls, and concurrent pieces of work.

use crate::{ErrorKind, StorageError};
use futures::future::try_join_all;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Number of tasks that remove what unfinished calls have left on their tiers.
static CLEANUPS: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Removes what an unfinished call has left on its tier, on a task of its own. Does nothing outside of a runtime.
pub(crate) fn clean_up(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        CLEANUPS.send_modify(|running| *running += 1);
        runtime.spawn(async move {
            work.await;
            CLEANUPS.send_modify(|running| *running -= 1);
        });
    }
}

/// Waits until what unfinished calls have left on their tiers is removed, at most 5 seconds. For programs that end after
/// a failed or cancelled call.
pub async fn cleaned_up() {
    let mut running = CLEANUPS.subscribe();
    // Fails only at the limit, because the sender is never dropped.
    let _ = tokio::time::timeout(Duration::from_secs(5), running.wait_for(|running| *running == 0)).await;
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn a_program_waits_for_what_is_being_removed() {
        let is_removed = Arc::new(AtomicBool::new(false));
        let removed = Arc::clone(&is_removed);
        clean_up(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            removed.store(true, Ordering::Relaxed);
        });
        cleaned_up().await;
        assert!(is_removed.load(Ordering::Relaxed));
    }
}
