//! Entities of requests. In: a distribution, the number of entities and a seed. Out: ids, and requests for them.
//!
//! A key is drawn as a rank of popularity, and a fixed permutation scatters ranks over the ids: otherwise the popular
//! entities would be adjacent in the table and share its blocks, unlike real ones.

use crate::element;
use crate::payload::{self, Body, Form};
use crate::schedule::split_mix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::DataType;

const KEY_STREAM: u64 = 2;
/// Rounds of a Feistel network: four mix well for any round function (Luby and Rackoff, 1988).
const ROUNDS: u64 = 4;

/// Distribution of entities.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyDistribution {
    /// Equal frequencies.
    Uniform,
    /// Entity of rank r with a frequency proportional to r^-exponent.
    Zipf {
        /// Exponent above 0.
        exponent: f64,
    },
    /// One after the other through the table, repeatedly.
    Sequential,
    /// Entities of a file, in its order, repeatedly.
    File {
        /// Path as written in the plan.
        file: PathBuf,
        /// Ids; at least one. For text keys, their indices in `texts`.
        ids: Arc<[i64]>,
        /// Distinct texts; empty for integer keys.
        texts: Arc<[Box<str>]>,
    },
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf({exponent:.2})"),
            Self::Sequential => f.write_str("sequential"),
            Self::File { file, .. } => write!(f, "file({})", file.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
}

/// Entities of a table with their popularity.
#[derive(Debug, Clone)]
pub struct Population {
    first_id: i64,
    count: u64,
    distribution: KeyDistribution,
    scatter: Scatter,
    /// Distinct ids of a file, the most frequent first.
    listed: Arc<[i64]>,
    /// Texts of a file, indexed by the ids.
    texts: Arc<[Box<str>]>,
    /// Type of the table's keys, if entities have keys.
    keys: Option<DataType>,
}

impl Population {
    /// Creates the entities `first_id .. first_id + count`; `seed` chooses the popular ones.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn new(first_id: i64, count: u64, distribution: KeyDistribution, seed: u64) -> Self {
        assert!(count > 0, "the population is empty");
        let (listed, texts) = match &distribution {
            KeyDistribution::File { ids, texts, .. } => (by_frequency(ids), Arc::clone(texts)),
            _ => ([].into(), [].into()),
        };
        Self {
            first_id,
            count,
            scatter: Scatter::new(count, seed),
            listed,
            texts,
            keys: None,
            distribution,
        }
    }

    /// Sets the type of the entities' keys, which replace consecutive ids.
    #[must_use]
    pub fn with_keys(self, keys: Option<DataType>) -> Self {
        Self { keys, ..self }
    }

    /// Returns the reason for which the entities cannot be used, with the plan lines to add; `None` if they can.
    pub fn unusable_reason(&self) -> Option<&'static str> {
        let is_file = matches!(self.distribution, KeyDistribution::File { .. });
        match (self.keys, self.texts.is_empty()) {
            (Some(DataType::Bytes), true) => Some(
                "its keys are texts: list them in a CSV file, with `distribution = \"file\"`, `file` and `text = true` in `[keys]`",
            ),
            (Some(DataType::Bytes), false) => None,
            (_, false) => Some("its keys are integers: `keys.text` must not be set"),
            (Some(_), true) if !is_file => Some(
                "its keys are integers in any order: list them in a CSV file, with `distribution = \"file\"` and `file` in `[keys]`",
            ),
            _ => None,
        }
    }

    /// Formats an entity: its id, or its text key.
    pub fn shown(&self, id: i64) -> String {
        let text = usize::try_from(id).ok().and_then(|at| self.texts.get(at));
        text.map_or_else(|| id.to_string(), ToString::to_string)
    }

    /// Builds the body of a request for the rows of entities.
    pub fn body(&self, ids: &[i64], form: Form<'_>) -> Body {
        payload::of_entities(self.tensor(ids), form)
    }

    /// Returns the tensor of entities: ids, or their texts.
    pub fn tensor(&self, ids: &[i64]) -> Tensor {
        if self.texts.is_empty() {
            return payload::entity_ids(ids);
        }
        let mut data = Vec::new();
        for text in ids.iter().filter_map(|&id| self.texts.get(usize::try_from(id).ok()?)) {
            element::push_bytes(text.as_bytes(), &mut data);
        }
        Tensor {
            name: ENTITY_ID.into(),
            dtype: DataType::Bytes,
            shape: vec![ids.len() as i64],
            data: data.into(),
        }
    }

    /// Returns an id of the file that is missing in the table, if there is one.
    pub fn unknown_id(&self) -> Option<i64> {
        // Only the table knows its keys.
        if self.keys.is_some() {
            return None;
        }
        let last = self.first_id + (self.count - 1).cast_signed();
        let table_ids = self.first_id..=last;
        self.listed.iter().copied().find(|id| !table_ids.contains(id))
    }

    /// Number of different entities.
    pub fn count(&self) -> u64 {
        match self.listed.len() {
            0 => self.count,
            listed => listed as u64,
        }
    }

    /// Entities of the table in its order, or those of a file.
    pub fn ids(&self) -> impl Iterator<Item = i64> + '_ {
        let of_table = if self.listed.is_empty() { self.count } else { 0 };
        let of_table = (0..of_table).map(|index| self.first_id + index.cast_signed());
        self.listed.iter().copied().chain(of_table)
    }

    /// Returns the id of the entity of a rank, 0 being the most popular.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn by_rank(&self, rank: u64) -> i64 {
        if let Some(id) = self.listed.get(rank as usize) {
            return *id;
        }
        self.first_id + self.scatter.apply(rank).cast_signed()
    }

    /// Draws `count` ids with a step's seed.
    pub fn draw(&self, count: usize, seed: u64) -> Vec<i64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(KEY_STREAM);
        match &self.distribution {
            KeyDistribution::Uniform => (0..count)
                .map(|_| self.by_rank(rng.random_range(0..self.count)))
                .collect(),
            KeyDistribution::Zipf { exponent } => {
                let ranks = zipf_ranks(self.count, *exponent, &mut rng);
                ranks.take(count).map(|rank| self.by_rank(rank)).collect()
            }
            // Every step begins at another entity: otherwise each repeat would use the same few entities.
            KeyDistribution::Sequential => {
                let indices = (rng.random_range(0..self.count)..).take(count);
                let id = |index: u64| self.first_id + (index % self.count).cast_signed();
                indices.map(id).collect()
            }
            KeyDistribution::File { ids, .. } => ids.iter().copied().cycle().take(count).collect(),
        }
    }
}

