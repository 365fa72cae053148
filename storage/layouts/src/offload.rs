//! Decoding that occupies a thread of the runtime for long. In: a piece of work, and its size in bytes. Out: its
//! result. During large work the thread's other tasks move to other threads.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Decoding this many bytes takes about a tenth of a millisecond: longer than it takes to hand the tasks over.
const LARGE_BYTES: usize = 64 << 10;

/// Decodes so many bytes.
pub(crate) fn decode<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    // A runtime of one thread has no other thread for its tasks.
    let has_others = || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if bytes >= LARGE_BYTES && has_others() {
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
    fn others_are_served_while_a_page_is_decoded_on_the_only_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (ready, is_ready) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let decoding = runtime.spawn(async move {
            decode(LARGE_BYTES, || {
                ready.send(()).unwrap();
                answered.recv_timeout(PATIENCE)
            })
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move { answer.send("served").unwrap() });
        assert_eq!(runtime.block_on(decoding).unwrap(), Ok("served"));
    }

    #[test]
    fn a_runtime_of_one_thread_decodes_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { decode(LARGE_BYTES, || 7) }), 7);
        assert_eq!(decode(LARGE_BYTES, || 7), 7);
    }
}
