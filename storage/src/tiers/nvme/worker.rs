//! Worker of the engine: turns jobs into submissions and completions into replies. In: jobs. Out: their replies. Does
//! not know its driver: its own thread ([`Worker::run`]), or its callers ([`Worker::advance`]).
//!
//! A short read continues from an aligned offset until all needed bytes have arrived.

use super::LocalOptions;
use super::buffer::{Arena, Buffer};
use super::files::OpenFile;
use super::plan::Segment;
use super::ring::Ring;
use super::root::{FileId, Root};
use super::signals::Signals;
use crate::{ErrorKind, ReadCost, StorageError};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;
use std::{fmt, io};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Maximum retries of a read at the kernel's request.
const ATTEMPTS: u32 = 32;

/// State of the engine. Reads in flight point into the buffers of `jobs`.
pub(super) struct Worker {
    pub(super) ring: Ring,
    root: Arc<Root>,
    signals: Arc<Signals>,
    depth: usize,
    chunk_bytes: usize,
    jobs: Slab<Active>,
    /// Reads; the mark of a completion is the key of its read.
    ops: Slab<Op>,
    /// Jobs with reads not yet submitted, in round-robin order.
    queued: VecDeque<usize>,
    /// Reads to resubmit.
    again: VecDeque<usize>,
    /// Jobs without further reads, ready to be answered.
    finished: Vec<usize>,
    in_flight: usize,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates the worker. With the `thread` driver, call it on that thread: the ring takes submissions from no other.
    pub(super) fn new(
        root: Arc<Root>,
        signals: Arc<Signals>,
        options: &LocalOptions,
        arena: Option<&Arena>,
    ) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::new(signals.clone(), options.queue_depth, arena, options.driver)?,
            root,
            signals,
            depth: options.queue_depth as usize,
            chunk_bytes: options.chunk_bytes as usize,
            jobs: Slab::new(),
            ops: Slab::new(),
            queued: VecDeque::new(),
            again: VecDeque::new(),
            finished: Vec::new(),
            in_flight: 0,
        })
    }

    /// Works until stopped and no reads are in flight.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        if let Err(error) = self.work(queue) {
            tracing::error!(%error, "io_uring failed; the tier cannot serve further reads");
        }
    }

    fn work(&mut self, queue: &Receiver<Job>) -> io::Result<()> {
        loop {
            while self.take_job(queue) {}
            self.ring.release_closed_files();
            self.submit_reads();
            self.answer_finished();
            if self.signals.is_stopping() && self.in_flight == 0 {
                return Ok(());
            }
            self.ring.arm_wake();
            self.signals.park();
            let surprised = self.take_job(queue) || self.signals.has_closed();
            if !surprised {
                self.ring.enter()?;
            }
            self.signals.unpark();
            self.reap();
            self.answer_finished();
        }
    }

    /// Does all possible work without waiting, for callers that drive the worker.
    pub(super) fn advance(&mut self) -> io::Result<()> {
        self.reap();
        self.ring.release_closed_files();
        self.submit_reads();
        self.answer_finished();
        self.ring.arm_wake();
        // From here on, a closed file sets the wake-up event, which makes the ring readable.
        self.signals.park();
        self.ring.release_closed_files();
        self.ring.submit(self.in_flight)
    }

    /// Waits until no reads are in flight. Reads not yet submitted are not started.
    pub(super) fn wind_down(mut self) {
        let mut finish = || -> io::Result<()> {
            self.submit_reads();
            while self.in_flight > 0 {
                self.ring.enter()?;
                self.reap();
                self.submit_reads();
            }
            self.answer_finished();
            Ok(())
        };
        if let Err(error) = finish() {
            tracing::error!(%error, "io_uring failed while reads were in flight");
        }
    }

    fn reap(&mut self) {
        while let Some((mark, result)) = self.ring.next_completion() {
            self.in_flight -= 1;
            #[cfg(test)]
            let result = self.signals.injected.lock().pop().unwrap_or(result);
            self.complete(mark as usize, result);
        }
    }

    /// Takes a job off the queue. While stopping, jobs are dropped, which notifies their callers.
    fn take_job(&mut self, queue: &Receiver<Job>) -> bool {
        match queue.try_recv() {
            Ok(_) if self.signals.is_stopping() => true,
            Ok(job) => {
                self.accept(job);
                true
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => false,
        }
    }

    /// Queues a job for its first reads.
    pub(super) fn accept(&mut self, job: Job) {
        let slot = self.jobs.insert(Active::new(job));
        self.queued.push_back(slot);
    }

    /// Queues reads until the depth is reached or nothing is left.
    fn submit_reads(&mut self) {
        let stopping = self.signals.is_stopping();
        while self.in_flight < self.depth {
            if let Some(op) = self.again.pop_front() {
                self.push_read(op);
                continue;
            }
            let Some(job) = self.queued.pop_front() else { break };
            let active = &mut self.jobs[job];
            active.is_queued = false;
            // No caller waits any more, so the remaining reads are not submitted.
            if stopping || active.job.reply.is_closed() {
                active.stop();
            }
            if !active.has_more() {
                self.finish_if_done(job);
                continue;
            }
            let op = active.next_op(job, self.chunk_bytes);
            if active.has_more() {
                active.is_queued = true;
                self.queued.push_back(job);
            }
            let op = self.ops.insert(op);
            self.push_read(op);
        }
    }

    fn push_read(&mut self, slot: usize) {
        let op = &self.ops[slot];
        let active = &mut self.jobs[op.job];
        let (segment, buffer) = &mut active.job.segments[op.segment];
        let range = segment.start + (op.at + op.done) as u64..segment.start + (op.at + op.len) as u64;
        // In bounds: `at + len` is at most the segment's length, which is the buffer's.
        let into = buffer.as_mut_ptr().wrapping_add(op.at + op.done);
        let ring = &mut self.ring;
        let is_registered = buffer.is_registered() && ring.has_arena;
        active.submitted.get_or_insert_with(Instant::now);
        active.cost.requests += 1;
        self.in_flight += 1;
        // SAFETY: the bytes from `into` on are inside a buffer that stays in `jobs`, unread and unmoved on the heap, until
        // this read has completed: a job leaves `jobs` only at `pending == 0`, and `drop` leaks the buffers while reads
        // are in flight. A registered buffer is in the arena of this engine. The job holds the file.
        unsafe { ring.push_read(&active.job.file, &range, into, is_registered, slot as u64) };
    }

    /// Handles a completed read: `result` is a negated errno, 0 for the end of the file, or the number of bytes read.
    fn complete(&mut self, slot: usize, result: i32) {
        let op = &mut self.ops[slot];
        let active = &mut self.jobs[op.job];
        let align = active.job.file.direct_align.map_or(1, |align| align as usize);
        let outcome = match result {
            n if n >= 0 => {
                active.cost.wire_bytes += n as u64;
                progress(op, n as usize, align)
            }
            // The kernel cancels reads when the thread that submitted them ends.
            n if matches!(-n, libc::EINTR | libc::EAGAIN | libc::ECANCELED) && op.attempts < ATTEMPTS => {
                op.attempts += 1;
                Progress::Again
            }
            n => Progress::Failed(-n),
        };
        let gave_up = active.error.is_some() || active.job.reply.is_closed();
        match outcome {
            Progress::Again if !gave_up => {
                active.cost.retries += 1;
                self.again.push_back(slot);
                return;
            }
            Progress::Again | Progress::Done => {}
            Progress::Ended => {
                let detail = format!("shorter than the {} bytes at the look-up", active.job.file.id.size);
                active.fail(ErrorKind::Changed.error(&active.job.file.path, detail));
            }
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

    /// Records a job as finished if nothing is left to do.
    fn finish_if_done(&mut self, slot: usize) {
        let active = &self.jobs[slot];
        if active.pending > 0 || active.has_more() {
            return;
        }
        // Only a job that was stopped early is still queued.
        if active.is_queued {
            self.queued.retain(|&waiting| waiting != slot);
        }
        self.finished.push(slot);
    }

    /// Answers the finished jobs. All their bytes have arrived, so one check of each file is enough.
    fn answer_finished(&mut self) {
        let mut identities: Vec<(Arc<OpenFile>, io::Result<FileId>)> = Vec::new();
        for slot in std::mem::take(&mut self.finished) {
            let Some(active) = self.jobs.try_remove(slot) else {
                continue;
            };
            if active.job.reply.is_closed() {
                continue;
            }
            let verdict = match active.error {
                Some(error) => Err(error),
                None => self.still_current(&active.job.file, &mut identities),
            };
            let (job, mut cost) = (active.job, active.cost);
            let submitted = active.submitted.unwrap_or(job.started);
            (cost.queue, cost.device) = (submitted - job.started, submitted.elapsed());
            let segments = job.segments;
            let done = Done { segments, cost };
            // If the receiver is gone, the buffers return to the pool; nothing is in flight into them.
            let _ = job.reply.send(verdict.map(|()| done));
        }
    }

    /// Checks each file once.
    fn still_current(
        &self,
        file: &Arc<OpenFile>,
        identities: &mut Vec<(Arc<OpenFile>, io::Result<FileId>)>,
    ) -> Result<(), StorageError> {
        let seen = identities.iter().position(|(of, _)| Arc::ptr_eq(of, file));
        let index = seen.unwrap_or_else(|| {
            identities.push((file.clone(), self.root.identity(&file.c_path)));
            identities.len() - 1
        });
        file.check_current(&self.root, &identities[index].1)
    }
}

impl Drop for Worker {
    /// Normally no reads are in flight. After a panic or a failed ring some may be: the kernel may still write those
    /// buffers, so they are leaked. Callers notice the end of their reply channel.
    fn drop(&mut self) {
        if self.in_flight > 0 {
            for active in self.jobs.drain() {
                std::mem::forget(active.job.segments);
            }
        }
    }
}

/// Reads of a call.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<OpenFile>,
    /// Segments to read, each with a buffer of the same length.
    pub(super) segments: Vec<(Segment, Buffer)>,
    pub(super) started: Instant,
    pub(super) reply: oneshot::Sender<Result<Done, StorageError>>,
    /// Slot in the backlog, released with the job.
    pub(super) _slot: OwnedSemaphorePermit,
}

/// A finished job.
#[derive(Debug)]
pub(super) struct Done {
    /// Segments and their filled buffers.
    pub(super) segments: Vec<(Segment, Buffer)>,
    /// `queue` is the time from the call to the first read's submission, `device` the time from there to the last
    /// completion and the check of the version.
    pub(super) cost: ReadCost,
}

/// Job in progress.
#[derive(Debug)]
struct Active {
    job: Job,
    /// Next byte to submit: segment and offset in it.
    next: (usize, usize),
    /// True if the job is queued for its next reads.
    is_queued: bool,
    /// Reads in flight or waiting to be resubmitted.
    pending: u32,
    submitted: Option<Instant>,
    error: Option<StorageError>,
    /// Counts so far, without times.
    cost: ReadCost,
}

impl Active {
    /// Creates a job that waits for its first reads.
    fn new(job: Job) -> Self {
        Self {
            job,
            next: (0, 0),
            is_queued: true,
            pending: 0,
            submitted: None,
            error: None,
            cost: ReadCost::default(),
        }
    }

    fn has_more(&self) -> bool {
        self.next.0 < self.job.segments.len()
    }

    /// Drops reads not yet submitted.
    fn stop(&mut self) {
        self.next = (self.job.segments.len(), 0);
    }

    fn fail(&mut self, error: StorageError) {
        self.error.get_or_insert(error);
        self.stop();
    }

    /// Takes the job's next read. The read carries `slot`, the job's slot.
    fn next_op(&mut self, slot: usize, chunk_bytes: usize) -> Op {
        let (index, at) = self.next;
        let segment = &self.job.segments[index].0;
        let total = (segment.end - segment.start) as usize;
        let wanted = (segment.wanted_end - segment.start) as usize;
        let len = chunk_bytes.min(total - at);
        self.next = if at + len == total {
            (index + 1, 0)
        } else {
            (index, at + len)
        };
        self.pending += 1;
        // Bytes of a segment after the wanted bytes may be past the end of the file.
        let need = len.min(wanted.saturating_sub(at));
        Op {
            job: slot,
            segment: index,
            at,
            len,
            need,
            done: 0,
            attempts: 0,
        }
    }
}

/// Read of the bytes `at .. at + len` of a segment's buffer.
#[derive(Debug)]
struct Op {
    job: usize,
    segment: usize,
    at: usize,
    len: usize,
    /// Bytes required for completion: less than `len` only at the end of the file.
    need: usize,
    done: usize,
    attempts: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Again,
    /// The file ends before the needed bytes.
    Ended,
    /// Failed with an errno.
    Failed(i32),
}

/// Adds `n` bytes. A short read resumes from the last aligned offset, and must make progress each time.
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
