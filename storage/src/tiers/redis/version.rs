//! Layout of an object over keys. In: a size and, for a feature table, its header. Out: chunk numbers, their bytes and
//! their keys. Pure; knows nothing of servers.
//!
//! An object is cut into chunks, each the value of one key. Rows of a feature table are separate chunks, so that a row
//! is one key; all other bytes are chunks of 512 KiB. The layout is part of the version's mark, so that a read needs no
//! look-up.

use crate::ObjectPath;
use std::fmt;
use std::ops::Range;
use tierlab_formats::table::{KeyHash, MAX_STRIDE, TableHeader};

/// Bytes of a chunk without rows.
const BLOCK_BYTES: u64 = 512 << 10;
/// Maximum bytes of a chunk; larger values in a mark are rejected.
const MAX_CHUNK_BYTES: u64 = MAX_STRIDE as u64;

/// Version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// Random id of the upload.
    pub(super) id: u64,
    pub(super) size: u64,
    /// Range of the rows; empty for an object that is not a feature table.
    rows: Range<u64>,
    /// Bytes of a chunk of rows.
    row_bytes: u64,
}

impl Version {
    /// Lays out an object of `size` bytes; a feature table by its header.
    pub(super) fn new(id: u64, size: u64, table: Option<&TableHeader>, rows_per_key: u32) -> Self {
        let (rows, row_bytes) = match table {
            Some(header) => {
                let (stride, max) = (u64::from(header.stride), MAX_CHUNK_BYTES);
                // At least one row, and at most what a chunk may hold.
                let rows_per_key = u64::from(rows_per_key).min(max / stride).max(1);
                (header.header_len()..header.rows_end(), stride * rows_per_key)
            }
            None => (size..size, BLOCK_BYTES),
        };
        Self {
            id,
            size,
            rows,
            row_bytes,
        }
    }

    /// Parses a mark; `None` if this tier has not written it.
    pub(super) fn parse(mark: &str) -> Option<Self> {
        let mut parts = mark.split('-');
        let id = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (size, start, end, row_bytes) = (number()?, number()?, number()?, number()?);
        let fits = start <= end && end <= size && (1..=MAX_CHUNK_BYTES).contains(&row_bytes);
        (fits && parts.next().is_none()).then_some(Self {
            id,
            size,
            rows: start..end,
            row_bytes,
        })
    }

    /// Ranges before, of and after the rows, each with the length of its chunks.
    fn sections(&self) -> [(Range<u64>, u64); 3] {
        [
            (0..self.rows.start, BLOCK_BYTES),
            (self.rows.clone(), self.row_bytes),
            (self.rows.end..self.size, BLOCK_BYTES),
        ]
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> u64 {
        self.sections().into_iter().map(|(bytes, len)| count(&bytes, len)).sum()
    }

    /// Range of a chunk; empty after the last.
    pub(super) fn chunk(&self, number: u64) -> Range<u64> {
        let mut first = 0;
        for (bytes, len) in self.sections() {
            if number - first < count(&bytes, len) {
                let start = bytes.start + (number - first) * len;
                return start..bytes.end.min(start + len);
            }
            first += count(&bytes, len);
        }
        self.size..self.size
    }

    /// Numbers of the chunks that cover a range; empty for an empty range.
    pub(super) fn covering(&self, range: &Range<u64>) -> Range<u64> {
        match range.is_empty() {
            true => 0..0,
            false => self.number_at(range.start)..self.number_at(range.end - 1) + 1,
        }
    }

    fn number_at(&self, offset: u64) -> u64 {
        let mut first = 0;
        for (bytes, len) in self.sections() {
            if bytes.contains(&offset) {
                return first + (offset - bytes.start) / len;
            }
            first += count(&bytes, len);
        }
        first
    }

    /// Prefix of the keys of this version's chunks; the chunk number follows. It includes the path: a path that was
    /// never put has other keys, even with another object's mark.
    pub(super) fn keys(&self, prefix: &str, path: &ObjectPath) -> String {
        let hash = KeyHash::of(format!("{path}\n{:016x}", self.id).as_bytes());
        format!("{prefix}:{:016x}:", hash.low())
    }
}

/// Mark: the upload's id, the size, the range of the rows, and the size of a chunk of rows.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, size, rows, bytes) = (self.id, self.size, &self.rows, self.row_bytes);
        write!(f, "{id:016x}-{size}-{}-{}-{bytes}", rows.start, rows.end)
    }
}

fn count(bytes: &Range<u64>, len: u64) -> u64 {
    (bytes.end - bytes.start).div_ceil(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_of_others_are_no_versions() {
        for mark in [
            "",
            "w1",
            "1-2-0-0",
            "1-2-0-3-4",
            "1-2-2-1-4",
            "1-2-0-2-0",
            "1-2-0-2-99999999999",
            "1-2-0-2-1-0",
            "g-2-0-2-1",
        ] {
            assert_eq!(Version::parse(mark), None, "{mark}");
        }
    }

    proptest! {
        #[test]
        fn chunks_cover_every_byte_once(
            size in 0_u64..5 << 20, from in 0_u64..5 << 20, to in 0_u64..5 << 20, row_bytes in 400_u64..90_000,
        ) {
            let (from, to) = (from.min(to).min(size), from.max(to).min(size));
            let version = Version { id: 7, size, rows: from..to, row_bytes };
            prop_assert_eq!(Version::parse(&version.to_string()), Some(version.clone()));
            let mut end = 0;
            for number in 0..version.chunks() {
                let bytes = version.chunk(number);
                prop_assert!(bytes.start == end && !bytes.is_empty() && bytes.end - bytes.start <= BLOCK_BYTES);
                prop_assert_eq!(version.covering(&bytes), number..number + 1);
                end = bytes.end;
            }
            prop_assert_eq!(end, size);
            prop_assert!(version.chunk(version.chunks()).is_empty());
            prop_assert_eq!(version.covering(&(0..size)), 0..version.chunks());
        }
    }
}
