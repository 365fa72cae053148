//! Figures of a ranked variant in words. In: a variant of a ranking. Out: text. Knows nothing of other variants.

use super::table::Cell;
use super::words;
use crate::units::{digits3, dollars, dollars_interval, latency, latency_interval, percent, rate};
use tierlab_analysis::record::{Grade, Interval, MeetsObjective, Ranked};

/// State of the objective in one word.
pub(crate) const fn meets(outcome: MeetsObjective) -> &'static str {
    match outcome {
        MeetsObjective::Met => "pass",
        MeetsObjective::NotMet => "fail",
        MeetsObjective::Unknown => "open",
    }
}

/// Verdict and first reason without its figures, which the cautions have: `(invalid: drifts)`.
fn without_figures(missing: &str) -> String {
    let reason = missing.split("; ").next().unwrap_or(missing);
    match reason.splitn(3, ": ").collect::<Vec<_>>()[..] {
        ["invalid", reason, ..] => format!("(invalid: {reason})"),
        [verdict, ..] => format!("({verdict})"),
        [] => String::new(),
    }
}

pub(super) fn p99(ranked: &Ranked) -> Cell {
    let Some(value) = ranked.p99_us else {
        return Cell {
            at: ranked.p99_missing.as_deref().map_or_else(String::new, without_figures),
            ..Cell::of(None)
        };
    };
    let text = match (ranked.p99_us_lo, ranked.p99_us_hi) {
        (Some(lo), Some(hi)) => latency_interval(Some(&Interval { value, lo, hi })),
        (lo, None) if ranked.p99_grade == Some(Grade::Rough) => latency_interval(Some(&Interval {
            value,
            lo: lo.unwrap_or(0.0),
            hi: f64::INFINITY,
        })),
        _ => latency(value),
    };
    Cell {
        at: ranked
            .at_rps
            .map_or_else(String::new, |rps| format!("at {}/s", rate(rps))),
        ..Cell::split(&text)
    }
}

/// `812/s [780–850]`, `≥ 1,000/s` if no measured rate breaks the objective, `none` if every rate does; `812/s [≥ 780]` if no rate is
/// known that certainly breaks it.
pub(super) fn highest(ranked: &Ranked) -> Option<String> {
    let Some(value) = ranked.highest_rps else {
        return (ranked.outcome == MeetsObjective::NotMet).then(|| "none".to_owned());
    };
    Some(match (ranked.highest_rps_lo, ranked.highest_rps_hi) {
        (None, None) => format!("{}/s", rate(value)),
        (Some(lo), None) if ranked.highest_is_bound => format!("≥ {}/s", rate(lo)),
        (Some(lo), None) => format!("{}/s [≥ {}]", rate(value), rate(lo)),
        (lo, Some(hi)) => format!("{}/s [{}–{}]", rate(value), rate(lo.unwrap_or(0.0)), rate(hi)),
    })
}

/// `≤ ` if fewer instances may carry the demand: the highest rate of one is only known to be at least what was measured.
fn at_most(ranked: &Ranked) -> &'static str {
    let is_open = ranked.instances.is_none() || ranked.instances_lo < ranked.instances;
    if ranked.highest_is_bound && is_open { "≤ " } else { "" }
}

/// `2`, or `≤ 2` if fewer may carry the demand.
pub(super) fn instances(ranked: &Ranked) -> Option<String> {
    ranked.instances.map(|count| format!("{}{count}", at_most(ranked)))
}

/// `$132 [128–136]`, or `≤ $265 [132–265]` if fewer instances may carry the demand.
pub(super) fn month(ranked: &Ranked) -> Option<String> {
    let value = ranked.usd_per_month?;
    let text = match (ranked.usd_per_month_lo, ranked.usd_per_month_hi) {
        (Some(lo), Some(hi)) => dollars_interval(Some(&Interval { value, lo, hi })),
        (Some(lo), None) => format!("{} [≥ {}]", dollars(value), digits3(lo)),
        _ => dollars(value),
    };
    Some(at_most(ranked).to_owned() + &text)
}

/// `$0.00168`, or `≤ $0.00118` where a higher rate of one instance would cost less.
pub(super) fn per_10k(ranked: &Ranked) -> Option<String> {
    ranked.usd_per_10k.map(|usd| at_most(ranked).to_owned() + &dollars(usd))
}

/// `94 % tier wait`.
pub(super) fn dominant(ranked: &Ranked) -> Option<String> {
    let part = words::part(ranked.dominant_part.as_ref()?);
    Some(match ranked.dominant_share {
        Some(share) => format!("{} {part}", percent(share)),
        None => part.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::without_figures;

    #[test]
    fn a_missing_p99_has_its_verdict_and_reason() {
        assert_eq!(
            without_figures("invalid: drifts: p50 is 0.535 ms up to repeat 16; sent late"),
            "(invalid: drifts)"
        );
        assert_eq!(without_figures("saturated: requests queue up"), "(saturated)");
        assert_eq!(without_figures("too few samples"), "(too few samples)");
    }
}
