//! Moves work that would delay other requests off the async threads.
//!
//! In: work, and its size. Out: its result. Small work is done at once, without overhead; for large work the runtime
//! first moves its thread's other tasks to another thread.

/// Size whose copy takes about a tenth of a millisecond, longer than moving the tasks.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// Does work that costs as much as copying `bytes` bytes.
pub(crate) fn offload_large<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    offload_if(bytes >= LARGE_BYTES, work)
}

/// Does work that is known to be large or small.
pub(crate) fn offload_if<R>(large: bool, work: impl FnOnce() -> R) -> R {
    if large {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Far more than it takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn others_are_served_while_heavy_work_is_done_on_the_only_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (ready, is_ready) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        // The work ends only when the other task has run, which has no thread of its own.
        let heavy = runtime.spawn(async move {
            offload_large(LARGE_BYTES, || {
                ready.send(()).unwrap();
                answered.recv_timeout(PATIENCE)
            })
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move { answer.send("served").unwrap() });
        assert_eq!(runtime.block_on(heavy).unwrap(), Ok("served"));
    }
}
