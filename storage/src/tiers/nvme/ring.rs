//! An io_uring with its registered memory and files. In: reads. Out: completions, each with the mark of its read. Knows
//! nothing of jobs.

use super::Driver;
use super::buffer::Arena;
use super::files::{OpenFile, Registration};
use super::signals::Signals;
use io_uring::opcode::{PollAdd, Read, ReadFixed};
use io_uring::{IoUring, cqueue, types};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Pause if the kernel is short of memory and no read in flight would wake the engine.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of such pauses.
const SHORTAGE_PAUSES: u32 = 1000;
/// Mark of the wake-up event's completions; reads have smaller marks.
const WAKE: u64 = u64::MAX;
/// Maximum registered files; further files are read by their descriptor.
const FILE_TABLE: u32 = 256;
/// Index of the registered arena, the only entry of the table of buffers.
const ARENA_INDEX: u16 = 0;

/// Ring of the engine. If a thread drives it, that thread must have created it.
pub(super) struct Ring {
    ring: IoUring,
    signals: Arc<Signals>,
    /// Free indices of the file table; also empty if the kernel refused the table.
    free_files: Vec<u32>,
    /// True if the kernel has registered the arena. The locked-memory limit may prevent it.
    pub(super) has_arena: bool,
    wake: Wake,
}

/// State of the poll on the wake-up event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Unarmed,
    Armed,
    /// Must be armed for each event: kernels before 5.13 have no persistent polls.
    UnarmedOnce,
    ArmedOnce,
}

impl Ring {
    /// Creates a ring for `depth` reads in flight. The arena and the file table are registered if the kernel allows it
    /// ([`has_arena`](Self::has_arena)); reads also work without them.
    pub(super) fn new(signals: Arc<Signals>, depth: u32, arena: Option<&Arena>, driver: Driver) -> io::Result<Self> {
        // The extra entry is for the wake-up event.
        let entries = (depth + 1).next_power_of_two();
        let mut tuned = IoUring::builder();
        match driver {
            Driver::Thread => tuned.setup_single_issuer().setup_defer_taskrun(),
            Driver::Runtime => &mut tuned,
        };
        let ring = match tuned.build(entries) {
            // Kernels before 6.1 know neither flag.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            ring => ring?,
        };
        let has_arena = arena.is_some_and(|arena| {
            // SAFETY: the arena is our own memory, and the kernel pins its pages for as long as it may write there.
            let registered = unsafe { ring.submitter().register_buffers(&[arena.as_iovec()]) };
            registered.is_ok()
        });
        let free_files = match ring.submitter().register_files_sparse(FILE_TABLE) {
            Ok(()) => (0..FILE_TABLE).rev().collect(),
            Err(_) => Vec::new(),
        };
        Ok(Self {
            ring,
            signals,
            free_files,
            has_arena,
            wake: Wake::Unarmed,
        })
    }

    /// Queues a read of a range of a file into memory. `mark` is that of its completion.
    ///
    /// # Safety
    /// `into` must point to memory as long as the range that stays valid for writes, and that nobody else reads or
    /// writes, until the read's completion. If `is_registered` is set, it must be in the registered arena. The file must
    /// stay open until then.
    pub(super) unsafe fn push_read(
        &mut self,
        file: &OpenFile,
        range: &Range<u64>,
        into: *mut u8,
        is_registered: bool,
        mark: u64,
    ) {
        let (len, offset) = ((range.end - range.start) as u32, range.start);
        let fd = types::Fd(file.fd.as_raw_fd());
        // By the file's index in the table if it has one.
        let entry = match (self.index_of(file), is_registered) {
            (Some(index), true) => ReadFixed::new(types::Fixed(index), into, len, ARENA_INDEX)
                .offset(offset)
                .build(),
            (None, true) => ReadFixed::new(fd, into, len, ARENA_INDEX).offset(offset).build(),
            (Some(index), false) => Read::new(types::Fixed(index), into, len).offset(offset).build(),
            (None, false) => Read::new(fd, into, len).offset(offset).build(),
        };
        // SAFETY: guaranteed by the caller; the kernel also holds a registered file.
        unsafe { self.push(&entry.user_data(mark)) };
    }

    /// Index of a file in the table; adds the file if there is room.
    fn index_of(&mut self, file: &OpenFile) -> Option<u32> {
        if let Some(registration) = file.registration.get() {
            return registration.index;
        }
        let index = self.free_files.pop();
        let registered = index.filter(|&index| self.update_file(index, file.fd.as_raw_fd()));
        if registered.is_none() {
            self.free_files.extend(index);
        }
        // A file is tried only once, even if the table is full now: reading it by its descriptor works as well.
        let registration = Registration {
            index: registered,
            signals: self.signals.clone(),
        };
        file.registration.get_or_init(|| registration).index
    }

