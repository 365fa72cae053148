//! Index of a keyed table: from a key to the only row that can have it, in memory, at about 3.5 bits a key.
//!
//! In: hashes of keys, or an index's bytes. Out: an index, or row numbers. No I/O.
//!
//! A minimal perfect hash (A. Limasset et al., "Fast and scalable minimal perfect hashing for massive key sets", 2017): keys
//! fall into buckets by the top bits of their hash; a bucket has levels of bits, about two a key that is left; a key
//! that is alone at its bit of a level has that bit set, and the others go on to the next level. The number of bits
//! set before a key's own is its row in the bucket. A key that the table does not have finds no bit, or another key's
//! row: the row holds its key, which is compared.
//!
//! ```text
//! 0      8          magic "TLKEYS01"
//! 8      4          CRC-32C of everything behind it, u32 LE
//! 12     4          bucket_bits: there are 2^bucket_bits buckets, u32 LE
//! 16     8          rows, u64 LE
//! 24     8          words: 64-bit words of all levels, u64 LE
//! 32     4          levels of all buckets, u32 LE
//! 36     4          zero
//! 40     16 × n     for each bucket: its first row, u64 LE; its first level, u32 LE; its levels, u32 LE
//! …      4 × n      for each level: its 64-bit words, a multiple of 8, u32 LE; the first level's words come first
//! …      8 × n      the words, u64 LE
//! ```

use super::{TableError, index_error, u32_at, u64_at};

/// The first eight bytes of an index.
pub const INDEX_MAGIC: [u8; 8] = *b"TLKEYS01";
/// Maximum size of an index, in bytes: about two thousand million keys.
pub const MAX_INDEX_BYTES: u64 = 1 << 30;
/// Maximum buckets, as a power of two.
pub const MAX_BUCKET_BITS: u32 = 16;
const PRELUDE: usize = 40;
const BUCKET_BYTES: usize = 16;
/// Maximum levels: each level places a share of the keys that reach it, so real indexes have far fewer.
const MAX_LEVELS: usize = 64;
/// Words between two counts of the bits before them.
const RANK_WORDS: usize = 8;
/// Bits of a level for each key that reaches it.
const BITS_PER_KEY: usize = 2;

/// Hash of a key: XXH3 with 128 bits and seed 0, of its bytes as in a row, without length and padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(u128);

impl KeyHash {
    /// The hash of a key's bytes.
    pub fn of(key: &[u8]) -> Self {
        Self(twox_hash::XxHash3_128::oneshot(key))
    }

    /// Returns the low 64 bits, for even distribution.
    pub const fn low(self) -> u64 {
        self.0 as u64
    }

    /// Returns the bucket of a key.
    pub const fn bucket(self, bucket_bits: u32) -> usize {
        match bucket_bits {
            0 => 0,
            bits => (self.0 >> (128 - bits)) as usize,
        }
    }

    /// Returns the bit of a key in a level of `bits` bits.
    const fn bit(self, level: usize, bits: usize) -> usize {
        let (high, low) = ((self.0 >> 64) as u64, self.0 as u64);
        let mut mixed = low.wrapping_add((high | 1).wrapping_mul(level as u64 + 1));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((mixed as u128 * bits as u128) >> 64) as usize
    }
}

/// Index of one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketIndex {
    /// Number of words of each level.
    level_words: Vec<u32>,
    words: Vec<u64>,
    /// Bits set before every eighth word.
    ranks: Vec<u32>,
}

impl BucketIndex {
    fn new(level_words: Vec<u32>, words: Vec<u64>) -> Self {
        let mut sum = 0_u32;
        let ranks = words.chunks(RANK_WORDS).map(|chunk| {
            let ones = chunk.iter().map(|word| word.count_ones()).sum();
            let before = sum;
            sum = sum.wrapping_add(ones);
            before
        });
        Self {
            level_words,
            ranks: ranks.collect(),
            words,
        }
    }

