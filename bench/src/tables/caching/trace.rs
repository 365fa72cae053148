//! Ordered rows of look-ups. In: a law, a seed. Out: rows, the same on every machine for the same seed.

use crate::chance::{Random, Zipf};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Popularity of rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Law {
    /// Rank `r` is accessed with a constant weight `r^-exponent`; 0 is uniform.
    Zipf { exponent: f64 },
    /// One row after another, restarting after the last.
    Scan {},
    /// Zipf's law, with ranks reassigned to other rows after every `every` look-ups.
    Shifting { exponent: f64, every: u32 },
}

impl Law {
    /// Exponent, and look-ups after which ranks are reassigned.
    const fn terms(&self) -> (f64, u32) {
        match *self {
            Self::Scan {} => (0.0, u32::MAX),
            Self::Zipf { exponent } => (exponent, u32::MAX),
            Self::Shifting { exponent, every } => (exponent, every),
        }
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), String> {
        let (exponent, every) = self.terms();
        if !(0.0..=10.0).contains(&exponent) {
            return Err(format!("laws.exponent: must be from 0 (uniform) to 10, not {exponent}"));
        }
        match every {
            0 => Err("laws.every: must be at least 1".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns the rows of a trace, each from 0 to below `rows`.
    ///
    /// # Errors
    /// More rows than Zipf's law supports.
    pub(super) fn trace(&self, rows: u32, lookups: u32, seed: u64) -> Result<Vec<u32>> {
        let mut random = Random::new(seed, 0x7ace);
        let rows64 = u64::from(rows);
        if matches!(self, Self::Scan {}) {
            let first = random.next() % rows64;
            let row = |at: u32| ((first + u64::from(at)) % rows64) as u32;
            return Ok((0..lookups).map(row).collect());
        }
        let (exponent, every) = self.terms();
        let zipf = Zipf::new(rows64, exponent)?;
        let row = |at: u32| {
            // Current index of the most popular row; the others follow it.
            let moved = Random::new(seed, 0x5417 + u64::from(at / every)).next() % rows64;
            ((zipf.block(random.share()) + moved) % rows64) as u32
        };
        Ok((0..lookups).map(row).collect())
    }
}

impl fmt::Display for Law {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan {} => write!(out, "scan"),
            Self::Zipf { exponent } if *exponent == 0.0 => write!(out, "uniform"),
            Self::Zipf { exponent } => write!(out, "zipf {exponent}"),
            Self::Shifting { exponent, every } => write!(out, "zipf {exponent}, shifting every {every}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Rows by their number of accesses, the most popular first.
    fn popular(trace: &[u32]) -> Vec<u32> {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        trace.iter().for_each(|row| *counts.entry(*row).or_default() += 1);
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by_key(|&(row, count)| (std::cmp::Reverse(count), row));
        rows.into_iter().map(|(row, _)| row).collect()
    }

    #[test]
    fn a_seed_names_a_trace_and_laws_are_what_they_are_called() {
        let zipf = Law::Zipf { exponent: 1.2 };
        let trace = zipf.trace(1000, 4000, 7).unwrap();
        assert_eq!(trace, zipf.trace(1000, 4000, 7).unwrap());
        assert_ne!(trace, zipf.trace(1000, 4000, 8).unwrap());
        assert!(trace.iter().all(|row| *row < 1000));
        assert_eq!(popular(&trace[..2000])[0], popular(&trace[2000..])[0]);
        let shifting = Law::Shifting {
            exponent: 1.2,
            every: 2000,
        };
        let trace = shifting.trace(1000, 4000, 7).unwrap();
        assert_ne!(popular(&trace[..2000])[0], popular(&trace[2000..])[0]);
        let scan = Law::Scan {}.trace(10, 25, 3).unwrap();
        assert!(scan.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 10));
        assert_eq!(scan[..5], scan[20..]);
    }

    #[test]
    fn laws_read_as_they_are_written_and_bad_ones_are_refused() {
        let read = |text: &str| toml::from_str::<Law>(text);
        assert_eq!(read("law = \"zipf\"\nexponent = 0.8").unwrap().to_string(), "zipf 0.8");
        assert_eq!(read("law = \"scan\"").unwrap(), Law::Scan {});
        assert!(read("law = \"zipf\"").is_err() && read("law = \"scan\"\nexponent = 1.0").is_err());
        assert!(Law::Zipf { exponent: -1.0 }.check().is_err());
        assert!(
            Law::Shifting {
                exponent: 1.0,
                every: 0
            }
            .check()
            .is_err()
        );
    }
}
