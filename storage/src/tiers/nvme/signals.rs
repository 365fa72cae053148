//! Signals between the engine's worker and the submitters of jobs: wake up, stop, file closed. Knows nothing of jobs or
//! rings.

use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// State shared by the worker and the submitters of jobs.
#[derive(Debug)]
pub(super) struct Signals {
    /// True while the thread sleeps or is about to.
    parked: AtomicBool,
    stopping: AtomicBool,
    pub(super) wake: EventFd,
    /// Indices of closed files in the table of registered files.
    closed: Mutex<Vec<u32>>,
    /// Results that a test substitutes for those of the next completions.
    #[cfg(test)]
    pub(super) injected: Mutex<Vec<i32>>,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            parked: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            closed: Mutex::default(),
            #[cfg(test)]
            injected: Mutex::default(),
        })
    }

    /// Wakes the thread if it sleeps. Call it after sending a job.
    pub(super) fn notify(&self) {
        // Pairs with the fence in `park`: either the thread sees the job, or this call sees that the thread is parked.
        fence(Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread in any state: the event is level-triggered.
    pub(super) fn wake(&self) {
        // A full counter refuses the write, but then a wake-up is already pending.
        let _ = self.wake.write(1);
    }

    /// Announces that the thread is about to sleep. Call it before the last check for jobs.
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

    /// Reports a closed registered file. The thread removes it from the kernel's table, so that a removed file releases
    /// its disk space.
    pub(super) fn file_closed(&self, index: u32) {
        self.closed.lock().push(index);
        self.notify();
    }

    pub(super) fn has_closed(&self) -> bool {
        !self.closed.lock().is_empty()
    }

    /// Takes the indices added since the last call.
    pub(super) fn take_closed(&self) -> Vec<u32> {
        std::mem::take(&mut *self.closed.lock())
    }
}
