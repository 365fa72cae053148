//! Seeded random choices: numbers, blocks by Zipf's law, and the bytes of each access. In: a point, a seed. Out: each caller's
//! accesses, the same for every way of reading.

use crate::plan::{Access, MAX_ZIPF_BLOCKS, Operation, Pattern, Point};
use anyhow::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use tierlab_analysis::statistics::split_mix;
use tierlab_storage::{ErrorKind, StorageError};

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    pub(crate) write: bool,
}

/// Maximum blocks in an order, whose numbers are in memory. Of more blocks, a repeat reads few twice.
const MAX_ORDERED_BLOCKS: u64 = 1 << 24;

/// Source of accesses, shared by all callers of a repeat.
#[derive(Debug)]
pub(crate) struct Picker {
    pattern: Pattern,
    block: u64,
    blocks_per_file: u64,
    blocks: u64,
    stride: u64,
    write_share: f64,
    zipf: Option<Zipf>,
    /// Blocks in random order, each once, for random accesses that end with the data; empty for others.
    order: Vec<u32>,
    /// Index of the next access, for ordered patterns.
    next: AtomicU64,
}

impl Picker {
    /// Creates a picker for files of `file_bytes`. `seed` is the repeat's.
    ///
    /// # Errors
    /// A block larger than a file, or Zipf's law over too many blocks.
    pub(crate) fn new(point: &Point, access: &Access, file_bytes: u64, seed: u64) -> Result<Self> {
        let block = point.block_bytes;
        // Whole blocks only: a short block at the end would have another size.
        let blocks_per_file = file_bytes / block;
        if blocks_per_file == 0 {
            let why = format!("{block} B is more than the file's {file_bytes} B");
            return Err(ErrorKind::Invalid.error("--block", why).into());
        }
        let blocks = blocks_per_file * u64::from(point.objects());
        let zipf = match point.pattern {
            Pattern::Zipf => Some(Zipf::new(blocks, access.exponent)?),
            _ => None,
        };
        let is_once = point.pattern == Pattern::Random && point.ends_with_data() && blocks <= MAX_ORDERED_BLOCKS;
        let mut order: Vec<u32> = is_once.then_some(0..blocks as u32).into_iter().flatten().collect();
        Random::new(seed, 0x006f_7264_6572).shuffle(&mut order);
        Ok(Self {
            pattern: point.pattern,
            block,
            blocks_per_file,
            blocks,
            stride: u64::from(access.stride),
            write_share: match point.operation {
                Operation::Write | Operation::Checkpoint => 1.0,
                Operation::Mixed => access.write_share,
                _ => 0.0,
            },
            zipf,
            order,
            next: AtomicU64::new(0),
        })
    }

    /// Returns the next access of a caller.
    pub(crate) fn pick(&self, random: &mut Random) -> Pick {
        let in_order = || self.next.fetch_add(1, Ordering::Relaxed);
        let block = match (self.pattern, &self.zipf) {
            (_, Some(zipf)) => zipf.block(random.fraction()),
            (Pattern::Sequential, _) => in_order() % self.blocks,
            (Pattern::Strided, _) => strided(in_order() % self.blocks, self.blocks, self.stride),
            _ if self.order.is_empty() => random.next() % self.blocks,
            _ => u64::from(self.order[(in_order() % self.blocks) as usize]),
        };
        Pick {
            file: (block / self.blocks_per_file) as u32,
            offset: block % self.blocks_per_file * self.block,
            len: self.block as usize,
            write: self.write_share > 0.0 && (self.write_share >= 1.0 || random.fraction() < self.write_share),
        }
    }
}

/// Returns the block of an access in strides: every `stride`-th block from the first, then those from the second, and so on, each
/// block once.
const fn strided(access: u64, blocks: u64, stride: u64) -> u64 {
    let stride = if stride < blocks { stride } else { blocks };
    // The first rounds have one block more if the stride does not divide the blocks.
    let (round, longer) = (blocks / stride, blocks % stride);
    match access.checked_sub(longer * (round + 1)) {
        None => access % (round + 1) * stride + access / (round + 1),
        Some(rest) => rest % round * stride + longer + rest / round,
    }
}

