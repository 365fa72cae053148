//! Percentile that represents the tail: the highest that all shown points have; and the advice if it is not the p99.
//!
//! In: points. Out: a percentile, or a sentence. Knows nothing of markup.

use crate::units::thousands;
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Grade, Interval, Percentile, Point, Run};
use tierlab_analysis::statistics::sections::spread_dominates;

/// Percentiles of a tail, the highest first.
pub(crate) const TAILS: [Percentile; 3] = [Percentile::P99, Percentile::P95, Percentile::P50];

/// Percentile of a point.
pub(crate) fn at(point: &Point, percentile: Percentile) -> Option<Interval> {
    point.summary.as_ref()?.percentile(percentile)
}

/// Returns the highest percentile that every point has, or else the median.
pub(crate) fn highest(points: &[Option<&Point>]) -> Percentile {
    let summaries = || points.iter().flatten().filter_map(|point| point.summary.as_ref());
    let all_have = |percentile: &Percentile| summaries().all(|summary| summary.percentile(*percentile).is_some());
    TAILS.into_iter().find(all_have).unwrap_or(Percentile::P50)
}

/// Half of an interval beyond which a median is called wide, as a share.
const WIDE: f64 = 0.1;

/// Number of valid points whose median has a wide interval because repeats differ, with the remedy; `None` if there are none.
pub(crate) fn wide(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let spread = valid.iter().filter(|point| spread_dominates(point));
    let medians = spread.filter_map(|point| point.summary.as_ref()?.p50_us);
    let halves = medians.map(|us| (us.hi / us.lo.max(1e-9)).sqrt() - 1.0);
    let widths: Vec<f64> = halves.filter(|half| *half > WIDE && half.is_finite()).collect();
    let widest = widths.iter().copied().fold(0.0, f64::max);
    (!widths.is_empty()).then(|| {
        format!(
            "The p50 is known only within ±{:.0} % at {} of {} valid points because repeats differ: raise `repeats`; longer ones do not help",
            100.0 * widest,
            widths.len(),
            valid.len()
        )
    })
}

/// Number of valid points without a p99, and the requests that they lack; `None` if all have one.
pub(crate) fn missing_p99(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let needed = Percentile::P99.samples_needed();
    let summaries = valid.iter().filter_map(|point| point.summary.as_ref());
    let without = summaries.filter(|summary| summary.p99_us.is_none());
    let without: Vec<u64> = without
        .map(|summary| needed.div_ceil(summary.samples.max(1)).max(2))
        .collect();
    let (least, most) = (without.iter().min()?, without.iter().max()?);
    let times = match least < most {
        true => format!("{least} to {most}"),
        false => most.to_string(),
    };
    Some(format!(
        "No p99 at {} of {} valid points. It needs {} requests over all repeats, {times} times as many as there were. Raise \
         `repeats` or `step_s` in the plan, or run the long lab (`make lab-full`)",
        without.len(),
        valid.len(),
        thousands(needed)
    ))
}

/// Number of rough p99 of valid points, with the advice that makes them solid; `None` if there are none.
pub(crate) fn rough_p99(run: &Run) -> Option<String> {
    let valid = run.points.iter().filter(|point| is_valid(point));
    let grades = valid.filter_map(|point| point.summary.as_ref()?.grades.p99_grade);
    let grades: Vec<Grade> = grades.collect();
    let rough = grades.iter().filter(|grade| **grade == Grade::Rough).count();
    (rough > 0).then(|| {
        format!(
            "{rough} of {} p99 are rough (~). Their upper bound is unknown, because requests queue or fewer than 15 in 10 repeats lie \
             beyond them. More or longer repeats make them solid",
            grades.len()
        )
    })
}
