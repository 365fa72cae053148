//! The reading engine around one io_uring, driven by a named thread or by its callers ([`Driver`]). In: jobs, each the reads of one call. Out: filled
//! buffers and what they cost. Knows nothing of tiers; asks the root whether a path still names the file it read.
//!
//! - A job owns its buffers from submission to the last completion; the caller's future only waits. So a future may be
//!   dropped at any moment: its job's reads under way finish into memory that is still theirs, the rest is not started.
//! - All reads of a call are queued before the ring is entered once. At most `depth` reads are in flight; jobs take
//!   turns, read by read, so that a small job does not wait for a large one.
//! - Jobs that finish together share the look at what their path names now, which is taken after the last byte of
//!   each.
//! - With nothing to do, the thread sleeps in the kernel until a completion or the wake-up event arrives; without a
//!   thread there is nothing that could run.

use super::buffer::{Arena, Buffer};
use super::files::OpenFile;
use super::plan::Segment;
use super::root::Root;
use super::runtime::RuntimeDriver;
use super::worker::Worker;
use crate::error::{ErrorKind, StorageError};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs accepted and not yet answered; further callers wait, without holding memory.
const BACKLOG: usize = 4096;
/// Reads in flight at most, whatever the configuration says: the largest ring that every kernel gives.
pub(super) const LARGEST_DEPTH: u32 = 4096;

/// The reads of one call.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<OpenFile>,
    /// What to read, and the buffer that takes it: one to one, each buffer as long as its segment.
    pub(super) segments: Vec<(Segment, Buffer)>,
    pub(super) started: Instant,
    pub(super) reply: oneshot::Sender<Result<Done, StorageError>>,
    /// The place in the backlog, free again when the job is gone.
    pub(super) _place: OwnedSemaphorePermit,
}

/// A finished job.
#[derive(Debug)]
pub(super) struct Done {
    /// The segments and their filled buffers.
    pub(super) segments: Vec<(Segment, Buffer)>,
    /// From the call to its first read's submission.
    pub(super) queue: Duration,
    /// From there to the last completion and the check of the version.
    pub(super) device: Duration,
    pub(super) wire_bytes: u64,
    pub(super) requests: u32,
    pub(super) retries: u32,
}

/// What the thread and its callers share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Set while the thread sleeps or is about to.
    parked: AtomicBool,
    stopping: AtomicBool,
    wake: File,
    /// Places in the table of registered files whose files are closed.
    closed: Mutex<Vec<u32>>,
    has_closed: AtomicBool,
    /// Results that a test puts in the place of the next completions'.
    #[cfg(test)]
    pub(super) injected: Mutex<Vec<i32>>,
}

