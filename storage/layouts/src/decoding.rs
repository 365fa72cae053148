//! Decoding by readers that may never finish, on threads that can be abandoned.
//!
//! In: a piece of work on bytes of a shard. Out: its result, or an error after a time limit. A thread cannot be ended.
//! Abandoned work is counted in [`stuck_decodes`], keeps its permit in the pool, and stops further decoding of its
//! shard. A reader that spins costs a few threads of the pool, never the caller's.

use parking_lot::Mutex;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use tierlab_storage::{ErrorKind, ObjectPath, StorageError};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Time limit of a decode. Pages of the largest rows take some tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
/// Age at which a decode without a caller counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Number of stuck decodes at which a shard is not decoded any more.
const MAX_STUCK_PER_SHARD: usize = 2;
/// Minimum number of threads; else there are two for each core.
const MIN_THREADS: usize = 8;

type Job = Box<dyn FnOnce() + Send>;

/// Dedicated threads: a runtime waits at its end for the threads that it lends.
struct Pool {
    jobs: Mutex<Sender<Job>>,
    threads: usize,
    /// One permit per thread.
    permits: Arc<Semaphore>,
}

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let wanted = thread::available_parallelism().map_or(1, usize::from) * 2;
    let (jobs, queue) = channel::<Job>();
    let queue = Arc::new(Mutex::new(queue));
    let start = |number: usize| {
        let queue = Arc::clone(&queue);
        let thread = thread::Builder::new().name(format!("decode-{number}"));
        thread.spawn(move || run_jobs(&queue)).is_ok()
    };
    let threads = (0..wanted.max(MIN_THREADS)).filter(|&number| start(number)).count();
    Pool {
        jobs: Mutex::new(jobs),
        threads,
        permits: Arc::new(Semaphore::new(threads)),
    }
});

fn run_jobs(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().recv();
        let Ok(job) = job else { return };
        // The caller detects a panic by its closed channel.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

static STUCK: AtomicUsize = AtomicUsize::new(0);

/// Number of abandoned decodes in this process that still run.
pub fn stuck_decodes() -> usize {
    STUCK.load(Relaxed)
}

/// Decodes of a shard.
#[derive(Debug, Clone, Default)]
pub(crate) struct Decodes {
    stuck: Arc<AtomicUsize>,
}

impl Decodes {
    /// Runs a piece of work on a thread of the pool.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`]: the work does not end, too much earlier work of the shard did not end, or the pool is
    /// full.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        object: &ObjectPath,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, StorageError> {
        let refuse = |detail: String| ErrorKind::Timeout.error(object, detail);
        let stuck = self.stuck.load(Relaxed);
        if stuck >= MAX_STUCK_PER_SHARD {
            let detail = format!("{stuck} threads are stuck decoding it: it is damaged; lay the table out again");
            return Err(refuse(detail));
        }
        let Pool { threads, permits, .. } = &*POOL;
        let no_permit = || refuse(no_thread(stuck_decodes(), *threads));
        if stuck_decodes() >= *threads {
            return Err(no_permit());
        }
        let permit = timeout(LIMIT, Arc::clone(permits).acquire_owned()).await;
        // The semaphore is never closed.
        let permit = permit.map_err(|_| no_permit())?.map_err(|_| no_permit())?;
        let (running, ended) = oneshot::channel();
        let (sender, result) = oneshot::channel();
        let job = move || {
            let _running: (oneshot::Sender<()>, _) = (running, permit);
            // Sending fails only if the caller went away.
            let _ = sender.send(work());
        };
        let mut watch = Watch {
            ended: Some(ended),
            shard: Arc::clone(&self.stuck),
            object: object.clone(),
        };
        // The threads, which hold the receiver, never leave their loop.
        let _ = POOL.jobs.lock().send(Box::new(job));
        let done = timeout(LIMIT, result).await.map_err(|_| {
            let ms = LIMIT.as_millis();
            let detail = format!(
                "not decoded within {ms} ms: without a shortage of CPU, it is damaged; lay the table out again"
            );
            refuse(detail)
        })?;
        watch.ended = None;
        let panicked = |_| ErrorKind::Corrupt.error(object, "the reader panicked: it is damaged");
        done.map_err(panicked)
    }
}

