//! Costs in words: which of two tiers is cheaper, and from which hit ratio on; who of a mix pays for what.
//!
//! In: a run and the curves of a group. Out: plain text for table, page and Markdown. Knows nothing of markup.

use super::best::best;
use super::words;
use crate::units::{dollars, percent, rate};
use tierlab_analysis::costs::economics::{BreakEven, Line, break_even, lines};
use tierlab_analysis::curves::{Curve, common_rate};
use tierlab_analysis::record::{HourBy, Run};

/// What the prices of several instances mean.
pub(crate) const SIDE_BY_SIDE: &str = "Every instance is taken to do what the measured machine did: the columns say what the \
                                       hour costs, not what the instance could do.";

/// Who pays for what, where the curves of a group are parts of a mix, each at its highest rate; nothing where they were
/// measured alone.
pub(crate) fn mix_shares(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let mut said = Vec::new();
    let mut hour_by = None;
    for curve in curves {
        let Some(point) = best(run, curve).map(|best| best.point) else {
            continue;
        };
        let Some(share) = point.summary.as_ref().and_then(|summary| summary.mix_share) else {
            continue;
        };
        hour_by = hour_by.max(Some(share.hour_by));
        said.push(format!(
            "{} {} pays {} of the hour and {} of the tier for {} of the inferences at {} rps",
            words::tier(run, &curve.factors().tier),
            words::cache(curve.factors()),
            percent(share.hour),
            percent(share.tier),
            percent(share.inferences),
            rate(point.factors.offered_rps)
        ));
    }
    let Some(hour_by) = hour_by else { return said };
    let by = match hour_by {
        HourBy::InferenceTime => "the time that their requests spent in inference",
        HourBy::Inferences => "their inferences, since replies did not tell the time in inference",
    };
    let rule = format!(
        "The parts of a mix share what is paid: the hour (instance, cache memory, tier capacity) by {by}, storage requests \
         and bytes by the tier requests that their replies tell; together they pay the whole"
    );
    said.insert(0, rule);
    said
}

/// The lines of a group at the rate that its curves have in common; nothing without prices or such a rate.
pub(crate) fn group_lines(run: &Run, curves: &[Curve<'_>]) -> Option<(f64, Vec<Line>)> {
    let pricing = run.pricing.as_ref()?;
    let common = common_rate(&curves.iter().collect::<Vec<_>>())?;
    let lines = lines(curves, common, pricing);
    (lines.len() > 1).then_some((common, lines))
}

/// A sentence for every two tiers of a group.
pub(crate) fn break_evens(run: &Run, curves: &[Curve<'_>]) -> Vec<String> {
    let Some((common, lines)) = group_lines(run, curves) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    for (index, a) in lines.iter().enumerate() {
        for b in &lines[index + 1..] {
            said.push(sentence(run, (a, b), common));
        }
    }
    said
}

/// A hit ratio: what lies near all hits has a digit more, since the rest is what is paid for.
fn hits(ratio: f64) -> String {
    if ratio > 0.95 && ratio < 1.0 {
        format!("{:.1} %", 100.0 * ratio)
    } else {
        percent(ratio)
    }
}

/// In which cache states misses were counted.
fn counted((a, b): (&Line, &Line)) -> String {
    let mut states: Vec<f64> = a.states.iter().chain(&b.states).map(|state| state.hit_ratio).collect();
    states.sort_by(f64::total_cmp);
    let mut states: Vec<String> = states.into_iter().map(hits).collect();
    states.dedup();
    format!(
        " (what a miss costs was counted at hit ratios of {})",
        states.join(", ")
    )
}

fn sentence(run: &Run, (a, b): (&Line, &Line), rps: f64) -> String {
    let who = |line: &Line| format!("{} on {}", words::tier(run, &line.tier), line.instance);
    let span = |line: &Line| format!("{} to {}", dollars(line.at(0.0)), dollars(line.at(1.0)));
    let (first, second) = (who(a), who(b));
    let what = match break_even(a, b) {
        BreakEven::At { hit_ratio, first_below } => {
            let (below, above) = if first_below {
                (&first, &second)
            } else {
                (&second, &first)
            };
            let interval = if hit_ratio.hi > hit_ratio.lo {
                format!(" [{}–{}]", hits(hit_ratio.lo), hits(hit_ratio.hi))
            } else {
                String::new()
            };
            format!(
                "cost the same at a hit ratio of {}{interval}; below it {below} is cheaper, above it {above}",
                hits(hit_ratio.value)
            ) + &counted((a, b))
        }
        BreakEven::First => format!("never cross: {first} is the cheaper at every hit ratio"),
        BreakEven::Second => format!("never cross: {second} is the cheaper at every hit ratio"),
        BreakEven::Same => "cost the same at every hit ratio".to_owned(),
    };
    format!(
        "At {} rps {first} ({} per 10k from no hits to nothing but hits) and {second} ({}) {what}",
        rate(rps),
        span(a),
        span(b)
    )
}
