//! Cost of a month.
//!
//! In: a variant's prices, tier usage per inference, a question, and the highest rate of one instance. Out: instances
//! and dollars. Knows nothing of how the highest rate was found.

use crate::record::{CostTerms, Minimise, Question};

/// Hours of a month: those of a year, divided by twelve.
pub const HOURS: f64 = 730.0;

/// Tier usage of one inference.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TierUse {
    /// Storage requests.
    pub requests: f64,
    /// Bytes read.
    pub bytes: f64,
}

/// Instances and cost of a month.
#[derive(Debug, Clone, PartialEq)]
pub struct Monthly {
    /// Instances that carry the demand.
    pub instances: u32,
    /// Dollars a month.
    pub usd_per_month: f64,
    /// Dollars for 10,000 inferences.
    pub usd_per_10k: f64,
    /// Parts of the month in dollars, by name; free parts are left out.
    pub parts: Vec<(String, f64)>,
}

/// Returns a month at the question's demand, with instances that carry up to `highest_rps` requests per second each
/// under the objective and are filled to the question's utilisation: `max(least, ceil(peak ÷ (utilisation × highest)))`
/// of them. Without a demand, it is a month of one instance at that rate. `highest_rps` is above 0.
pub fn monthly(terms: &CostTerms, use_per_inference: TierUse, question: &Question, highest_rps: f64) -> Monthly {
    let instances = instances(question, highest_rps);
    let average_rps = question.demand.map_or(highest_rps, |demand| demand.average_rps);
    let inferences = average_rps * f64::from(question.batch_size) * HOURS * 3_600.0;
    let hourly = terms.usd_per_instance_hour * HOURS + terms.usd_per_instance_month;
    let requests_usd = inferences * use_per_inference.requests * terms.usd_per_request;
    let bytes_usd = inferences * use_per_inference.bytes * terms.usd_per_byte;
    let mut parts = vec![("compute".to_owned(), instances * hourly)];
    parts.extend(terms.fixed_usd_per_month.iter().cloned());
    parts.push(("storage requests".to_owned(), requests_usd));
    parts.push(("bytes".to_owned(), bytes_usd));
    parts.retain(|(_, usd)| *usd > 0.0);
    // Starts from a positive zero, because an empty sum is -0.0.
    let usd_per_month = parts.iter().fold(0.0, |sum, (_, usd)| sum + usd);
    Monthly {
        // Saturates far above any number of instances.
        instances: instances as u32,
        usd_per_month,
        usd_per_10k: usd_per_month / inferences * 1e4,
        parts,
    }
}

/// Returns the maximum utilisation of an instance. It is 1 if a percentile is minimised, which is measured at the rate
/// of each instance.
pub fn max_fill(question: &Question) -> f64 {
    match question.minimise {
        Minimise::P99 => 1.0,
        _ => question.utilisation,
    }
}

/// Returns the instances needed if one carries `highest_rps`; 1 without a demand.
pub fn instances(question: &Question, highest_rps: f64) -> f64 {
    let demand = question.demand.as_ref();
    demand.map_or(1.0, |demand| instances_at(question, demand.peak_rps, highest_rps))
}

/// Returns the instances needed at a peak demand if one carries `highest_rps`.
pub(super) fn instances_at(question: &Question, peak_rps: f64, highest_rps: f64) -> f64 {
    // A rate that is exactly an instance's share needs no further instance.
    let needed = peak_rps / (max_fill(question) * highest_rps) - 1e-9;
    needed.ceil().max(f64::from(question.least_instances.max(1)))
}

/// Prices and usage of a variant, as far as known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Priced<'a> {
    /// Prices of the variant; `None` if missing.
    pub terms: Option<&'a CostTerms>,
    /// Tier usage per inference; `None` if the server did not report it.
    pub use_per_inference: Option<TierUse>,
}

