//! What a variant costs over the size of the feature table.
//!
//! In: a variant of an answer, and what of its prices goes by size. Out: its month at other sizes. Instances are those that were measured,
//! and copies and caches grow with the table: what it does to latency beyond that only a measurement can say.

use crate::record::{CostTerms, Ranked};

/// Dollars a month over the table's size, as multiples of the measured one from nothing up to `largest`; straight between two points.
/// Empty where the variant has no price, or its prices do not say what goes by size.
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
