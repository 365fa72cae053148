//! Direct reads through io_uring into pinned buffers that the kernel has registered. As many reads are in flight as
//! there are buffers, and each is copied to the device as soon as it completes.

use super::bounce::{Slot, begin_copy, finish, slots};
use super::{ALIGN, PhaseTimes, Piece, Route};
use crate::gpu::Gpu;
use crate::memory::Stream;
use crate::{DeviceError, DeviceErrorKind};
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum retries of a read that the kernel interrupts, before it counts as failed.
const ATTEMPTS: u32 = 32;
/// Pause when the kernel is short of memory, and the maximum number of consecutive pauses.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);
const SHORTAGE_PAUSES: u32 = 1000;

/// The ring is the first field, so that the kernel releases the buffers before they are unpinned.
pub(super) struct Ring {
    ring: IoUring,
    stream: Stream,
    slots: Vec<Slot>,
    /// True if the kernel has registered the buffers.
    registered: bool,
    /// Set by a failure of the ring itself. No more reads follow: a read may still be in flight.
    broken: Option<DeviceError>,
}

impl Ring {
    pub(super) fn new(gpu: &Arc<Gpu>, count: usize, bytes: usize) -> Result<Self, DeviceError> {
        let refused =
            |e: std::io::Error| DeviceError::new(DeviceErrorKind::Unsupported, format!("kernel refuses io_uring: {e}"));
        let entries = u32::try_from(count).unwrap_or(u32::MAX).next_power_of_two();
        let ring = IoUring::new(entries).map_err(refused)?;
        let stream = Stream::new(gpu)?;
        let mut slots = slots(gpu, count, bytes)?;
        let buffers: Vec<libc::iovec> = slots
            .iter_mut()
            .map(|slot| libc::iovec {
                iov_len: slot.memory.as_slice().len(),
                iov_base: slot.memory.as_mut_ptr().cast(),
            })
            .collect();
        // SAFETY: the buffers live as long as the ring, which is dropped before them.
        let registered = unsafe { ring.submitter().register_buffers(&buffers) };
        if let Err(error) = &registered {
            tracing::warn!(%error, "pinned buffers are not registered with the kernel (ulimit -l): reads map them each time");
        }
        Ok(Self {
            ring,
            stream,
            slots,
            registered: registered.is_ok(),
            broken: None,
        })
    }

    /// Queues the next read of a piece into its slot.
    fn push(&mut self, at: usize, piece: &mut Piece) -> Result<(), DeviceError> {
        debug_assert!(piece.len <= self.slots[at].memory.as_slice().len());
        // Earlier reads of the piece ended at a multiple of the alignment.
        let buffer = self.slots[at].memory.as_mut_ptr().wrapping_add(piece.done);
        let len = u32::try_from(piece.len - piece.done).unwrap_or(u32::MAX);
        let fd = types::Fd(piece.fd());
        let offset = piece.offset + piece.done as u64;
        let entry = match u16::try_from(at) {
            Ok(index) if self.registered => opcode::ReadFixed::new(fd, buffer, len, index).offset(offset).build(),
            _ => opcode::Read::new(fd, buffer, len).offset(offset).build(),
        };
        piece.requests += 1;
        // SAFETY: the slot is that long, written by nobody else until the completion, and the piece holds the file open.
        unsafe { self.ring.submission().push(&entry.user_data(at as u64)) }
            .map_err(|_| DeviceError::new(DeviceErrorKind::Unavailable, "io_uring queue is full"))
    }

