//! The engine's thread: jobs to submissions, completions to answers. In: jobs. Out: their replies.

use super::engine::{Done, Job, Shared};
use super::root::Root;
use super::slots::Slots;
use crate::error::{ErrorKind, StorageError};
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Bytes of one read at most: longer segments are read in this many bytes at a time, several at once.
const CHUNK: usize = 256 << 10;
/// Times that one read is tried again after the kernel asked for it, before it counts as failed.
const ATTEMPTS: u32 = 32;
/// The pause when the kernel is short of memory and nothing of ours is in flight that would wake us.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(1);
/// The mark of the wake-up event's completions; reads are marked by their slot.
const WAKE: u64 = u64::MAX;

/// A job at work.
struct Active {
    job: Job,
    /// The next byte to submit: segment and offset in it.
    next: (usize, usize),
    /// Whether it stands in the queue for its next turn.
    in_turn: bool,
    /// Reads submitted or to be submitted again.
    pending: u32,
    submitted: Option<Instant>,
    error: Option<StorageError>,
    wire_bytes: u64,
    requests: u32,
    retries: u32,
}

impl Active {
    fn has_more(&self) -> bool {
        self.next.0 < self.job.segments.len()
    }

    /// Starts nothing more of it.
    fn stop(&mut self) {
        self.next = (self.job.segments.len(), 0);
    }

    fn fail(&mut self, error: StorageError) {
        self.error.get_or_insert(error);
        self.stop();
    }
}

/// One read: the bytes `at .. at + len` of a segment's buffer.
struct Op {
    job: usize,
    segment: usize,
    at: usize,
    len: usize,
    /// Bytes without which it is not done: short of `len` only at the end of the file.
    need: usize,
    done: usize,
    attempts: u32,
}

/// The thread's state. Reads in flight point into the buffers of `jobs`.
pub(super) struct Worker {
    ring: IoUring,
    root: Arc<Root>,
    shared: Arc<Shared>,
    queue: Receiver<Job>,
    depth: usize,
    jobs: Slots<Active>,
    ops: Slots<Op>,
    /// Jobs with reads not yet submitted, in turn.
    turn: VecDeque<usize>,
    /// Reads to submit again.
    again: VecDeque<usize>,
    in_flight: usize,
    wake_armed: bool,
}

