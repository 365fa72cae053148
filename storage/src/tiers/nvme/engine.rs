//! Reading engine around one io_uring, driven by a named thread or by its callers ([`Driver`]). In: jobs, each with the
//! reads of a call. Out: filled buffers and their cost. Knows nothing of tiers; asks the root if a path still names the
//! file that was read.
//!
//! - A job owns its buffers from submission to the last completion; the caller's future only waits. So a future may be
//!   dropped at any moment: its reads in flight finish into memory that the job still owns, and no further reads start.
//! - All reads of a call are queued before the ring is entered once. At most `depth` reads are in flight. Jobs are
//!   served round-robin, read by read, so that a small job does not wait for a large job.
//! - Jobs that finish together share the check of their paths, which follows the last byte of each job.
//! - With nothing to do, the thread sleeps in the kernel until a completion or the wake-up event arrives; without a
//!   thread nothing runs.
//! - Without a thread the caller submits its reads itself. A task of the runtime waits for the ring, which can be polled
//!   like a socket, and takes the completions. So a read needs no thread switch and back, which on a busy machine costs
//!   most of its time beyond the device's.

use super::buffer::{Arena, Buffer};
use super::files::OpenFile;
use super::plan::Segment;
use super::root::Root;
use super::signals::Signals;
use super::worker::{Done, Job, Worker};
use super::{Driver, LocalOptions};
use crate::{ErrorKind, StorageError};
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;

/// Maximum jobs accepted and not yet answered; further callers wait without holding memory.
const BACKLOG: usize = 4096;
/// Largest accepted `depth`: the largest ring that every kernel grants.
pub(super) const LARGEST_DEPTH: u32 = 4096;

/// The callers' handle. Dropping it ends the engine after its reads in flight.
#[derive(Debug)]
pub(super) struct Engine {
    /// Slots of jobs accepted and not yet answered.
    backlog: Arc<Semaphore>,
    signals: Arc<Signals>,
    driver: EngineDriver,
}

#[derive(Debug)]
enum EngineDriver {
    /// A thread of the engine's own.
    Thread {
        jobs: mpsc::Sender<Job>,
        thread: Option<JoinHandle<()>>,
    },
    /// Any caller that has work, and a task that takes completions.
    Runtime { core: Arc<Core>, task: AbortHandle },
}

impl Engine {
    /// Starts the engine; the driver `runtime` needs a current runtime. The second value is true if the arena was
    /// registered.
    pub(super) fn start(
        root: Arc<Root>,
        options: &LocalOptions,
        arena: Option<Arc<Arena>>,
    ) -> Result<(Self, bool), StorageError> {
        let depth = options.queue_depth;
        if depth == 0 || depth > LARGEST_DEPTH {
            return Err(ErrorKind::Invalid.error("queue_depth", format!("must be from 1 to {LARGEST_DEPTH}: {depth}")));
        }
        let start = || -> io::Result<(Self, bool)> {
            let signals = Arc::new(Signals::new()?);
            let (driver, has_arena) = match options.driver {
                Driver::Thread => start_thread(root, signals.clone(), options, arena)?,
                Driver::Runtime => {
                    let worker = Worker::new(root, signals.clone(), options, arena.as_deref())?;
                    start_on_runtime(worker, signals.clone())?
                }
            };
            let backlog = Arc::new(Semaphore::new(BACKLOG));
            let engine = Self {
                backlog,
                signals,
                driver,
            };
            Ok((engine, has_arena))
        };
        start().map_err(|e| unusable(&e))
    }

    /// Waits for a slot in the backlog.
    pub(super) async fn slot(&self, file: &OpenFile) -> Result<OwnedSemaphorePermit, StorageError> {
        self.backlog.clone().acquire_owned().await.map_err(|_| stopped(file))
    }

    /// Reads `segments` of a file. The future may be dropped at any moment.
    pub(super) async fn read(
        &self,
        file: &Arc<OpenFile>,
        segments: Vec<(Segment, Buffer)>,
        slot: OwnedSemaphorePermit,
        started: Instant,
    ) -> Result<Done, StorageError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            file: file.clone(),
            segments,
            started,
            reply,
            _slot: slot,
        };
        let is_taken = match &self.driver {
            EngineDriver::Thread { jobs, .. } => {
                let is_sent = jobs.send(job).is_ok();
                self.signals.notify();
                is_sent
            }
            EngineDriver::Runtime { core, .. } => core.drive(Some(job)),
        };
        if !is_taken {
            return Err(stopped(file));
        }
        answer.await.unwrap_or_else(|_| Err(stopped(file)))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        match &mut self.driver {
            EngineDriver::Thread { thread, .. } => {
                self.signals.stop();
                self.signals.wake();
                if let Some(thread) = thread.take()
                    && thread.join().is_err()
                {
                    tracing::error!("the reading thread of a tier panicked");
                }
            }
            EngineDriver::Runtime { core, task } => {
                task.abort();
                core.close();
            }
        }
    }
}

