//! Job in progress: its next reads, and its results so far. Knows nothing of rings.

use super::job::Job;
use super::op::Op;
use crate::error::StorageError;
use std::time::Instant;

/// A job at work.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) job: Job,
    /// The next byte to submit: segment and offset in it.
    pub(super) next: (usize, usize),
    /// True if the job is queued for its next reads.
    pub(super) in_turn: bool,
    /// Reads submitted or to be submitted again.
    pub(super) pending: u32,
    pub(super) submitted: Option<Instant>,
    pub(super) error: Option<StorageError>,
    pub(super) wire_bytes: u64,
    pub(super) requests: u32,
    pub(super) retries: u32,
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
            wire_bytes: 0,
            requests: 0,
            retries: 0,
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.next.0 < self.job.segments.len()
    }

    /// Starts nothing more of it.
    pub(super) fn stop(&mut self) {
        self.next = (self.job.segments.len(), 0);
    }

    pub(super) fn fail(&mut self, error: StorageError) {
        self.error.get_or_insert(error);
        self.stop();
    }

    /// Takes the job's next read. `slot` is the job's slot, which the read carries.
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
        // The end of a segment beyond the wanted bytes may be past the end of the file.
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
