//! Blocks by Zipf's law. In: a number of blocks, an exponent, uniform draws. Out: blocks, the popular blocks scattered
//! over the object, and the share of the reads of the most popular blocks. Knows nothing of tiers.

use tierlab_storage::{ErrorKind, StorageError};

/// Maximum number of blocks, each of which has a cumulative weight.
const MOST_BLOCKS: u64 = 1 << 24;
/// Prime above [`MOST_BLOCKS`]: multiplied by it, ranks map to distinct blocks.
const SCATTER: u64 = 2_654_435_761;

/// Zipf's law over some blocks: rank `r`, from 1, is read with weight `r^-exponent`.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// Cumulative weights by rank; the last is 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(blocks: u64, exponent: f64) -> Result<Self, StorageError> {
        if blocks == 0 || blocks > MOST_BLOCKS {
            let why = format!("zipf is for 1 to {MOST_BLOCKS} blocks, not {blocks}");
            return Err(StorageError::new(ErrorKind::Invalid, "--pattern", why));
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

    /// Returns the share of the reads of the `held` most popular blocks. Reads are independent of each other, so no
    /// cache of this size has a higher hit ratio in the long run (Aho, Denning and Ullman, 1971: the optimal policy of
    /// the independent reference model holds the most probable pages; a cache may use one of its pages for the block
    /// just read, which for many blocks makes no difference).
    pub(crate) fn best_hit_ratio(&self, held: u64) -> f64 {
        match held.min(self.cumulative.len() as u64) {
            0 => 0.0,
            held => self.cumulative[held as usize - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn shares_are_those_of_the_law() {
        let zipf = Zipf::new(4, 1.0).unwrap();
        // 1 + 1/2 + 1/3 + 1/4 = 25/12.
        for (held, want) in [(0, 0.0), (1, 12.0 / 25.0), (2, 18.0 / 25.0), (4, 1.0), (9, 1.0)] {
            assert!((zipf.best_hit_ratio(held) - want).abs() < 1e-12, "{held}");
        }
        assert!(Zipf::new(0, 1.0).is_err() && Zipf::new(MOST_BLOCKS + 1, 1.0).is_err());
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

    proptest! {
        #[test]
        fn every_draw_is_a_block(blocks in 1_u64..5000, exponent in 0.0_f64..3.0, draw in 0.0_f64..=1.0) {
            prop_assert!(Zipf::new(blocks, exponent).unwrap().block(draw) < blocks);
        }
    }
}