    /// Builds the index of distinct hashes.
    ///
    /// # Errors
    /// Two equal hashes, or too many keys for a level.
    pub fn build(hashes: &[KeyHash]) -> Result<Self, TableError> {
        let mut left: Vec<KeyHash> = hashes.to_vec();
        let (mut level_words, mut words) = (Vec::new(), Vec::new());
        while !left.is_empty() {
            let level = level_words.len();
            if level == MAX_LEVELS {
                return Err(index_error(0, "duplicate key, or two keys with the same 128-bit hash"));
            }
            let count = (left.len() * BITS_PER_KEY).div_ceil(64).next_multiple_of(RANK_WORDS);
            level_words.push(u32::try_from(count).map_err(|_| index_error(0, "too many keys in one bucket"))?);
            let (mut seen, mut clash) = (vec![0_u64; count], vec![0_u64; count]);
            for hash in &left {
                let bit = hash.bit(level, count * 64);
                let (word, mask) = (bit / 64, 1 << (bit % 64));
                clash[word] |= seen[word] & mask;
                seen[word] |= mask;
            }
            left.retain(|hash| {
                let bit = hash.bit(level, count * 64);
                clash[bit / 64] >> (bit % 64) & 1 == 1
            });
            words.extend(seen.iter().zip(&clash).map(|(seen, clash)| seen & !clash));
        }
        Ok(Self::new(level_words, words))
    }

    /// Returns the row of a key in the bucket, if the key is in it.
    pub fn row(&self, hash: KeyHash) -> Option<u64> {
        let mut start = 0;
        for (level, &count) in self.level_words.iter().enumerate() {
            let bit = hash.bit(level, count as usize * 64);
            let (at, mask) = (start + bit / 64, 1 << (bit % 64));
            let word = self.words[at];
            if word & mask != 0 {
                let first = at / RANK_WORDS * RANK_WORDS;
                let before: u32 = self.words[first..at].iter().map(|word| word.count_ones()).sum();
                let below = (word & (mask - 1)).count_ones();
                return Some(u64::from(self.ranks[at / RANK_WORDS]) + u64::from(before + below));
            }
            start += count as usize;
        }
        None
    }

