//! Requests of a step: number of different ones, sizes, shapes, and the meaning of a row.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests of a step, prepared before its clock started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentRequests {
    /// Number of different requests; they are repeated in turn if the step sends more.
    pub distinct: u64,
    /// Order of sending: `sequential`, `shuffled`, `zipf(1.10)`.
    pub order: String,
    /// Bytes of a request's body.
    pub bytes: Spread,
    /// Inferences counted for one request, used for $/10k inferences and inferences per second.
    pub inferences_per_request: f64,
    /// Mean rows of a request, which the server counts as inferences; absent if unknown, and in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_rows: Option<f64>,
    /// Dimension that counts as rows, and its source, in words.
    pub rows_by: String,
    /// Inputs of the requests.
    pub inputs: Vec<SentInput>,
    /// Check of the replies' values; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<ValueCheck>,
}

/// One input of a step's requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SentInput {
    /// Name of the input.
    pub name: String,
    /// Data type of the input.
    pub datatype: String,
    /// Description of its elements.
    pub values: String,
    /// Shapes, the most frequent first, at most 16 of them.
    pub shapes: Vec<ShapeShare>,
    /// Number of different shapes.
    pub distinct_shapes: u64,
    /// Elements of the input per request.
    pub elements: Spread,
}

/// Shape, with its share of the different requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShapeShare {
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Share of the different requests, from 0 to 1.
    pub share: f64,
}

/// Smallest, median and largest value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Smallest value.
    pub min: u64,
    /// Median; the lower of two middle values.
    pub median: u64,
    /// Largest value.
    pub max: u64,
}

/// Check of the replies' values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValueCheck {
    /// Share of the replies that were compared, from 0 to 1; the first reply of a step always is.
    pub share: f64,
    /// Tolerance of a value: the maximum deviation is `tolerance × (1 + |expected|)`.
    pub tolerance: f64,
    /// Number of different requests with known replies.
    pub requests: u64,
}

impl Spread {
    /// Returns the statistics of values; all 0 if empty.
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
