//! Driver that runs the reading engine from the reading tasks, without its own thread. In: jobs. Out: their replies.
//! Knows nothing of tiers.
//!
//! The caller submits its reads itself. A task of the runtime waits for the ring, which can be polled like a socket,
//! and takes the completions. So a read needs no thread switch and back, which on a busy machine costs most of its time
//! beyond the device's. With no reads in flight nothing runs.

use super::job::Job;
use super::signals::Signals;
use super::worker::Worker;
use parking_lot::Mutex;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

/// The engine's state, worked on by whoever has something to do.
#[derive(Debug)]
pub(super) struct RuntimeDriver {
    core: Arc<Core>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Core {
    /// `None` once it has been closed or its ring has failed.
    worker: Mutex<Option<Worker>>,
    signals: Arc<Signals>,
}

impl RuntimeDriver {
    /// Starts the task that takes completions, on the runtime that this is called from; its I/O driver is needed.
    pub(super) fn start(worker: Worker, signals: Arc<Signals>) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        // A descriptor of its own: it stays good for as long as the task polls it.
        let ring = worker.ring.fd()?;
        let core = Arc::new(Core {
            worker: Mutex::new(Some(worker)),
            signals,
        });
        // SAFETY: an `OwnedFd` is open, and the same, until it is dropped; `AsyncFd` drops it after its registration.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
        core.drive(None);
        let task = runtime.spawn(take_completions(core.clone(), ring)).abort_handle();
        Ok(Self { core, task })
    }

    /// Takes a job and submits its reads. `false` when the engine has been closed; then the job's reply is dropped.
    pub(super) fn submit(&self, job: Job) -> bool {
        self.core.drive(Some(job))
    }
}

impl Drop for RuntimeDriver {
    fn drop(&mut self) {
        self.task.abort();
        self.core.close();
    }
}

impl Core {
    /// Does whatever there is to do, without waiting.
    fn drive(&self, job: Option<Job>) -> bool {
        let mut held = self.worker.lock();
        let Some(worker) = held.as_mut() else { return false };
        if let Some(job) = job {
            worker.accept(job);
        }
        match worker.advance() {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "io_uring failed; the tier answers no more reads");
                *held = None;
                false
            }
        }
    }

    /// Waits for reads in flight and starts no more.
    fn close(&self) {
        self.signals.stop();
        if let Some(worker) = self.worker.lock().take() {
            worker.wind_down();
        }
    }
}

/// Closes the engine when the task ends with its runtime: readers elsewhere get an error instead of waiting for ever.
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
            // Cleared before the check: a completion during the check makes the ring ready once more.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::error!(%error, "the ring cannot be watched; the tier answers no more reads");
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

    impl RuntimeDriver {
        pub(in super::super) fn signals(&self) -> &Signals {
            &self.core.signals
        }
    }
}