impl Worker {
    /// Made on the thread that runs it: the ring takes submissions from no other.
    pub(super) fn new(root: Arc<Root>, shared: Arc<Shared>, queue: Receiver<Job>, depth: u32) -> io::Result<Self> {
        // One more than the depth, for the wake-up event.
        let entries = (depth + 1).next_power_of_two();
        let tuned = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries);
        let ring = match tuned {
            // Kernels before 6.1 know neither flag.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries)?,
            ring => ring?,
        };
        Ok(Self {
            ring,
            root,
            shared,
            queue,
            depth: depth as usize,
            jobs: Slots::default(),
            ops: Slots::default(),
            turn: VecDeque::new(),
            again: VecDeque::new(),
            in_flight: 0,
            wake_armed: false,
        })
    }

    /// Works until told to stop and nothing is in flight.
    pub(super) fn run(mut self) {
        if let Err(error) = self.work() {
            tracing::error!(%error, "io_uring failed; the tier answers no more reads");
        }
    }

    fn work(&mut self) -> io::Result<()> {
        loop {
            while self.take_job() {}
            self.submit_reads();
            if self.shared.is_stopping() && self.in_flight == 0 {
                return Ok(());
            }
            self.arm_wake();
            self.shared.park();
            let surprised = self.take_job();
            if !surprised {
                self.enter()?;
            }
            self.shared.unpark();
            self.reap();
        }
    }

    /// Takes one job off the queue. When stopping, jobs are dropped, which tells their callers.
    fn take_job(&mut self) -> bool {
        match self.queue.try_recv() {
            Ok(_) if self.shared.is_stopping() => true,
            Ok(job) => {
                let active = Active {
                    job,
                    next: (0, 0),
                    in_turn: true,
                    pending: 0,
                    submitted: None,
                    error: None,
                    wire_bytes: 0,
                    requests: 0,
                    retries: 0,
                };
                let slot = self.jobs.insert(active);
                self.turn.push_back(slot);
                true
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => false,
        }
    }

    /// Queues reads until the depth is reached or nothing is left.
    fn submit_reads(&mut self) {
        let stopping = self.shared.is_stopping();
        while self.in_flight < self.depth {
            if let Some(op) = self.again.pop_front() {
                self.push_read(op);
                continue;
            }
            let Some(job) = self.turn.pop_front() else { break };
            let active = &mut self.jobs[job];
            active.in_turn = false;
            // Nobody waits for it any more: what is not submitted need not be.
            if stopping || active.job.reply.is_closed() {
                active.stop();
            }
            if !active.has_more() {
                self.finish_if_done(job);
                continue;
            }
            let op = next_op(job, active);
            if active.has_more() {
                active.in_turn = true;
                self.turn.push_back(job);
            }
            let op = self.ops.insert(op);
            self.push_read(op);
        }
    }

    fn push_read(&mut self, slot: usize) {
        let op = &self.ops[slot];
        let active = &mut self.jobs[op.job];
        let (segment, buffer) = &mut active.job.segments[op.segment];
        let offset = segment.start + (op.at + op.done) as u64;
        // In bounds: `at + len` is at most the segment's length, which is the buffer's.
        let into = buffer.as_mut_ptr().wrapping_add(op.at + op.done);
        let len = (op.len - op.done) as u32;
        let read = opcode::Read::new(types::Fd(active.job.file.fd.as_raw_fd()), into, len);
        let entry = read.offset(offset).build().user_data(slot as u64);
        active.submitted.get_or_insert_with(Instant::now);
        active.requests += 1;
        self.in_flight += 1;
        // SAFETY: `into .. into + len` lies inside a buffer that stays in `jobs`, unread and unmoved on the heap, until
        // this read has completed: a job leaves `jobs` only at `pending == 0`, and `drop` leaks the buffers
        // while reads are in flight. The file is open until then too; the kernel holds it during the read.
        unsafe { self.push(&entry) };
    }

    /// # Safety
    /// Whatever the entry points to must live until its completion.
    unsafe fn push(&mut self, entry: &io_uring::squeue::Entry) {
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // The queue has more entries than reads that may be in flight, and the event.
        debug_assert!(pushed.is_ok());
    }

    /// Asks to be told when the wake-up event is set. It is a poll: it owns no memory.
    fn arm_wake(&mut self) {
        if !self.wake_armed {
            let fd = types::Fd(self.shared.wake_event().as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(WAKE);
            // SAFETY: points to nothing; the descriptor lives as long as the worker.
            unsafe { self.push(&poll) };
            self.wake_armed = true;
        }
    }

    /// Submits what is queued and sleeps until something completes.
    fn enter(&self) -> io::Result<()> {
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

    fn reap(&mut self) {
        while let Some((mark, result)) = self.next_completion() {
            if mark == WAKE {
                self.wake_armed = false;
                self.shared.drain_wake_event();
            } else {
                self.in_flight -= 1;
                self.complete(mark as usize, result);
            }
        }
    }

    fn next_completion(&mut self) -> Option<(u64, i32)> {
        self.ring
            .completion()
            .next()
            .map(|entry| (entry.user_data(), entry.result()))
    }

    /// One read came back: with an errno (negated), with the end of the file (0) or with that many bytes.
    fn complete(&mut self, slot: usize, result: i32) {
        let op = &mut self.ops[slot];
        let active = &mut self.jobs[op.job];
        let align = active.job.file.direct_align.map_or(1, |align| align as usize);
        let outcome = match result {
            n if n >= 0 => {
                active.wire_bytes += n as u64;
                progress(op, n as usize, align)
            }
            n if matches!(-n, libc::EINTR | libc::EAGAIN) && op.attempts < ATTEMPTS => {
                op.attempts += 1;
                Progress::Again
            }
            n => Progress::Failed(-n),
        };
        let gave_up = active.error.is_some() || active.job.reply.is_closed();
        match outcome {
            Progress::Again if !gave_up => {
                active.retries += 1;
                self.again.push_back(slot);
                return;
            }
            Progress::Again | Progress::Done => {}
            Progress::Ended => active.fail(truncated(&active.job)),
            Progress::Failed(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                active.fail(self.root.explain(active.job.file.path.as_str(), &error));
            }
        }
        active.pending -= 1;
        let job = op.job;
        self.ops.remove(slot);
        self.finish_if_done(job);
    }

    /// Answers a job of which nothing is left to do.
    fn finish_if_done(&mut self, slot: usize) {
        let active = &self.jobs[slot];
        if active.pending > 0 || active.has_more() {
            return;
        }
        // Only a job that was stopped early still stands there.
        if active.in_turn {
            self.turn.retain(|&waiting| waiting != slot);
        }
        let Some(active) = self.jobs.remove(slot) else { return };
        let Active {
            job,
            submitted,
            error,
            wire_bytes,
            requests,
            retries,
            ..
        } = active;
        if job.reply.is_closed() {
            return;
        }
        let verdict = match error {
            Some(error) => Err(error),
            None => self.still_current(&job),
        };
        let submitted = submitted.unwrap_or(job.started);
        let done = |job_segments: Vec<_>| Done {
            buffers: job_segments.into_iter().map(|(_, buffer)| buffer).collect(),
            queue: submitted - job.started,
            device: submitted.elapsed(),
            wire_bytes,
            requests,
            retries,
        };
        // The receiver may be gone by now; then the buffers go back to the pool, with nothing in flight into them.
        let _ = job.reply.send(verdict.map(|()| done(job.segments)));
    }

    /// Asked after the last byte: if the path still names this file, unchanged, then every byte was of this version.
    fn still_current(&self, job: &Job) -> Result<(), StorageError> {
        match self.root.identity(&job.file.c_path) {
            Ok(id) if id == job.file.id => Ok(()),
            Ok(id) => {
                let detail = format!("was {} when looked up, is {} now", job.file.id.version(), id.version());
                Err(StorageError::new(ErrorKind::Changed, job.file.path.as_str(), detail))
            }
            Err(e) => Err(self.root.explain(job.file.path.as_str(), &e)),
        }
    }
}

impl Drop for Worker {
    /// Normally nothing is in flight. After a panic or a failed ring something may be: the kernel may still write
    /// those buffers, so they are leaked. Callers are told by their reply's end.
    fn drop(&mut self) {
        if self.in_flight > 0 {
            for active in self.jobs.drain() {
                std::mem::forget(active.job.segments);
            }
        }
    }
}

/// Cuts the next read off a job that has more.
fn next_op(job: usize, active: &mut Active) -> Op {
    let (index, at) = active.next;
    let segment = &active.job.segments[index].0;
    let total = (segment.end - segment.start) as usize;
    let wanted = (segment.wanted_end - segment.start) as usize;
    let len = CHUNK.min(total - at);
    active.next = if at + len == total {
        (index + 1, 0)
    } else {
        (index, at + len)
    };
    active.pending += 1;
    // The end of a segment beyond what is wanted may lie past the end of the file.
    let need = len.min(wanted.saturating_sub(at));
    Op {
        job,
        segment: index,
        at,
        len,
        need,
        done: 0,
        attempts: 0,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Again,
    /// The file ends before what was wanted.
    Ended,
    /// An errno.
    Failed(i32),
}

/// Accounts `n` bytes more. A short read is resumed, from the last aligned place, and each time has to get further.
fn progress(op: &mut Op, n: usize, align: usize) -> Progress {
    let reached = op.done + n;
    if reached >= op.need {
        op.done = reached;
        return Progress::Done;
    }
    let resumed = reached - reached % align;
    if resumed == op.done {
        return Progress::Ended;
    }
    op.done = resumed;
    Progress::Again
}

fn truncated(job: &Job) -> StorageError {
    let detail = format!(
        "ends before {} bytes, which it had when it was looked up",
        job.file.id.size()
    );
    StorageError::new(ErrorKind::Changed, job.file.path.as_str(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op(len: usize, need: usize) -> Op {
        Op {
            job: 0,
            segment: 0,
            at: 0,
            len,
            need,
            done: 0,
            attempts: 0,
        }
    }

    #[test]
    fn a_short_read_goes_on_from_an_aligned_place() {
        let mut op = op(8192, 8000);
        assert_eq!(progress(&mut op, 5000, 4096), Progress::Again);
        assert_eq!(op.done, 4096);
        assert_eq!(progress(&mut op, 100, 4096), Progress::Ended);
        assert_eq!(progress(&mut op, 3904, 4096), Progress::Done);
    }

    #[test]
    fn the_end_of_the_file_is_not_taken_for_success() {
        assert_eq!(progress(&mut op(4096, 10), 0, 4096), Progress::Ended);
        assert_eq!(progress(&mut op(4096, 10), 9, 1), Progress::Again);
        assert_eq!(progress(&mut op(4096, 10), 10, 512), Progress::Done);
    }

    proptest! {
        #[test]
        fn every_sequence_of_short_reads_ends(shift in 0u32..13, reads in prop::collection::vec(0usize..9000, 1..40)) {
            let align = 1usize << shift;
            let len = 65_536;
            let mut op = op(len, len - 7);
            let mut reads = reads.into_iter().cycle();
            for _ in 0..=len {
                let n = reads.next().unwrap_or(0).min(len - op.done);
                match progress(&mut op, n, align) {
                    Progress::Again => prop_assert!(op.done.is_multiple_of(align) && op.done < op.need),
                    Progress::Done => { prop_assert!(op.done >= op.need); return Ok(()); }
                    Progress::Ended => { prop_assert!(n < align); return Ok(()); }
                    Progress::Failed(_) => prop_assert!(false),
                }
            }
            prop_assert!(false, "it did not end");
        }
    }
}
