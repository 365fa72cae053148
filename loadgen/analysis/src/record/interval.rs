//! Estimate with its 95 % interval.

use serde::{Deserialize, Deserializer, Serialize};

/// Estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Estimated value.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end; infinite without an upper bound, and `null` in JSON.
    #[serde(deserialize_with = "open_end")]
    pub hi: f64,
}

fn open_end<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_an_upper_end_is_written_and_read() {
        for hi in [3.5, f64::INFINITY] {
            let interval = Interval {
                value: 2.0,
                lo: 1.0,
                hi,
            };
            let text = serde_json::to_string(&interval).unwrap();
            assert_eq!(text.contains("null"), hi.is_infinite());
            assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), interval);
        }
    }
}