/// Returns the score if one instance carries `highest_rps` requests per second. Infinite if it carries none, or if the
/// tier charges for an unknown quantity. An infinite rate gives the best case, with unknown quantities as zero.
pub fn score(question: &Question, priced: Priced<'_>, highest_rps: f64, best_case: bool) -> f64 {
    let highest_rps = highest_rps.min(question.highest_rps);
    if highest_rps <= 0.0 {
        return f64::INFINITY;
    }
    if question.minimise == Minimise::Instances {
        return match question.demand {
            Some(_) => instances(question, highest_rps),
            None => question.highest_rps / highest_rps,
        };
    }
    let Some(terms) = priced.terms else {
        return if best_case { 0.0 } else { f64::INFINITY };
    };
    let unknown = priced.use_per_inference.is_none() && (terms.usd_per_request > 0.0 || terms.usd_per_byte > 0.0);
    if unknown && !best_case {
        return f64::INFINITY;
    }
    let used = priced.use_per_inference.unwrap_or_default();
    let month = monthly(terms, used, question, highest_rps);
    match question.demand.is_some() && question.minimise == Minimise::UsdPerMonth {
        true => month.usd_per_month,
        false => month.usd_per_10k,
    }
}

/// True if prices decide the question.
pub fn is_priced(question: &Question) -> bool {
    matches!(question.minimise, Minimise::UsdPerMonth | Minimise::UsdPer10k)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Demand, Minimise, Mode};

    fn question(peak_rps: f64) -> Question {
        Question {
            objectives: Vec::new(),
            error_share: 0.001,
            demand: Some(Demand {
                average_rps: peak_rps / 2.0,
                peak_rps,
            }),
            minimise: Minimise::UsdPerMonth,
            mode: Mode::Realtime,
            batch_size: 2,
            budget_s: 600.0,
            confidence: 0.95,
            tie: 0.05,
            utilisation: 0.5,
            least_instances: 2,
            highest_rps: 1_000.0,
        }
    }

    fn terms() -> CostTerms {
        CostTerms {
            usd_per_instance_hour: 1.0,
            usd_per_instance_month: 70.0,
            fixed_usd_per_month: vec![("capacity".to_owned(), 30.0), ("free".to_owned(), 0.0)],
            usd_per_request: 1e-6,
            usd_per_byte: 1e-9,
            ..CostTerms::default()
        }
    }

    const USE: TierUse = TierUse {
        requests: 1.0,
        bytes: 1_000.0,
    };

    #[test]
    fn a_month_is_the_sum_of_its_parts() {
        let month = monthly(&terms(), USE, &question(1_000.0), 500.0);
        // 1,000 at half of 500 each: four; 500/s on average, two inferences each.
        assert_eq!(month.instances, 4);
        let inferences = 500.0 * 2.0 * 730.0 * 3_600.0;
        let expected = [
            ("compute", 3_200.0),
            ("capacity", 30.0),
            ("storage requests", inferences * 1e-6),
            ("bytes", inferences * 1e-6),
        ];
        assert_eq!(month.parts.len(), expected.len());
        for ((name, usd), (expected_name, expected)) in month.parts.iter().zip(expected) {
            assert!(name == expected_name && (usd - expected).abs() < 1e-6, "{name} {usd}");
        }
        let sum: f64 = expected.iter().map(|(_, usd)| usd).sum();
        assert!((month.usd_per_month - sum).abs() < 1e-6);
        assert!((month.usd_per_10k - sum / inferences * 1e4).abs() < 1e-9);
    }

    #[test]
    fn instances_change_where_the_share_is_exceeded() {
        let at = |highest| monthly(&terms(), USE, &question(1_000.0), highest).instances;
        assert_eq!((at(500.0), at(499.9), at(666.7), at(666.6)), (4, 5, 3, 4));
        // At least two, however fast one is.
        assert_eq!(at(1e9), 2);
    }

    #[test]
    fn without_a_demand_one_instance_is_full() {
        let question = Question {
            demand: None,
            ..question(1.0)
        };
        let month = monthly(
            &CostTerms {
                usd_per_instance_hour: 3.6,
                ..CostTerms::default()
            },
            USE,
            &question,
            100.0,
        );
        assert_eq!(month.instances, 1);
        // 3.6 dollars an hour are a thousandth of a dollar a second, in which it makes 200 inferences.
        assert!((month.usd_per_10k - 0.05).abs() < 1e-12, "{}", month.usd_per_10k);
    }
}
