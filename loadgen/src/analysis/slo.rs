//! Which points meet a service-level objective, and how far a curve goes under it.
//!
//! In: an objective, and summarised points of a curve. Out: what each point says of the objective, and the boundary that
//! they say together. Knows nothing of how rates are chosen; [`crate::search`] does.

use super::curves::{Curve, is_valid};
use super::percentile::{BlockTable, samples_needed};
use crate::record::{Interval, NotMet, Percentile, Point, Slo, SloFinding, SloOutcome, Summary, Verdict};

/// What one measured rate says of an objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// Requests per second.
    pub rps: f64,
    /// Repeats that it rests on; at least one.
    pub repeats: u32,
    /// Whether the rate meets the objective: valid, failures within their share, the percentile as estimated below the
    /// limit.
    pub met: bool,
    /// Whether that is certain: the whole 95 % interval lies on that side of the limit, or the point is not valid.
    pub certain: bool,
}

/// What a point says of an objective; `None` where it has too few samples for the percentile.
#[must_use]
pub fn evidence(point: &Point, slo: &Slo) -> Option<Evidence> {
    let summary = point.summary.as_ref()?;
    let estimate_us = estimate_us(point, slo)?;
    let interval = interval(summary, slo.objective.percentile);
    let limit_us = slo.objective.limit_us;
    let fit = is_valid(point) && summary.error_share <= slo.error_share;
    let met = fit && estimate_us < limit_us;
    let certain = match interval {
        Some(interval) if met => interval.hi < limit_us,
        Some(interval) => !fit || interval.lo >= limit_us,
        None => !fit,
    };
    Some(Evidence {
        rps: point.factors.offered_rps,
        repeats: point.repeats.len() as u32,
        met,
        certain,
    })
}

/// The percentile as it is, whether or not there is an interval to it: close to saturation requests depend on each other
/// so much that there is none, and still a rate must be judged.
fn estimate_us(point: &Point, slo: &Slo) -> Option<f64> {
    let quantile = slo.objective.percentile.quantile();
    let table = BlockTable::new(point.repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()));
    (table.samples() >= samples_needed(quantile))
        .then(|| table.pooled_quantile(quantile))
        .flatten()
        .map(|us| us as f64)
}

const fn interval(summary: &Summary, percentile: Percentile) -> Option<Interval> {
    match percentile {
        Percentile::P50 => summary.p50_us,
        Percentile::P95 => summary.p95_us,
        Percentile::P99 => summary.p99_us,
    }
}

/// How many of the lowest rates lie on the side that meets the objective: the cut that contradicts the fewest repeats, of
/// several the lowest. One slow minute at a low rate does not undo what many repeats at higher ones showed, and one lucky
/// repeat at a high rate shows nothing against many.
///
/// The rate below the cut always meets the objective, and the one above does not.
#[must_use]
pub fn cut(evidence: &[Evidence]) -> usize {
    let above: u64 = evidence
        .iter()
        .filter(|one| one.met)
        .map(|one| u64::from(one.repeats))
        .sum();
    let (mut best, mut fewest, mut contradicted) = (0, above, above);
    for (index, one) in evidence.iter().enumerate() {
        if one.met {
            contradicted -= u64::from(one.repeats);
        } else {
            contradicted += u64::from(one.repeats);
        }
        if contradicted < fewest {
            (best, fewest) = (index + 1, contradicted);
        }
    }
    best
}

/// How far a curve goes; `None` where no point can be judged.
#[must_use]
pub fn finding(curve: &Curve<'_>, slo: &Slo) -> Option<SloFinding> {
    let judged: Vec<(&Point, Evidence)> = curve
        .points
        .iter()
        .filter_map(|point| Some((*point, evidence(point, slo)?)))
        .collect();
    let all: Vec<Evidence> = judged.iter().map(|(_, evidence)| *evidence).collect();
    if all.is_empty() {
        return None;
    }
    let cut = cut(&all);
    let (below, above) = all.split_at(cut);
    let highest_rps = below.last().map(|best| Interval {
        value: best.rps,
        lo: below
            .iter()
            .rev()
            .find(|one| one.met && one.certain)
            .map_or(0.0, |one| one.rps),
        hi: above
            .iter()
            .find(|one| !one.met && one.certain)
            .map_or(slo.highest_rps.max(best.rps), |one| one.rps),
    });
    Some(SloFinding {
        outcome: outcome(below, above, slo),
        highest_rps,
        not_met: judged.get(cut).map(|(point, _)| NotMet {
            rps: point.factors.offered_rps,
            why: why_not(point, slo),
        }),
        contradicting_rps: below
            .iter()
            .filter(|one| !one.met)
            .chain(above.iter().filter(|one| one.met))
            .map(|one| one.rps)
            .collect(),
    })
}