    /// Handles a read's result. True if the rest must be read.
    fn take(piece: &mut Piece, result: i32) -> bool {
        match usize::try_from(result) {
            Ok(0) => piece.cut_short(),
            Ok(count) if piece.done + count >= piece.wanted => piece.done += count,
            Ok(count) => {
                // After a short read, the rest must start at a multiple of the alignment.
                let align = piece.file.direct_align().map_or(1, |align| align as usize).max(1);
                let whole = (piece.done + count) / align * align;
                if whole > piece.done {
                    piece.done = whole;
                    return true;
                }
                piece.done += count;
                piece.cut_short();
            }
            // The kernel cancels reads when the thread that submitted them ends.
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN | libc::ECANCELED) && piece.retries < ATTEMPTS => {
                piece.retries += 1;
                return true;
            }
            Err(_) => piece.fail_io(&std::io::Error::from_raw_os_error(-result)),
        }
        false
    }

    /// Submits queued reads and sleeps until a completion. If too much is in flight or memory is short, pauses, and
    /// completions are taken first. Returns the number of consecutive pauses, given the number so far.
    fn enter(&self, pauses: u32) -> Result<u32, DeviceError> {
        let Err(error) = self.ring.submit_and_wait(1) else {
            return Ok(0);
        };
        match error.raw_os_error() {
            Some(libc::EINTR) => Ok(pauses),
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) if pauses < SHORTAGE_PAUSES => {
                std::thread::sleep(SHORTAGE_PAUSE);
                Ok(pauses + 1)
            }
            _ => Err(DeviceError::new(
                DeviceErrorKind::Unavailable,
                format!("io_uring: {error}"),
            )),
        }
    }

    fn read_all(&mut self, pieces: &mut [&mut Piece], times: &mut PhaseTimes) -> Result<(), DeviceError> {
        let mut free: VecDeque<usize> = (0..self.slots.len()).collect();
        let mut reading: Vec<Option<usize>> = vec![None; self.slots.len()];
        let (mut next, mut under_way, mut pauses) = (0, 0, 0);
        while next < pieces.len() || under_way > 0 {
            while next < pieces.len() {
                let Some(slot) = free.pop_front() else { break };
                let began = Instant::now();
                self.slots[slot].copied.wait()?;
                times.copying += began.elapsed();
                self.push(slot, pieces[next])?;
                reading[slot] = Some(next);
                (next, under_way) = (next + 1, under_way + 1);
            }
            let began = Instant::now();
            pauses = self.enter(pauses)?;
            times.reading += began.elapsed();
            let completions = self.ring.completion();
            let done = completions.map(|entry| (entry.user_data() as usize, entry.result()));
            let done: Vec<(usize, i32)> = done.collect();
            for (slot, result) in done {
                let Some(index) = reading.get(slot).copied().flatten() else {
                    continue;
                };
                let piece = &mut *pieces[index];
                if Self::take(piece, result) {
                    self.push(slot, piece)?;
                    continue;
                }
                if piece.error.is_none() {
                    begin_copy(&self.slots[slot], piece, &self.stream);
                }
                reading[slot] = None;
                under_way -= 1;
                free.push_back(slot);
            }
        }
        Ok(())
    }
}

impl Route for Ring {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes {
        let is_aligned = |slot: &Slot| (slot.memory.as_slice().as_ptr() as usize).is_multiple_of(ALIGN);
        debug_assert!(self.slots.iter().all(is_aligned));
        let mut times = PhaseTimes::default();
        let read = match &self.broken {
            Some(error) => Err(error.clone()),
            None => self.read_all(pieces, &mut times),
        };
        if let Err(error) = read {
            self.broken = Some(error.clone());
            pieces.iter_mut().for_each(|piece| piece.fail(error.clone()));
        }
        times.copying += finish(&self.stream, pieces);
        times
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.broken.is_some() {
            // The kernel may still write to them.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::SourceFile;
    use std::os::fd::{AsFd, BorrowedFd};

    #[derive(Debug)]
    struct Plain(std::fs::File);

    impl SourceFile for Plain {
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn direct_align(&self) -> Option<u32> {
            None
        }
    }

    #[test]
    fn a_read_is_repeated_a_bounded_number_of_times() {
        for (errno, retries) in [(libc::EAGAIN, ATTEMPTS), (libc::ECANCELED, ATTEMPTS), (libc::EIO, 0)] {
            let mut piece = Piece {
                file: Arc::new(Plain(std::fs::File::open("/dev/null").unwrap())),
                offset: 0,
                len: 4096,
                wanted: 4096,
                base: 0,
                into: 0,
                done: 0,
                requests: 0,
                retries: 0,
                error: None,
            };
            while Ring::take(&mut piece, -errno) {
                assert!(piece.retries <= ATTEMPTS);
            }
            assert!(piece.error.is_some());
            assert_eq!(piece.retries, retries);
        }
    }
}