    /// Number of keys.
    fn rows(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// An index being written, bucket by bucket.
#[derive(Debug, Default)]
pub struct IndexWriter {
    rows: u64,
    buckets: Vec<u8>,
    count: usize,
    levels: Vec<u8>,
    words: Vec<u8>,
}

impl IndexWriter {
    /// Adds the next bucket.
    pub fn push(&mut self, bucket: &BucketIndex) {
        let (first_level, levels) = ((self.levels.len() / 4) as u32, bucket.level_words.len() as u32);
        self.buckets.extend(self.rows.to_le_bytes());
        self.buckets
            .extend([first_level, levels].map(u32::to_le_bytes).concat());
        let level_words = bucket.level_words.iter();
        self.levels.extend(level_words.flat_map(|words| words.to_le_bytes()));
        self.words
            .extend(bucket.words.iter().flat_map(|word| word.to_le_bytes()));
        self.count += 1;
        self.rows += bucket.rows();
    }

    /// Returns the bytes of the index.
    ///
    /// # Errors
    /// A number of buckets that is not a power of two, or an index above [`MAX_INDEX_BYTES`].
    pub fn finish(self) -> Result<Vec<u8>, TableError> {
        let bucket_bits = self.count.trailing_zeros();
        if !self.count.is_power_of_two() || bucket_bits > MAX_BUCKET_BITS {
            let what = "the number of buckets is not a power of two up to 65536";
            return Err(index_error(12, what));
        }
        let (words, levels) = ((self.words.len() / 8) as u64, (self.levels.len() / 4) as u32);
        let mut out = [
            &INDEX_MAGIC[..],
            &[0; 4],
            &bucket_bits.to_le_bytes(),
            &self.rows.to_le_bytes(),
            &words.to_le_bytes(),
            &levels.to_le_bytes(),
            &[0; 4],
            &self.buckets,
            &self.levels,
            &self.words,
        ]
        .concat();
        if out.len() as u64 > MAX_INDEX_BYTES {
            return Err(index_error(0, "the index would be larger than 1 GiB: split the table"));
        }
        let crc = crc32c::crc32c(&out[12..]);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(out)
    }
}

/// Index in memory, checked.
#[derive(Debug, Clone)]
pub struct KeyIndex {
    bucket_bits: u32,
    /// First row and index of each bucket.
    buckets: Vec<(u64, BucketIndex)>,
}

impl KeyIndex {
    /// Reads an index, which must be of `rows` rows. Offsets in errors count from the index's first byte.
    ///
    /// # Errors
    /// The fault and its offset: another magic, a wrong checksum, contradictory parts.
    pub fn decode(bytes: &[u8], rows: u64) -> Result<Self, TableError> {
        if bytes.len() < PRELUDE || bytes.len() as u64 > MAX_INDEX_BYTES {
            return Err(index_error(bytes.len(), "the index is cut off, or larger than 1 GiB"));
        }
        if bytes[..8] != INDEX_MAGIC {
            return Err(index_error(0, "not an index: it does not begin with TLKEYS01"));
        }
        let (sum, crc) = (u32_at(bytes, 8), crc32c::crc32c(&bytes[12..]));
        if sum != crc {
            return Err(index_error(8, format!("checksum {sum:08x} is not {crc:08x}")));
        }
        let bucket_bits = u32_at(bytes, 12);
        if bucket_bits > MAX_BUCKET_BITS {
            return Err(index_error(12, "more than 65536 buckets"));
        }
        if u64_at(bytes, 16) != rows {
            let what = format!("the index has {} rows, the table {rows}", u64_at(bytes, 16));
            return Err(index_error(16, what));
        }
        let bucket_bytes = BUCKET_BYTES << bucket_bits;
        let level_bytes = u64::from(u32_at(bytes, 32)) * 4;
        let word_bytes = u64_at(bytes, 24).checked_mul(8);
        let expected = word_bytes.and_then(|words| words.checked_add((PRELUDE + bucket_bytes) as u64 + level_bytes));
        if expected != Some(bytes.len() as u64) {
            return Err(index_error(24, "its parts do not sum to the length of the index"));
        }
        let (buckets, rest) = bytes[PRELUDE..].split_at(bucket_bytes);
        let (levels, words) = rest.split_at(level_bytes as usize);
        let mut levels = levels.chunks_exact(4).map(|level| u32_at(level, 0));
        let mut words = words.chunks_exact(8).map(|word| u64_at(word, 0));
        let (mut row, mut level) = (0_u64, 0);
        let mut index = Vec::with_capacity(1 << bucket_bits);
        for (at, bucket) in buckets.chunks_exact(BUCKET_BYTES).enumerate() {
            let fail = |what: &str| index_error(PRELUDE + at * BUCKET_BYTES, format!("bucket {at}: {what}"));
            let (first_row, first_level, count) = (u64_at(bucket, 0), u32_at(bucket, 8), u32_at(bucket, 12) as usize);
            if (first_row, first_level as usize) != (row, level) {
                return Err(fail("it does not begin at the end of the one before"));
            }
            if count > MAX_LEVELS {
                return Err(fail("more than 64 levels"));
            }
            let level_words: Vec<u32> = levels.by_ref().take(count).collect();
            if level_words.len() < count {
                return Err(fail("missing levels"));
            }
            let is_valid_level = |words: &u32| *words > 0 && (*words as usize).is_multiple_of(RANK_WORDS);
            if !level_words.iter().all(is_valid_level) {
                return Err(fail("a level's words are not a multiple of 8"));
            }
            let expected = level_words.iter().map(|&words| words as usize).sum();
            let words: Vec<u64> = words.by_ref().take(expected).collect();
            if words.len() < expected {
                return Err(fail("missing words"));
            }
            let bucket = BucketIndex::new(level_words, words);
            row = row.saturating_add(bucket.rows());
            level += count;
            index.push((first_row, bucket));
        }
        if row != rows || levels.next().is_some() || words.next().is_some() {
            let what = "the last bucket does not end with the index";
            return Err(index_error(PRELUDE, what));
        }
        let buckets = index;
        Ok(Self { bucket_bits, buckets })
    }

    /// Returns the row that can have a key; `None` if the table does not have it. The caller compares the row's key.
    pub fn row(&self, key: &[u8]) -> Option<u64> {
        let hash = KeyHash::of(key);
        let (first_row, bucket) = &self.buckets[hash.bucket(self.bucket_bits)];
        Some(first_row + bucket.row(hash)?)
    }

    /// Returns the memory of the index, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let bucket_memory = |(_, bucket): &(u64, BucketIndex)| {
            size_of_val(&bucket.level_words[..]) + size_of_val(&bucket.words[..]) + size_of_val(&bucket.ranks[..])
        };
        size_of_val(&self.buckets[..]) + self.buckets.iter().map(bucket_memory).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(count: u64, bucket_bits: u32) -> Vec<u8> {
        let mut buckets = vec![Vec::new(); 1 << bucket_bits];
        for key in 0..count {
            let hash = KeyHash::of(&key.to_le_bytes());
            buckets[hash.bucket(bucket_bits)].push(hash);
        }
        let mut writer = IndexWriter::default();
        for bucket in &buckets {
            writer.push(&BucketIndex::build(bucket).unwrap());
        }
        writer.finish().unwrap()
    }

    #[test]
    fn every_key_has_a_row_of_its_own_at_less_than_four_bits() {
        let count = 200_000_u64;
        let bytes = written(count, 4);
        let index = KeyIndex::decode(&bytes, count).unwrap();
        let mut seen = vec![false; count as usize];
        for key in 0..count {
            let row = index.row(&key.to_le_bytes()).unwrap() as usize;
            assert!(!std::mem::replace(&mut seen[row], true), "row {row} twice");
        }
        let bits = index.memory_bytes() as f64 * 8.0 / count as f64;
        assert!(bits < 4.0, "{bits} bits a key");
        let strangers = (count..2 * count).filter_map(|key| index.row(&key.to_le_bytes()));
        assert!(strangers.into_iter().all(|row| row < count));
    }

    /// The hash is part of the file format and never changes.
    #[test]
    fn the_hash_is_xxh3() {
        assert_eq!(KeyHash::of(b"").0, 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    }

    #[test]
    fn equal_hashes_are_refused() {
        let hash = KeyHash::of(b"a");
        assert!(BucketIndex::build(&[hash, KeyHash::of(b"b"), hash]).is_err());
    }

    proptest! {
        #[test]
        fn damage_and_truncation_are_seen(count in 0_u64..300, at: prop::sample::Index, flip in 1_u8..=255, bits in 0_u32..4) {
            let bytes = written(count, bits);
            prop_assert!(KeyIndex::decode(&bytes, count).is_ok());
            prop_assert!(KeyIndex::decode(&bytes, count + 1).is_err());
            prop_assert!(KeyIndex::decode(&bytes[..at.index(bytes.len())], count).is_err());
            let mut damaged = bytes.clone();
            let at = at.index(damaged.len());
            damaged[at] ^= flip;
            prop_assert!(KeyIndex::decode(&damaged, count).is_err());
            // With the right checksum it is refused, or leads to rows that may be there, and nothing panics.
            let crc = crc32c::crc32c(&damaged[12..]);
            damaged[8..12].copy_from_slice(&crc.to_le_bytes());
            if let Ok(index) = KeyIndex::decode(&damaged, count) {
                for key in 0_u64..50 {
                    prop_assert!(index.row(&key.to_le_bytes()).is_none_or(|row| row < count));
                }
            }
        }
    }
}
