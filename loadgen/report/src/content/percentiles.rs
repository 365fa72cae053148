//! Which percentile stands for the tail: the highest that all points to be shown have; and what to do where that is not the
//! p99.
//!
//! In: points. Out: a percentile, or a sentence. Knows nothing of markup.

use crate::units::thousands;
use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Grade, Interval, Percentile, Point, Run, Summary};
use tierlab_analysis::statistics::sections::spread_dominates;

/// The percentile that stands for the tail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TailPercentile {
    /// `p99`.
    pub(crate) name: &'static str,
    /// As a share.
    pub(crate) quantile: f64,
    /// Where a summary has it.
    pub(crate) of: fn(&Summary) -> Option<Interval>,
}

impl TailPercentile {
    /// Of a point.
    pub(crate) fn at(self, point: &Point) -> Option<Interval> {
        (self.of)(point.summary.as_ref()?)
    }
}

const PERCENTILES: [TailPercentile; 3] = [
    TailPercentile {
        name: "p99",
        quantile: 0.99,
        of: |summary| summary.p99_us,
    },
    TailPercentile {
        name: "p95",
        quantile: 0.95,
        of: |summary| summary.p95_us,
    },
    TailPercentile {
        name: "p50",
        quantile: 0.50,
        of: |summary| summary.p50_us,
    },
];

/// The highest percentile that every point has; the median where none does.
pub(crate) fn highest(points: &[Option<&Point>]) -> TailPercentile {
    let all_have = |percentile: &&TailPercentile| {
        points
            .iter()
            .flatten()
            .filter_map(|point| point.summary.as_ref())
            .all(|summary| (percentile.of)(summary).is_some())
    };
    PERCENTILES.iter().find(all_have).copied().unwrap_or(PERCENTILES[2])
}

/// Half of an interval beyond which a median is called wide, as a share.
const WIDE: f64 = 0.1;

/// At how many valid points the median's interval is wide because repeats differ, and what would make it narrower; `None`
/// where there are none.
pub(crate) fn wide(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let widths: Vec<f64> = valid
        .iter()
        .filter(|point| spread_dominates(point))
        .filter_map(|point| point.summary.as_ref()?.p50_us)
        .map(|us| (us.hi / us.lo.max(1e-9)).sqrt() - 1.0)
        .filter(|half| *half > WIDE && half.is_finite())
        .collect();
    let widest = widths.iter().copied().fold(0.0, f64::max);
    (!widths.is_empty()).then(|| {
        format!(
            "The p50 is known to no more than ±{:.0} % at {} of {} valid points because repeats differ from each other: more \
             `repeats` make it better known, longer ones do not",
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
    let without: Vec<u64> = valid
        .iter()
        .filter_map(|point| point.summary.as_ref())
        .filter(|summary| summary.p99_us.is_none())
        .map(|summary| needed.div_ceil(summary.samples.max(1)).max(2))
        .collect();
    let (least, most) = (without.iter().min()?, without.iter().max()?);
    let times = if least < most {
        format!("{least} to {most}")
    } else {
        most.to_string()
    };
    Some(format!(
        "No p99 at {} of {} valid points: it takes {} requests over all repeats, {times} times as many as there were. Raise \
         `repeats` or `step_s` in the plan, or run the long lab (`make lab-full`)",
        without.len(),
        valid.len(),
        thousands(needed)
    ))
}

/// Number of rough p99 of valid points, with the advice that makes them solid; `None` if there are none.
pub(crate) fn rough_p99(run: &Run) -> Option<String> {
    let graded = run.points.iter().filter(|point| is_valid(point));
    let grades: Vec<Grade> = graded
        .filter_map(|point| point.summary.as_ref()?.grades.p99_grade)
        .collect();
    let rough = grades.iter().filter(|grade| **grade == Grade::Rough).count();
    (rough > 0).then(|| {
        format!(
            "{rough} of {} p99 are rough (`~`): the value stands, but no upper bound of it is known, because requests queue or \
             fewer than 15 in 10 repeats lie beyond it. More or longer repeats make it solid",
            grades.len()
        )
    })
}
