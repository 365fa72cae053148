//! Choice of the bytes of an access. In: a point, random numbers. Out: a file and a range of it. The same seed gives
//! each caller the same accesses, whichever way of reading is used.

use super::random::Random;
use super::zipf::Zipf;
use crate::plan::{Access, Operation, Pattern, Point};
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) write: bool,
}

/// Picker shared by all callers of a repeat.
#[derive(Debug)]
pub(crate) struct Picker {
    pattern: Pattern,
    block: u64,
    file_bytes: u64,
    blocks_per_file: u64,
    blocks: u64,
    stride: u64,
    write_share: f64,
    zipf: Option<Zipf>,
    /// Index of the next access, for patterns with an order.
    next: AtomicU64,
}

impl Picker {
    /// Creates a picker for files of `file_bytes`.
    ///
    /// # Errors
    /// Zipf's law over too many blocks.
    pub(crate) fn new(point: &Point, access: &Access, file_bytes: u64) -> Result<Self> {
        let block = point.block_bytes.min(file_bytes);
        // Whole blocks only: a short block at the end would have another size.
        let blocks_per_file = (file_bytes / block).max(1);
        let blocks = blocks_per_file * u64::from(point.files);
        let zipf = match point.pattern {
            Pattern::Zipf => Some(Zipf::new(blocks, access.exponent)?),
            _ => None,
        };
        Ok(Self {
            pattern: point.pattern,
            block,
            file_bytes,
            blocks_per_file,
            blocks,
            stride: u64::from(access.stride),
            write_share: match point.operation {
                Operation::Read => 0.0,
                Operation::Write => 1.0,
                Operation::Mixed => access.write_share,
            },
            zipf,
            next: AtomicU64::new(0),
        })
    }

    /// Returns the next access of a caller.
    pub(crate) fn pick(&self, random: &mut Random) -> Pick {
        let in_order = || self.next.fetch_add(1, Ordering::Relaxed);
        let block = match (self.pattern, &self.zipf) {
            (_, Some(zipf)) => zipf.block(random.share()),
            (Pattern::Sequential, _) => in_order() % self.blocks,
            (Pattern::Strided, _) => {
                let at = in_order().wrapping_mul(self.stride);
                // Shifts by one after each round, so that every block is accessed in the end.
                (at % self.blocks + at / self.blocks) % self.blocks
            }
            _ => random.next() % self.blocks,
        };
        let offset = block % self.blocks_per_file * self.block;
        Pick {
            file: (block / self.blocks_per_file) as u32,
            offset,
            len: self.block.min(self.file_bytes - offset) as usize,
            write: self.write_share > 0.0 && (self.write_share >= 1.0 || random.share() < self.write_share),
        }
    }
}