impl Shared {
    fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        let wake = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            wake: wake.into(),
            closed: Mutex::default(),
            has_closed: AtomicBool::new(false),
            #[cfg(test)]
            injected: Mutex::default(),
        })
    }

    /// Called after a job was sent: wakes the thread if it sleeps.
    fn notify(&self) {
        // Pairs with the fence in `park`: either the thread sees the job, or this sees that it is parked.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            // A full counter refuses the write, and then the thread is being woken anyway.
            let _ = (&self.wake).write(&1u64.to_ne_bytes());
        }
    }

    /// Called before the thread looks for jobs a last time and sleeps.
    pub(super) fn park(&self) {
        self.parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(super) fn unpark(&self) {
        self.parked.store(false, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Called when a registered file was closed: the thread takes it out of the kernel's table, so that what was removed
    /// from the folder gives its disk space back.
    pub(super) fn file_closed(&self, place: u32) {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        self.has_closed.store(true, Ordering::SeqCst);
        self.notify();
    }

    pub(super) fn has_closed(&self) -> bool {
        self.has_closed.load(Ordering::SeqCst)
    }

    /// The places since the last call.
    pub(super) fn take_closed(&self) -> Vec<u32> {
        if !self.has_closed() {
            return Vec::new();
        }
        self.has_closed.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.closed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) const fn wake_event(&self) -> &File {
        &self.wake
    }

    /// Resets the wake-up event.
    pub(super) fn drain_wake_event(&self) {
        // Empty is fine: it was drained before.
        let _ = (&self.wake).read(&mut [0; 8]);
    }
}

/// Who does the engine's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// The tasks that read, and one task of the runtime that opened the tier: the least delay. Readers on another runtime
    /// get their bytes as long as the one that opened the tier is running.
    Runtime,
    /// A thread of its own: independent of runtimes, two switches between threads for each read.
    Thread,
}

/// How to run an engine.
#[derive(Debug)]
pub(super) struct EngineOptions {
    /// Ends the thread's name.
    pub(super) name: &'static str,
    /// Reads in flight at most.
    pub(super) depth: u32,
    /// Bytes of one read at most: longer segments are read in this many bytes at a time, several at once.
    pub(super) chunk_bytes: usize,
    /// Memory to register.
    pub(super) arena: Option<Arc<Arena>>,
    /// Who does its work.
    pub(super) driver: Driver,
}

/// The callers' side. Dropping it ends the engine: reads in flight finish first.
#[derive(Debug)]
pub(super) struct Engine {
    places: Arc<Semaphore>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Thread(ThreadDriver),
    Runtime(RuntimeDriver),
}

/// An engine on a thread of its own.
#[derive(Debug)]
struct ThreadDriver {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts it; on the runtime that this is called from, if a runtime is to drive it. The second value tells whether the arena was registered.
    pub(super) fn start(root: Arc<Root>, options: EngineOptions) -> Result<(Self, bool), StorageError> {
        let EngineOptions { depth, driver, .. } = options;
        if depth == 0 || depth > LARGEST_DEPTH {
            let detail = format!("must be 1 to {LARGEST_DEPTH}, is {depth}");
            return Err(StorageError::new(ErrorKind::Invalid, "queue_depth", detail));
        }
        let shared = Arc::new(Shared::new().map_err(|e| unusable(&e))?);
        let (way, has_arena) = match driver {
            Driver::Thread => {
                let (thread, has_arena) = ThreadDriver::start(root, shared, options)?;
                (Way::Thread(thread), has_arena)
            }
            Driver::Runtime => {
                let worker = Worker::new(root, shared.clone(), options).map_err(|e| unusable(&e))?;
                let has_arena = worker.has_arena();
                let runtime = RuntimeDriver::start(worker, shared).map_err(|e| unusable(&e))?;
                (Way::Runtime(runtime), has_arena)
            }
        };
        let places = Arc::new(Semaphore::new(BACKLOG));
        Ok((Self { places, way }, has_arena))
    }

    /// Waits for a place in the backlog.
    pub(super) async fn place(&self, file: &OpenFile) -> Result<OwnedSemaphorePermit, StorageError> {
        self.places.clone().acquire_owned().await.map_err(|_| stopped(file))
    }

    /// Reads `segments` of a file. May be dropped at any moment.
    pub(super) async fn read(
        &self,
        file: &Arc<OpenFile>,
        segments: Vec<(Segment, Buffer)>,
        place: OwnedSemaphorePermit,
        started: Instant,
    ) -> Result<Done, StorageError> {
        let (reply, answer) = oneshot::channel();
        let job = Job {
            file: file.clone(),
            segments,
            started,
            reply,
            _place: place,
        };
        let taken = match &self.way {
            Way::Thread(thread) => thread.submit(job),
            Way::Runtime(runtime) => runtime.submit(job),
        };
        if !taken {
            return Err(stopped(file));
        }
        answer.await.unwrap_or_else(|_| Err(stopped(file)))
    }
}

#[cfg(test)]
impl Engine {
    /// Makes the next completions say something else, the last one first.
    pub(super) fn inject(&self, results: Vec<i32>) {
        let shared = match &self.way {
            Way::Thread(thread) => &thread.shared,
            Way::Runtime(runtime) => runtime.shared(),
        };
        *shared.injected.lock().unwrap() = results;
    }
}

impl ThreadDriver {
    fn start(root: Arc<Root>, shared: Arc<Shared>, options: EngineOptions) -> Result<(Self, bool), StorageError> {
        let name = options.name;
        let (jobs, queue) = mpsc::channel();
        let (ready, is_ready) = mpsc::sync_channel(1);
        let of_thread = shared.clone();
        let body = move || match Worker::new(root, of_thread, options) {
            Ok(worker) => {
                let _ = ready.send(Ok(worker.has_arena()));
                worker.run(&queue);
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        };
        let spawned = std::thread::Builder::new().name(format!("tierlab-{name}")).spawn(body);
        let thread = spawned.map_err(|e| unusable(&e))?;
        match is_ready.recv() {
            Ok(Ok(has_arena)) => {
                let driver = Self {
                    shared,
                    jobs,
                    thread: Some(thread),
                };
                Ok((driver, has_arena))
            }
            Ok(Err(e)) => Err(unusable(&e)),
            Err(_) => Err(unusable(&io::Error::other("its thread ended"))),
        }
    }

    /// Hands a job to the thread, waking it if it sleeps. `false` when it has ended.
    fn submit(&self, job: Job) -> bool {
        let sent = self.jobs.send(job).is_ok();
        self.shared.notify();
        sent
    }
}

impl Drop for ThreadDriver {
    fn drop(&mut self) {
        self.shared.stop();
        // Whatever it does, it wakes: the event is level-triggered.
        let _ = (&self.shared.wake).write(&1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the reading thread of a tier had panicked");
        }
    }
}

fn stopped(file: &OpenFile) -> StorageError {
    StorageError::new(
        ErrorKind::Unavailable,
        file.path.as_str(),
        "the reading engine has stopped, with the runtime that opened this tier or after an error of io_uring; open the tier \
         again",
    )
}

fn unusable(error: &io::Error) -> StorageError {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            ": allow it with `sysctl kernel.io_uring_disabled=0`, and in a container with a seccomp profile that permits \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(libc::ENOSYS) => ": Linux 5.6 or later, built with io_uring, is needed",
        Some(libc::ENOMEM) => ": raise the limit of locked memory (`ulimit -l`), or lower `queue_depth`",
        _ => "",
    };
    StorageError::new(
        ErrorKind::Unsupported,
        "io_uring",
        format!("cannot be used: {error}{advice}"),
    )
}
