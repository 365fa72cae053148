//! Index of a shard: the byte range of each sample, so that a look-up is one read.
//!
//! ```text
//! 0      8        magic "TLSHRD01"
//! 8      4        CRC-32C of everything behind it, u32 LE
//! 12     4        samples, u32 LE
//! 16     8        bytes of the shard, u64 LE
//! 24     …        for each sample, in order of key: bytes of the key, u16 LE; the key, UTF-8; its first byte in the shard,
//!                 u64 LE; its bytes, u32 LE; their CRC-32C, u32 LE
//! ```
//! The samples' checksums cover contents, which tar does not, and detect another version of the shard.

use super::{MAX_SAMPLE_BYTES, ShardError};
use std::ops::Range;

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"TLSHRD01";
/// Extension of the index after its shard's name.
pub const EXTENSION: &str = "index";
/// Maximum size of an index, in bytes.
pub const MAX_INDEX_BYTES: u64 = 256 << 20;
/// Maximum length of a key, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;
const PRELUDE: usize = 24;
/// Minimum bytes of a sample in an index.
const MIN_SAMPLE_BYTES: usize = 2 + 8 + 4 + 4;

/// Position of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Key of the sample.
    pub key: String,
    /// Byte range in the shard, headers and checksums included.
    pub range: Range<u64>,
    /// CRC-32C of these bytes.
    pub crc: u32,
}

/// The samples of one shard, in order of key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardIndex {
    shard_bytes: u64,
    samples: Vec<Sample>,
}

impl ShardIndex {
    /// Creates the index of a shard of `shard_bytes` bytes.
    ///
    /// # Errors
    /// A key that is duplicate or too long, a sample that is too large or beyond the shard's end.
    pub fn new(shard_bytes: u64, mut samples: Vec<Sample>) -> Result<Self, ShardError> {
        samples.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let index = Self { shard_bytes, samples };
        index.check()?;
        Ok(index)
    }

    /// Returns the bytes of the indexed shard.
    pub const fn shard_bytes(&self) -> u64 {
        self.shard_bytes
    }

    /// All samples, in order of key.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns the number of a key's sample among [`samples`](Self::samples). Tries `expected` first: scans go from one
    /// to the next.
    pub fn position(&self, key: &str, expected: usize) -> Option<usize> {
        if self.samples.get(expected).is_some_and(|sample| sample.key == key) {
            return Some(expected);
        }
        let at = self.samples.binary_search_by(|sample| sample.key.as_str().cmp(key));
        at.ok()
    }

    fn check(&self) -> Result<(), ShardError> {
        let fail = |sample: &Sample, what: &str| {
            let what = format!("sample `{}`: {what}", sample.key);
            Err(ShardError::new("shard index", sample.range.start, what))
        };
        for (i, sample) in self.samples.iter().enumerate() {
            let Range { start, end } = sample.range;
            if sample.key.len() > MAX_KEY_BYTES {
                return fail(sample, "the key is longer than 4096 bytes");
            }
            if start > end || end > self.shard_bytes || end - start > MAX_SAMPLE_BYTES {
                return fail(sample, "beyond the shard's end, or larger than 80 MiB");
            }
            if i > 0 && self.samples[i - 1].key >= sample.key {
                return fail(sample, "the key is duplicate or not in order");
            }
        }
        Ok(())
    }

    /// The index's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([0; 4]);
        out.extend(u32::try_from(self.samples.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.shard_bytes.to_le_bytes());
        for Sample { key, range, crc } in &self.samples {
            out.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
            out.extend(key.as_bytes());
            out.extend(range.start.to_le_bytes());
            out.extend(u32::try_from(range.end - range.start).unwrap_or(u32::MAX).to_le_bytes());
            out.extend(crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads an index.
    ///
    /// # Errors
    /// The fault and its offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, ShardError> {
        let fail = |offset: usize, what: &str| ShardError::new("shard index", offset as u64, what);
        let mut rest = bytes;
        if take(&mut rest) != Some(MAGIC) {
            return Err(fail(0, "not an index of a shard: it does not begin with TLSHRD01"));
        }
        let truncated = || fail(bytes.len(), "cut off inside its header");
        let crc = take(&mut rest).map(u32::from_le_bytes).ok_or_else(truncated)?;
        if crc32c::crc32c(rest) != crc {
            return Err(fail(8, "wrong checksum: damaged or cut off; lay the table out again"));
        }
        let count = take(&mut rest).map(u32::from_le_bytes).ok_or_else(truncated)? as usize;
        let shard_bytes = take(&mut rest).map(u64::from_le_bytes).ok_or_else(truncated)?;
        if count > (bytes.len() - PRELUDE) / MIN_SAMPLE_BYTES {
            return Err(fail(12, "more samples than it has bytes for"));
        }
        let mut samples = Vec::new();
        let no_memory = |_| fail(12, "more samples than there is memory for");
        samples.try_reserve_exact(count).map_err(no_memory)?;
        for _ in 0..count {
            let at = bytes.len() - rest.len();
            let sample = sample(&mut rest).ok_or_else(|| fail(at, "a sample is cut off, or its key is not UTF-8"))?;
            samples.push(sample);
        }
        if !rest.is_empty() {
            return Err(fail(bytes.len() - rest.len(), "bytes after the last sample"));
        }
        let index = Self { shard_bytes, samples };
        index.check()?;
        Ok(index)
    }
}

fn sample(rest: &mut &[u8]) -> Option<Sample> {
    let len = take(rest).map(u16::from_le_bytes)?;
    let (key, after) = rest.split_at_checked(usize::from(len))?;
    *rest = after;
    let key = std::str::from_utf8(key).ok()?.to_owned();
    let start = take(rest).map(u64::from_le_bytes)?;
    let bytes = take(rest).map(u32::from_le_bytes)?;
    let crc = take(rest).map(u32::from_le_bytes)?;
    let range = start..start.checked_add(u64::from(bytes))?;
    Some(Sample { key, range, crc })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ShardIndex {
        let sample = |key: &str, range: Range<u64>| Sample {
            key: key.to_owned(),
            range,
            crc: 7,
        };
        ShardIndex::new(100, vec![sample("b", 40..100), sample("a", 0..40)]).unwrap()
    }

    #[test]
    fn what_is_written_is_read_and_every_cut_and_flip_is_refused() {
        let bytes = index().encode();
        let read = ShardIndex::decode(&bytes).unwrap();
        assert_eq!(read, index());
        assert_eq!(
            read.position("b", 0).map(|at| read.samples[at].range.clone()),
            Some(40..100)
        );
        assert_eq!(read.position("c", 0), None);
        for at in 0..bytes.len() {
            assert!(ShardIndex::decode(&bytes[..at]).is_err(), "{at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert!(ShardIndex::decode(&flipped).is_err(), "{at}");
        }
    }

    #[test]
    fn samples_beyond_the_shard_and_keys_twice_are_refused() {
        let sample = |range: Range<u64>| Sample {
            key: "a".to_owned(),
            range,
            crc: 0,
        };
        assert!(ShardIndex::new(9, vec![sample(0..10)]).is_err());
        assert!(ShardIndex::new(9, vec![sample(0..1), sample(1..2)]).is_err());
    }
}