/// Describes that no thread is free: large decodes and slow processors occupy them too.
fn no_thread(stuck: usize, threads: usize) -> String {
    format!("no decoding thread is free ({stuck} of {threads} stuck in damaged files): lower the load or restart")
}

/// Counts a decode abandoned by its caller, for as long as it runs.
struct Watch {
    ended: Option<oneshot::Receiver<()>>,
    shard: Arc<AtomicUsize>,
    object: ObjectPath,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (Some(mut ended), Ok(runtime)) = (self.ended.take(), Handle::try_current()) else {
            return;
        };
        let (shard, object) = (Arc::clone(&self.shard), self.object.clone());
        runtime.spawn(async move {
            if timeout(STUCK_AFTER, &mut ended).await.is_ok() {
                return;
            }
            for count in [&STUCK, &*shard] {
                count.fetch_add(1, Relaxed);
            }
            tracing::error!(%object, "a thread is stuck decoding a damaged object");
            let _ = ended.await;
            for count in [&STUCK, &*shard] {
                count.fetch_sub(1, Relaxed);
            }
        });
    }
}

/// Decoding this many bytes takes about a tenth of a millisecond: longer than it takes to hand the tasks over.
const LARGE_BYTES: usize = 64 << 10;

thread_local! {
    static IN_PLACE: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread keep its other tasks while it decodes: for runtimes that only load tables, on as many threads as they have.
pub fn decode_in_place() {
    IN_PLACE.set(true);
}

/// Runs a decode of `bytes` bytes, after moving the thread's other tasks away if it is large.
pub(crate) fn decode<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    // A single-threaded runtime has no other thread for its tasks.
    let is_multi = || Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    let can_move = || !IN_PLACE.get() && is_multi();
    if bytes >= LARGE_BYTES && can_move() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn busy_threads_are_not_called_damaged_files_alone() {
        let text = no_thread(0, 8);
        assert!(text.contains("lower the load"), "{text}");
    }

    /// Work that does not end blocks neither its callers nor the runtime, and other shards are decoded beside it.
    #[tokio::test]
    async fn work_that_does_not_end_is_given_up_counted_and_stops_its_shard_alone() {
        let object = ObjectPath::new("a/000000.parquet").unwrap();
        let (spinning, healthy) = (Decodes::default(), Decodes::default());
        let mut releases = Vec::new();
        for _ in 0..MAX_STUCK_PER_SHARD {
            let (release, wait) = mpsc::channel::<()>();
            releases.push(release);
            let decode = spinning.run(&object, move || wait.recv().is_err());
            assert!(timeout(Duration::from_millis(20), decode).await.is_err());
        }
        while stuck_decodes() < MAX_STUCK_PER_SHARD {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let refused = spinning.run(&object, || ()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Timeout, "{refused}");
        assert_eq!(healthy.run(&object, || 7).await.unwrap(), 7);
        drop(releases);
        while stuck_decodes() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        spinning.run(&object, || ()).await.unwrap();
    }
}

#[cfg(test)]
mod offload_tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Far more than it takes on a busy machine.
    const WAIT_LIMIT: Duration = Duration::from_secs(60);

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
                answered.recv_timeout(WAIT_LIMIT)
            })
        });
        is_ready.recv_timeout(WAIT_LIMIT).unwrap();
        runtime.spawn(async move { answer.send("served").unwrap() });
        assert_eq!(runtime.block_on(decoding).unwrap(), Ok("served"));
    }

    #[test]
    fn a_thread_that_decodes_in_place_hands_nothing_over() {
        let threads = Arc::new(AtomicUsize::new(0));
        let started = Arc::clone(&threads);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .on_thread_start(move || {
                decode_in_place();
                started.fetch_add(1, Relaxed);
            })
            .build()
            .unwrap();
        let decoding = runtime.spawn(async { [7, 8].map(|number| decode(LARGE_BYTES, || number)) });
        assert_eq!(runtime.block_on(decoding).unwrap(), [7, 8]);
        assert_eq!(threads.load(Relaxed), 1);
    }

    #[test]
    fn a_runtime_of_one_thread_decodes_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { decode(LARGE_BYTES, || 7) }), 7);
        assert_eq!(decode(LARGE_BYTES, || 7), 7);
    }
}
