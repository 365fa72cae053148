//! What a variant costs over the size of the feature table.
//!
//! In: a variant of an answer, and what of its prices goes by size. Out: its month at other sizes. Instances are those that were measured:
//! what a larger table does to latency only a measurement can say.

use crate::record::{CostTerms, Ranked};

/// Dollars a month over the table's size, as multiples of the measured one from nothing up to `largest`; straight between two points.
/// Empty where the variant has no price, or its prices do not say what goes by size.
#[must_use]
pub fn over_size(ranked: &Ranked, terms: &CostTerms, largest: f64) -> Vec<(f64, f64)> {
    let (Some(by_size), Some(month), Some(instances)) = (&terms.by_size, ranked.usd_per_month, ranked.instances) else {
        return Vec::new();
    };
    let times_paid = if by_size.per_instance {
        f64::from(instances)
    } else {
        1.0
    };
    let rest = month - times_paid * by_size.at(1.0);
    let inner = by_size.usd_per_month.iter().map(|(times, _)| *times);
    let mut at: Vec<f64> = inner.filter(|times| *times > 0.0 && *times < largest).collect();
    at.insert(0, 0.0);
    at.push(largest);
    at.into_iter()
        .map(|times| (times, rest + times_paid * by_size.at(times)))
        .collect()
}
