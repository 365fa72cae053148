//! Requests of a step: number of different ones, sizes, shapes, and the meaning of a row.

use serde::{Deserialize, Serialize};

/// The requests of a step, as they were prepared before its clock ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentRequests {
    /// Different requests; they are sent in turn where the step has more.
    pub distinct: u64,
    /// In which order: `sequential`, `shuffled`, `zipf(1.10)`.
    pub order: String,
    /// Bytes of a request's body.
    pub bytes: Spread,
    /// Inferences counted for one request, used for $/10k inferences and inferences per second.
    pub inferences_per_request: f64,
    /// Which dimension was taken as rows, and who says so, in words.
    pub rows_by: String,
    /// Every input.
    pub inputs: Vec<SentInput>,
    /// Check of the replies' values; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<ValueCheck>,
}

/// One input of a step's requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SentInput {
    /// Its name.
    pub name: String,
    /// Its type.
    pub datatype: String,
    /// Description of its elements.
    pub values: String,
    /// Its shapes, the most frequent first, at most 16 of them.
    pub shapes: Vec<ShapeShare>,
    /// Number of different shapes.
    pub distinct_shapes: u64,
    /// Elements of it in a request.
    pub elements: Spread,
}

/// A shape, and which share of the different requests has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeShare {
    /// The dimensions; none of a scalar.
    pub shape: Vec<u64>,
    /// From 0 to 1.
    pub share: f64,
}

/// Smallest, median and largest of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest.
    pub min: u64,
    /// The lower one of the two in the middle.
    pub median: u64,
    /// The largest.
    pub max: u64,
}

/// Check of the replies' values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ValueCheck {
    /// Share of the replies that were compared, from 0 to 1; the first of a step always is.
    pub share: f64,
    /// A value was allowed to be off by this much, and by this share of what was expected.
    pub tolerance: f64,
    /// Different requests of whose replies it is known what they should say.
    pub requests: u64,
}

impl Spread {
    /// Statistics of some values; all 0 without any.
    #[must_use]
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |index: usize| values.get(index).copied().unwrap_or(0);
        Self {
            min: at(0),
            median: at(values.len().saturating_sub(1) / 2),
            max: at(values.len().saturating_sub(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_values() {
        let of = |values: &[u64]| {
            let spread = Spread::of(values.to_vec());
            (spread.min, spread.median, spread.max)
        };
        assert_eq!(of(&[]), (0, 0, 0));
        assert_eq!(of(&[7]), (7, 7, 7));
        assert_eq!(of(&[9, 1, 4, 5]), (1, 4, 9));
    }
}
