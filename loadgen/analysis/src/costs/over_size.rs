//! Cost of a variant over the size of the feature table.
//!
//! In: a variant of an answer, and its prices by size. Out: its month at other sizes. The number of instances is as
//! measured, and copies and caches grow with the table; other effects on latency need a measurement.

use crate::record::{CostTerms, Ranked};

/// Returns dollars a month over the table's size, as multiples of the measured size from 0 to `largest`; linear between
/// two points. Empty if the variant has no price, or its prices do not depend on size.
#[must_use]
pub fn over_size(ranked: &Ranked, terms: &CostTerms, largest: f64) -> Vec<(f64, f64)> {
    let (Some(by_size), Some(month), Some(instances)) = (&terms.by_size, ranked.usd_per_month, ranked.instances) else {
        return Vec::new();
    };
    let instances = f64::from(instances);
    let rest = month - by_size.at(1.0, instances);
    let bends = by_size.usd_per_month.iter().chain(&by_size.copy_usd_per_month);
    let bends = bends.map(|(times, _)| *times);
    let mut at: Vec<f64> = bends.filter(|times| *times > 0.0 && *times < largest).collect();
    at.extend([0.0, largest]);
    at.sort_by(f64::total_cmp);
    at.dedup();
    at.into_iter()
        .map(|times| (times, rest + by_size.at(times, instances)))
        .collect()
}