/// Stream of random numbers: the sequence of [`split_mix`].
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates one of several independent streams of a seed.
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        let mut own = Self(seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95));
        own.next();
        own
    }

    pub(crate) const fn next(&mut self) -> u64 {
        let number = split_mix(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        number
    }

    /// Returns a number in [0, 1): the upper 53 bits fill a double's mantissa.
    pub(crate) const fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles a slice (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}

/// Prime above [`MAX_ZIPF_BLOCKS`]: multiplied by it, ranks map to distinct blocks.
const SCATTER: u64 = 2_654_435_761;

/// Zipf's law over blocks: rank `r`, from 1, is read with weight `r^-exponent`.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// Cumulative weights by rank; the last is 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(blocks: u64, exponent: f64) -> Result<Self, StorageError> {
        if blocks == 0 || blocks > MAX_ZIPF_BLOCKS {
            let why = format!("zipf supports 1 to {MAX_ZIPF_BLOCKS} blocks, not {blocks}");
            return Err(ErrorKind::Invalid.error("--pattern", why));
        }
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=blocks)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|weight| *weight /= sum);
        Ok(Self { cumulative })
    }

    /// Returns the block for a draw from 0 to 1.
    pub(crate) fn block(&self, draw: f64) -> u64 {
        let blocks = self.cumulative.len() as u64;
        let rank = self.cumulative.partition_point(|&weight| weight <= draw) as u64;
        rank.min(blocks - 1) * SCATTER % blocks
    }

    /// Returns the share of the reads of the `cached` most popular blocks. Reads are independent of each other, so no
    /// cache of this size has a higher hit ratio in the long run (Aho, Denning and Ullman, 1971: the optimal policy of
    /// the independent reference model holds the most probable pages; a cache may use one of its pages for the block
    /// just read, which for many blocks makes no difference).
    pub(crate) fn best_hit_ratio(&self, cached: u64) -> f64 {
        let last = cached.min(self.cumulative.len() as u64).checked_sub(1);
        last.map_or(0.0, |last| self.cumulative[last as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CacheState;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_names_its_numbers_and_an_order_keeps_everything() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert!(draw(1, 2) != draw(1, 3) && draw(1, 2) != draw(2, 2));
        let mut items: Vec<u32> = (0..50).collect();
        Random::new(3, 0).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
        let mut random = Random::new(9, 9);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.fraction())));
    }

    #[test]
    fn shares_are_those_of_the_law() {
        let zipf = Zipf::new(4, 1.0).unwrap();
        // 1 + 1/2 + 1/3 + 1/4 = 25/12.
        for (cached, want) in [(0, 0.0), (1, 12.0 / 25.0), (2, 18.0 / 25.0), (4, 1.0), (9, 1.0)] {
            assert!((zipf.best_hit_ratio(cached) - want).abs() < 1e-12, "{cached}");
        }
        assert!(Zipf::new(0, 1.0).is_err() && Zipf::new(MAX_ZIPF_BLOCKS + 1, 1.0).is_err());
    }

    #[test]
    fn every_rank_has_a_block_of_its_own() {
        for blocks in [1, 2, 4096, 81_920, 99_999] {
            let zipf = Zipf::new(blocks, 0.0).unwrap();
            let middle = |rank: u64| (rank as f64 + 0.5) / blocks as f64;
            let seen: HashSet<u64> = (0..blocks).map(|rank| zipf.block(middle(rank))).collect();
            assert_eq!(seen.len() as u64, blocks);
        }
    }

    #[test]
    fn cold_random_accesses_pick_every_block_once_in_an_order_of_the_seed() {
        let blocks = |operation, cache, seed| {
            let point = Point {
                operation,
                cache,
                files: 4,
                ..Point::reads("t", 4096)
            };
            let access = Access {
                write_share: 0.3,
                ..Access::default()
            };
            let picker = Picker::new(&point, &access, 25 * 4096, seed).unwrap();
            let mut random = Random::new(1, 1);
            let picks = (0..100).map(|_| picker.pick(&mut random));
            picks.map(|pick| (pick.file, pick.offset)).collect::<Vec<_>>()
        };
        let distinct = |picks: &[(u32, u64)]| picks.iter().collect::<HashSet<_>>().len();
        for operation in [Operation::Read, Operation::Mixed] {
            let [one, other] = [1, 2].map(|seed| blocks(operation, CacheState::Cold, seed));
            assert_eq!([distinct(&one), distinct(&other)], [100, 100]);
            assert!(one != other && !one.is_sorted());
            assert!(distinct(&blocks(operation, CacheState::Warm, 1)) < 100);
        }
        // Writes find no block in memory sooner: they go on for the whole repeat.
        assert!(distinct(&blocks(Operation::Write, CacheState::Cold, 1)) < 100);
    }

    #[test]
    fn strides_access_every_block_once() {
        let order =
            |blocks: u64, stride: u64| Vec::from_iter((0..blocks).map(|access| strided(access, blocks, stride)));
        assert_eq!(order(10, 4), [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]);
        // A stride beyond the data.
        assert_eq!(order(4, 16), [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn every_draw_is_a_block(blocks in 1_u64..5000, exponent in 0.0_f64..3.0, draw in 0.0_f64..=1.0) {
            prop_assert!(Zipf::new(blocks, exponent).unwrap().block(draw) < blocks);
        }
    }
}