fn outcome(below: &[Evidence], above: &[Evidence], slo: &Slo) -> SloOutcome {
    match (below.last(), above.first()) {
        (None, _) => SloOutcome::NeverMet,
        (Some(best), None) if best.rps >= slo.highest_rps => SloOutcome::MetAtHighest,
        (Some(_), None) => SloOutcome::MetAsFarAsMeasured,
        // Rates are rounded to three digits, which moves each by at most half a percent.
        (Some(best), Some(next)) if next.rps / best.rps <= 1.011 * (1.0 + slo.resolution) => SloOutcome::Found,
        (Some(_), Some(_)) => SloOutcome::Coarse,
    }
}

/// Why a point does not meet the objective, in words.
#[must_use]
pub fn why_not(point: &Point, slo: &Slo) -> String {
    let Some(summary) = &point.summary else {
        return "not summarised".into();
    };
    if summary.verdict != Verdict::Valid {
        return summary.verdict.to_string();
    }
    if summary.error_share > slo.error_share {
        return format!(
            "{:.2} % of the requests failed (limit {:.2} %)",
            100.0 * summary.error_share,
            100.0 * slo.error_share
        );
    }
    let us = estimate_us(point, slo).unwrap_or_default();
    format!("{} {}", slo.objective.percentile, milliseconds(us))
}

fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(rps: f64, repeats: u32, met: bool) -> Evidence {
        Evidence {
            rps,
            repeats,
            met,
            certain: true,
        }
    }

    #[test]
    fn the_cut_contradicts_the_fewest_repeats() {
        assert_eq!(cut(&[]), 0);
        assert_eq!(cut(&[said(1.0, 1, false)]), 0);
        assert_eq!(cut(&[said(1.0, 1, true), said(2.0, 1, false)]), 1);
        // A slow minute at the lowest rate against four rates of five repeats.
        let mut hiccup = vec![said(1.0, 5, false)];
        hiccup.extend((2..6).map(|rps| said(f64::from(rps), 5, true)));
        assert_eq!(cut(&hiccup), 5);
        // A lucky repeat above a rate that five repeats refused.
        assert_eq!(cut(&[said(1.0, 5, true), said(2.0, 5, false), said(3.0, 1, true)]), 1);
        // One against one: nothing is promised.
        assert_eq!(cut(&[said(1.0, 1, false), said(2.0, 1, true)]), 0);
    }

    proptest! {
        #[test]
        fn what_lies_at_the_cut_says_so(told in prop::collection::vec((1_u32..6, any::<bool>()), 0..20)) {
            let evidence: Vec<Evidence> =
                told.iter().enumerate().map(|(i, &(repeats, met))| said(i as f64, repeats, met)).collect();
            let cut = cut(&evidence);
            prop_assert!(cut == 0 || evidence[cut - 1].met);
            prop_assert!(cut == evidence.len() || !evidence[cut].met);
            let against = |cut: usize| -> u32 {
                let wrong = |(index, one): (usize, &Evidence)| (one.met != (index < cut)).then_some(one.repeats);
                evidence.iter().enumerate().filter_map(wrong).sum()
            };
            prop_assert!((0..=evidence.len()).all(|other| against(other) >= against(cut)));
        }

        /// Where every rate up to a boundary meets the objective and none above does, the cut is the boundary.
        #[test]
        fn clean_evidence_is_cut_where_it_changes(met in 0_usize..10, not_met in 0_usize..10, repeats in 1_u32..6) {
            let evidence: Vec<Evidence> = (0..met + not_met).map(|i| said(i as f64, repeats, i < met)).collect();
            prop_assert_eq!(cut(&evidence), met);
        }
    }
}
