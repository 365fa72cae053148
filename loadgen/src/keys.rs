//! Which entities are asked for. In: a distribution, the number of entities and a seed. Out: ids.
//!
//! A key is drawn as a rank of popularity, and ranks are scattered over the ids by a fixed permutation: else the
//! popular entities would lie side by side in the table and share its blocks, which real ones do not.

use crate::plan::KeyDistribution;
use crate::schedule::split_mix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};

const KEY_STREAM: u64 = 2;
/// Of a Feistel network: four rounds mix well for any round function (Luby and Rackoff, 1988).
const ROUNDS: u64 = 4;

/// The entities of a table and how popular each is.
#[derive(Debug, Clone, Copy)]
pub struct Population {
    first_id: i64,
    count: u64,
    distribution: KeyDistribution,
    scatter: Scatter,
}

impl Population {
    /// The entities `first_id .. first_id + count`; `seed` chooses which of them are popular.
    ///
    /// # Panics
    /// When `count` is 0.
    #[must_use]
    pub fn new(first_id: i64, count: u64, distribution: KeyDistribution, seed: u64) -> Self {
        assert!(count > 0, "a population has members");
        Self {
            first_id,
            count,
            distribution,
            scatter: Scatter::new(count, seed),
        }
    }

    /// How many entities there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The id of the entity of a rank, 0 being the most popular.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn by_rank(&self, rank: u64) -> i64 {
        self.first_id + self.scatter.apply(rank).cast_signed()
    }

    /// `count` ids drawn with a step's seed.
    #[must_use]
    pub fn draw(&self, count: usize, seed: u64) -> Vec<i64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(KEY_STREAM);
        match self.distribution {
            KeyDistribution::Uniform => (0..count)
                .map(|_| self.by_rank(rng.random_range(0..self.count)))
                .collect(),
            KeyDistribution::Zipf { exponent } => {
                let Ok(zipf) = Zipf::new(self.count as f64, exponent) else {
                    unreachable!("a plan's exponent is positive, and so is the count");
                };
                (0..count)
                    .map(|_| {
                        let rank = (zipf.sample(&mut rng) as u64).clamp(1, self.count) - 1;
                        self.by_rank(rank)
                    })
                    .collect()
            }
        }
    }
}

/// A permutation of `0..count`: a Feistel network over the next even power of two, walked until it falls inside.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Scatter {
    fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    fn apply(&self, rank: u64) -> u64 {
        assert!(rank < self.count, "rank {rank} of {}", self.count);
        let mut value = self.network(rank);
        // Ends: the network is a bijection, so the walk returns to a value below `count` at the latest where it began.
        while value >= self.count {
            value = self.network(value);
        }
        value
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let mixed = split_mix(right ^ split_mix(self.seed ^ round)) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn ranks_and_ids_are_one_to_one(first in -1_000_i64..1_000, count in 1_u64..3_000, seed: u64) {
            let population = Population::new(first, count, KeyDistribution::Uniform, seed);
            let ids: BTreeSet<i64> = (0..count).map(|rank| population.by_rank(rank)).collect();
            let all: BTreeSet<i64> = (first..first + count.cast_signed()).collect();
            prop_assert_eq!(ids, all);
        }

        #[test]
        fn drawn_ids_exist_and_repeat_with_the_seed(count in 1_u64..5_000, seed: u64, exponent in 0.1_f64..3.0) {
            for distribution in [KeyDistribution::Uniform, KeyDistribution::Zipf { exponent }] {
                let population = Population::new(7, count, distribution, 1);
                let ids = population.draw(200, seed);
                prop_assert!(ids.iter().all(|id| (7..7 + count.cast_signed()).contains(id)));
                prop_assert_eq!(&ids, &population.draw(200, seed));
            }
        }
    }

    #[test]
    fn zipf_frequencies_follow_the_law() {
        let population = Population::new(0, 1_000, KeyDistribution::Zipf { exponent: 1.0 }, 5);
        let mut counts: BTreeMap<i64, f64> = BTreeMap::new();
        for id in population.draw(200_000, 11) {
            *counts.entry(id).or_default() += 1.0;
        }
        let share = |rank| counts[&population.by_rank(rank)];
        // Rank 1 is twice as frequent as rank 2 and ten times as rank 10.
        assert!((share(0) / share(1) - 2.0).abs() < 0.1);
        assert!((share(0) / share(9) - 10.0).abs() < 1.0);
    }

    #[test]
    fn popular_entities_are_scattered() {
        let population = Population::new(0, 100_000, KeyDistribution::Uniform, 5);
        let neighbours = (0..1_000_u64)
            .filter(|&rank| population.by_rank(rank).abs_diff(population.by_rank(rank + 1)) < 8)
            .count();
        assert!(
            neighbours < 10,
            "{neighbours} of 1000 neighbours in rank are neighbours in the table"
        );
    }
}
