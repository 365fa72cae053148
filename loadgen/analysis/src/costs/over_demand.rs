//! Cost of a variant over the demand.
//!
//! In: a variant of an answer, with the parts of its month at the question's demand. Out: its month at other demands,
//! with a step at each further instance. Knows nothing of how the highest rate was found.

use super::monthly::{instances_at, max_fill};
use crate::record::{Question, Ranked};

/// Maximum steps between two demands; with more, a curve of instances looks like a line.
const STEPS: f64 = 100.0;

/// Returns dollars a month over the peak demand in requests per second: at each given demand, rising, and between them
/// at both sides of every step. The average stays the same share of the peak. Empty if the question has no demand or
/// the variant no price.
pub fn over_demand(question: &Question, ranked: &Ranked, at_rps: &[f64]) -> Vec<(f64, f64)> {
    in_steps(question, ranked, at_rps, STEPS)
}

/// Implements [`over_demand`] with a given maximum number of steps.
pub(super) fn in_steps(question: &Question, ranked: &Ranked, at_rps: &[f64], steps: f64) -> Vec<(f64, f64)> {
    let (Some(demand), Some(highest), Some(now)) = (question.demand, ranked.highest_rps, ranked.instances) else {
        return Vec::new();
    };
    let highest = highest.min(question.highest_rps);
    let capacity_rps = max_fill(question) * highest;
    if ranked.usd_parts.is_empty() || now == 0 || capacity_rps <= 0.0 || demand.peak_rps <= 0.0 {
        return Vec::new();
    }
    let usd = |peak_rps: f64, count: f64| -> f64 {
        let part = |(name, usd): &(String, f64)| match name.as_str() {
            "compute" => usd / f64::from(now) * count,
            "storage requests" | "bytes" => usd * peak_rps / demand.peak_rps,
            _ => *usd,
        };
        ranked.usd_parts.iter().map(part).sum()
    };
    let needed = |peak_rps: f64| instances_at(question, peak_rps, highest);
    let Some(&first) = at_rps.first() else {
        return Vec::new();
    };
    let mut count = needed(first);
    let mut curve = vec![(first, usd(first, count))];
    for &to_rps in &at_rps[1..] {
        let last = needed(to_rps);
        let each = ((last - count) / steps).ceil().max(1.0);
        while count < last {
            let (step, more) = (count * capacity_rps, (count + each).min(last));
            curve.extend([(step, usd(step, count)), (step, usd(step, more))]);
            count = more;
        }
        curve.push((to_rps, usd(to_rps, last)));
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::super::monthly::{TierUse, monthly};
    use super::*;
    use crate::record::{CostTerms, Demand, MeetsObjective, Minimise, Mode};

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

    fn month(peak_rps: f64) -> super::super::monthly::Monthly {
        let terms = CostTerms {
            usd_per_instance_hour: 1.0,
            usd_per_instance_month: 70.0,
            fixed_usd_per_month: vec![("capacity".to_owned(), 30.0)],
            usd_per_request: 1e-6,
            usd_per_byte: 1e-9,
            ..CostTerms::default()
        };
        let used = TierUse {
            requests: 1.0,
            bytes: 1_000.0,
        };
        monthly(&terms, used, &question(peak_rps), 500.0)
    }

    fn ranked() -> Ranked {
        let month = month(1_000.0);
        Ranked {
            variant: "v".to_owned(),
            tier: "t".to_owned(),
            outcome: MeetsObjective::Met,
            at_rps: None,
            p99_us: None,
            p99_us_lo: None,
            p99_us_hi: None,
            p99_grade: None,
            p99_missing: None,
            highest_rps: Some(500.0),
            highest_rps_lo: None,
            highest_rps_hi: None,
            highest_is_bound: false,
            instances: Some(month.instances),
            instances_lo: None,
            usd_per_month: Some(month.usd_per_month),
            usd_per_month_lo: None,
            usd_per_month_hi: None,
            usd_per_10k: None,
            usd_parts: month.parts,
            dominant_part: None,
            dominant_share: None,
            why: String::new(),
            steps: 0,
        }
    }

    #[test]
    fn every_point_is_the_month_at_its_demand() {
        let curve = over_demand(&question(1_000.0), &ranked(), &[100.0, 3_100.0]);
        // Two instances carry 500/s, and each further 250/s need one more, up to 3,100/s: 2 to 13, and both ends.
        assert_eq!(curve.len(), 2 + 2 * 11);
        assert!(
            curve
                .windows(2)
                .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1)
        );
        for (index, (rps, usd)) in curve.iter().enumerate() {
            // The second end of a step is just above it.
            let above = index > 0 && index % 2 == 0 && index < curve.len() - 1;
            let expected = month(if above { rps * (1.0 + 1e-7) } else { *rps }).usd_per_month;
            assert!((usd / expected - 1.0).abs() < 1e-6, "{rps}/s: {usd}, not {expected}");
        }
    }

    #[test]
    fn without_a_demand_or_a_price_there_is_none() {
        let asked = question(1_000.0);
        let none = Question {
            demand: None,
            ..asked.clone()
        };
        let free = Ranked {
            usd_parts: Vec::new(),
            ..ranked()
        };
        assert!(over_demand(&none, &ranked(), &[1.0, 2.0]).is_empty());
        assert!(over_demand(&asked, &free, &[1.0, 2.0]).is_empty());
        // Demands without a step between them.
        assert_eq!(over_demand(&asked, &ranked(), &[100.0, 200.0, 300.0]).len(), 3);
        // The number of points is bounded for many instances.
        assert!(over_demand(&asked, &ranked(), &[1.0, 1e9]).len() < 1_000);
    }
}