/// Starts a worker on a thread of its own. The second value is true if the arena was registered.
fn start_thread(
    root: Arc<Root>,
    signals: Arc<Signals>,
    options: &LocalOptions,
    arena: Option<Arc<Arena>>,
) -> io::Result<(EngineDriver, bool)> {
    let (jobs, queue) = mpsc::channel();
    let (ready, is_ready) = mpsc::sync_channel(1);
    let name = format!("tierlab-{}", options.kind);
    let options = options.clone();
    let body = move || match Worker::new(root, signals, &options, arena.as_deref()) {
        Ok(worker) => {
            let _ = ready.send(Ok(worker.ring.has_arena));
            worker.run(&queue);
        }
        Err(e) => {
            let _ = ready.send(Err(e));
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(body)?;
    let has_arena = is_ready.recv().map_err(|_| io::Error::other("its thread ended"))??;
    let thread = Some(thread);
    Ok((EngineDriver::Thread { jobs, thread }, has_arena))
}

fn stopped(file: &OpenFile) -> StorageError {
    let what = "reading engine has stopped: its runtime ended or io_uring failed; open the tier again";
    ErrorKind::Unavailable.error(&file.path, what)
}

fn unusable(error: &io::Error) -> StorageError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ": allow it with `sysctl kernel.io_uring_disabled=0`, and in a container with a seccomp profile that permits \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::ENOSYS) => ": use Linux 5.6 or later, built with io_uring",
        Some(libc::ENOMEM) => ": raise the limit of locked memory (`ulimit -l`), or lower `queue_depth`",
        _ => "",
    };
    ErrorKind::Unsupported.error("io_uring", format!("cannot be used: {error}{advice}"))
}

/// State of an engine without a thread, advanced by any caller that has work.
#[derive(Debug)]
struct Core {
    /// `None` after closing or after a failure of the ring.
    worker: Mutex<Option<Worker>>,
    signals: Arc<Signals>,
}

/// Starts the task that takes completions on the current runtime, which needs its I/O driver. The second value is true if
/// the arena was registered.
fn start_on_runtime(worker: Worker, signals: Arc<Signals>) -> io::Result<(EngineDriver, bool)> {
    let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
    let has_arena = worker.ring.has_arena;
    // A separate descriptor stays valid as long as the task polls it.
    let ring = worker.ring.fd()?;
    let core = Arc::new(Core {
        worker: Mutex::new(Some(worker)),
        signals,
    });
    // SAFETY: an `OwnedFd` stays open and unchanged until it is dropped; `AsyncFd` drops it after its registration.
    let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
    core.drive(None);
    let task = runtime.spawn(take_completions(core.clone(), ring)).abort_handle();
    Ok((EngineDriver::Runtime { core, task }, has_arena))
}

impl Core {
    /// Does all possible work without waiting.
    fn drive(&self, job: Option<Job>) -> bool {
        let mut held = self.worker.lock();
        let Some(worker) = held.as_mut() else { return false };
        if let Some(job) = job {
            worker.accept(job);
        }
        match worker.advance() {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "io_uring failed; the tier cannot serve further reads");
                *held = None;
                false
            }
        }
    }

    /// Waits for reads in flight and starts no further reads.
    fn close(&self) {
        self.signals.stop();
        if let Some(worker) = self.worker.lock().take() {
            worker.wind_down();
        }
    }
}

/// Closes the engine when the task ends with its runtime, so that readers get an error instead of waiting for ever.
struct CloseOnDrop(Arc<Core>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn take_completions(core: Arc<Core>, ring: AsyncFd<OwnedFd>) {
    let closing = CloseOnDrop(core);
    loop {
        match ring.readable().await {
            // Cleared before the check: a completion during the check makes the ring ready again.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::error!(%error, "io_uring cannot be polled; the tier cannot serve further reads");
                return;
            }
        }
        if !closing.0.drive(None) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Engine {
        /// Substitutes `results` for those of the next completions, taken from the end.
        pub(in super::super) fn inject(&self, results: Vec<i32>) {
            *self.signals.injected.lock() = results;
        }
    }
}