    fn update_file(&self, index: u32, fd: i32) -> bool {
        self.ring.submitter().register_files_update(index, &[fd]).is_ok()
    }

    /// Removes closed files from the table, so that the kernel releases them.
    pub(super) fn release_closed_files(&mut self) {
        for index in self.signals.take_closed() {
            // An index that cannot be cleared is not used again.
            if self.update_file(index, -1) {
                self.free_files.push(index);
            }
        }
    }

    /// # Safety
    /// The entry's pointers must stay valid until its completion.
    unsafe fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: guaranteed by the caller.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has room for all reads that may be in flight, plus the event.
        debug_assert!(pushed.is_ok());
    }

    /// Polls the wake-up event. The poll uses no memory of ours.
    pub(super) fn arm_wake(&mut self) {
        let (once, armed) = match self.wake {
            Wake::Unarmed => (false, Wake::Armed),
            Wake::UnarmedOnce => (true, Wake::ArmedOnce),
            Wake::Armed | Wake::ArmedOnce => return,
        };
        let fd = types::Fd(self.signals.wake.as_raw_fd());
        let poll = PollAdd::new(fd, libc::POLLIN as u32).multi(!once);
        // SAFETY: the entry has no pointers; the descriptor lives as long as the ring.
        unsafe { self.push(&poll.build().user_data(WAKE)) };
        self.wake = armed;
    }

    /// Descriptor that becomes readable when reads have completed.
    pub(super) fn fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring's descriptor is open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()
    }

    /// Submits queued reads without waiting for them. If the kernel is short of memory and has some of the `in_flight`
    /// reads already, the next completion submits the others.
    pub(super) fn submit(&mut self, in_flight: usize) -> io::Result<()> {
        let mut pauses = 0;
        while !self.ring.submission().is_empty() {
            let short = match self.ring.submit() {
                Ok(submitted) => submitted == 0,
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => false,
                    Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => true,
                    _ => return Err(e),
                },
            };
            if short {
                // Those still queued are no reason for a completion.
                if in_flight > self.ring.submission().len() {
                    return Ok(());
                }
                if pauses == SHORTAGE_PAUSES {
                    return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                }
                pauses += 1;
                std::thread::sleep(SHORTAGE_PAUSE);
            }
        }
        Ok(())
    }

    /// Submits queued reads and sleeps until a completion.
    pub(super) fn enter(&self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                Some(libc::EINTR | libc::ETIME) => Ok(()),
                // Too much in flight, or no memory for more: take completions first.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    std::thread::sleep(SHORTAGE_PAUSE);
                    Ok(())
                }
                _ => Err(e),
            },
        }
    }

    /// Next completed read: its mark, and bytes or a negated errno.
    pub(super) fn next_completion(&mut self) -> Option<(u64, i32)> {
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() != WAKE {
                return Some((entry.user_data(), entry.result()));
            }
            self.woken(&entry);
        }
    }

    /// Handles the wake-up event. A persistent poll is edge-triggered and needs no reset: each write to the event
    /// wakes.
    fn woken(&mut self, entry: &cqueue::Entry) {
        if cqueue::more(entry.flags()) {
            return;
        }
        // May be empty: it was drained before.
        let _ = self.signals.wake.read();
        let refused = entry.result() == -libc::EINVAL || self.wake == Wake::ArmedOnce;
        self.wake = if refused { Wake::UnarmedOnce } else { Wake::Unarmed };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets each io_uring_enter of this thread fail with EAGAIN from now on.
    fn starve_this_thread() {
        let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        let (load, equal, answer) = (0x20, 0x15, 0x06);
        let mut steps = [
            step(load, 0, 0, 0),
            step(equal, libc::SYS_io_uring_enter as u32, 0, 1),
            step(answer, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32, 0, 0),
            step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let program = libc::sock_fprog {
            len: steps.len() as u16,
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: the program outlives the calls, which copy it; both are about this thread alone.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(refused, 0);
    }

    #[test]
    fn reads_that_are_only_queued_are_not_waited_for() {
        let starved = std::thread::spawn(|| {
            let signals = Arc::new(Signals::new().unwrap());
            let mut ring = Ring::new(signals, 8, None, Driver::Runtime).unwrap();
            ring.arm_wake();
            starve_this_thread();
            // One of the kernel's, whose completion submits the queue; and then none.
            ring.submit(2).unwrap();
            ring.submit(1).unwrap_err()
        });
        assert_eq!(starved.join().unwrap().raw_os_error(), Some(libc::ENOMEM));
    }
}
