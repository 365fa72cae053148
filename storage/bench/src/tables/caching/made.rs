//! Table for look-ups: rows of one size in one object, generated from a seed. In: number and length of rows. Out: the
//! object's bytes.

use crate::chance::Random;
use bytes::Bytes;
use std::ops::Range;

/// Table of equally long rows.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) bytes: Bytes,
    pub(super) row_bytes: u64,
}

impl Table {
    pub(super) fn new(rows: u32, row_bytes: u64, seed: u64) -> Self {
        let mut bytes = vec![0_u8; (u64::from(rows) * row_bytes) as usize];
        let mut random = Random::new(seed, 0x7ab1e);
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = random.next().to_le_bytes();
        }
        Self {
            bytes: Bytes::from(bytes),
            row_bytes,
        }
    }

    /// Returns the byte range of a row.
    pub(super) fn range(&self, row: u32) -> Range<u64> {
        let start = u64::from(row) * self.row_bytes;
        start..start + self.row_bytes
    }

    pub(super) fn row(&self, row: u32) -> &[u8] {
        let range = self.range(row);
        &self.bytes[range.start as usize..range.end as usize]
    }
}