/// Draws ranks below `count`, 0 being the most frequent, by Zipf's law.
pub(crate) fn zipf_ranks(count: u64, exponent: f64, rng: &mut ChaCha8Rng) -> impl Iterator<Item = u64> {
    let Ok(zipf) = Zipf::new(count as f64, exponent) else {
        unreachable!("a plan's exponent is positive, and so is the count");
    };
    zipf.sample_iter(rng)
        .map(move |rank: f64| (rank as u64).clamp(1, count) - 1)
}

/// Returns the distinct ids by falling frequency, then by value.
fn by_frequency(ids: &[i64]) -> Arc<[i64]> {
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for id in ids {
        *counts.entry(*id).or_default() += 1;
    }
    let mut listed: Vec<(i64, u64)> = counts.into_iter().collect();
    listed.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    listed.into_iter().map(|(id, _)| id).collect()
}

/// Permutation of `0..count`: a Feistel network over the next even power of two, walked until it falls inside.
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
        // Ends: the network is a bijection, so the walk returns to its start at the latest, which is below `count`.
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
    use crate::payload::Encoding;
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
    fn sequential_keys_pass_through_the_table() {
        let population = Population::new(100, 10, KeyDistribution::Sequential, 5);
        let ids = population.draw(25, 3);
        assert!(ids.iter().all(|id| (100..110).contains(id)));
        assert!(
            ids.windows(2)
                .all(|pair| pair[1] == if pair[0] == 109 { 100 } else { pair[0] + 1 })
        );
    }

    #[test]
    fn a_files_keys_come_in_its_order_and_strangers_are_found() {
        let from = |ids: &[i64]| {
            let distribution = KeyDistribution::File {
                file: "ids.csv".into(),
                ids: ids.into(),
                texts: [].into(),
            };
            Population::new(0, 10, distribution, 1)
        };
        let population = from(&[3, 1, 3]);
        assert_eq!(population.draw(5, 9), [3, 1, 3, 3, 1]);
        assert_eq!(
            (population.count(), population.by_rank(0), population.by_rank(1)),
            (2, 3, 1)
        );
        assert_eq!(population.unknown_id(), None);
        assert_eq!(from(&[3, 10]).unknown_id(), Some(10));
    }

    #[test]
    fn texts_are_sent_as_bytes_and_other_keys_are_refused() {
        let population = |keys, texts: &[&str]| {
            let distribution = KeyDistribution::File {
                file: "ids.csv".into(),
                ids: [1, 0].into(),
                texts: texts.iter().map(|&text| text.into()).collect(),
            };
            Population::new(0, 10, distribution, 1).with_keys(keys)
        };
        let texts = population(Some(DataType::Bytes), &["a", "bc"]);
        let body = texts.body(&texts.draw(2, 1), Form::Http(Encoding::Json));
        let body = String::from_utf8_lossy(&body.bytes).into_owned();
        assert!(body.contains("[\"bc\",\"a\"]") && body.contains("BYTES"), "{body}");
        assert_eq!((texts.unusable_reason(), texts.unknown_id()), (None, None));
        assert!(population(None, &["a", "b"]).unusable_reason().is_some());
        assert!(population(Some(DataType::Bytes), &[]).unusable_reason().is_some());
        assert!(population(Some(DataType::Int64), &[]).unusable_reason().is_none());
        let uniform = Population::new(0, 10, KeyDistribution::Uniform, 1).with_keys(Some(DataType::Int64));
        assert!(uniform.unusable_reason().unwrap().contains("any order"));
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
