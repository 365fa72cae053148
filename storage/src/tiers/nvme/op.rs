//! Progress of a single read: a short read continues from an aligned offset until all needed bytes have arrived. In: a
//! completion's result. Out: the next step. Pure arithmetic; knows nothing of rings.

/// Read of the bytes `at .. at + len` of a segment's buffer.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) job: usize,
    pub(super) segment: usize,
    pub(super) at: usize,
    pub(super) len: usize,
    /// Bytes without which it is not done: short of `len` only at the end of the file.
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
    /// An errno.
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
