//! Jobs of the reading engine: the reads of a call, their progress and their results. Pure; knows nothing of
//! rings.
//!
//! A short read continues from an aligned offset until all needed bytes have arrived.

use super::buffer::Buffer;
use super::files::OpenFile;
use super::plan::Segment;
use crate::{ReadCost, StorageError};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Reads of a call.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<OpenFile>,
    /// Segments to read, each with a buffer of the same length.
    pub(super) segments: Vec<(Segment, Buffer)>,
    pub(super) started: Instant,
    pub(super) reply: oneshot::Sender<Result<Done, StorageError>>,
    /// Slot in the backlog, released with the job.
    pub(super) _place: OwnedSemaphorePermit,
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
pub(super) struct Active {
    pub(super) job: Job,
    /// Next byte to submit: segment and offset in it.
    pub(super) next: (usize, usize),
    /// True if the job is queued for its next reads.
    pub(super) in_turn: bool,
    /// Reads in flight or waiting to be resubmitted.
    pub(super) pending: u32,
    pub(super) submitted: Option<Instant>,
    pub(super) error: Option<StorageError>,
    /// Counts so far, without times.
    pub(super) cost: ReadCost,
}

impl Active {
    /// Creates a job that waits for its first reads.
    pub(super) fn new(job: Job) -> Self {
        Self {
            job,
            next: (0, 0),
            in_turn: true,
            pending: 0,
            submitted: None,
            error: None,
            cost: ReadCost::default(),
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.next.0 < self.job.segments.len()
    }

    /// Drops reads not yet submitted.
    pub(super) fn stop(&mut self) {
        self.next = (self.job.segments.len(), 0);
    }

    pub(super) fn fail(&mut self, error: StorageError) {
        self.error.get_or_insert(error);
        self.stop();
    }

    /// Takes the job's next read. The read carries `slot`, the job's slot.
    pub(super) fn next_op(&mut self, slot: usize, chunk_bytes: usize) -> Op {
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
pub(super) struct Op {
    pub(super) job: usize,
    pub(super) segment: usize,
    pub(super) at: usize,
    pub(super) len: usize,
    /// Bytes required for completion: less than `len` only at the end of the file.
    pub(super) need: usize,
    pub(super) done: usize,
    pub(super) attempts: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Again,
    /// The file ends before the needed bytes.
    Ended,
    /// Failed with an errno.
    Failed(i32),
}

/// Adds `n` bytes. A short read resumes from the last aligned offset, and must make progress each time.
pub(super) fn progress(op: &mut Op, n: usize, align: usize) -> Progress {
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
