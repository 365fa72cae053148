//! Which percentile stands for the tail: the highest that all points to be shown have; and what to do where that is not the
//! p99.
//!
//! In: points. Out: a percentile, or a sentence. Knows nothing of markup.

use tierlab_analysis::curves::is_valid;
use tierlab_analysis::record::{Interval, Point, Run, Summary};
use tierlab_analysis::statistics::percentile::samples_wanted;
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
        .filter(|half| *half > WIDE)
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

/// How many valid points have no p99, why, and what would give them one; `None` where all have.
pub(crate) fn missing_p99(run: &Run) -> Option<String> {
    let valid: Vec<&Point> = run.points.iter().filter(|point| is_valid(point)).collect();
    let mut longer: Vec<f64> = valid
        .iter()
        .filter_map(|point| Some((point.repeats.len(), point.summary.as_ref()?)))
        .filter(|(_, summary)| summary.p99_us.is_none())
        .map(|(repeats, summary)| {
            let wanted = samples_wanted(0.99, repeats, summary.assumed_tail_autocorrelation_time);
            wanted as f64 / summary.samples.max(1) as f64
        })
        .collect();
    longer.sort_by(f64::total_cmp);
    let (least, most) = (longer.first()?, longer.last()?);
    // Rounded up: a little more than enough is enough.
    let [least, most] = [least, most].map(|times| (1.2 * times).ceil().max(2.0));
    let times = if least < most {
        format!("{least:.0} to {most:.0}")
    } else {
        format!("{most:.0}")
    };
    Some(format!(
        "No p99 at {} of {} valid points: it takes 368 independent samples, and with as many in flight as there are, or by \
         what neighbouring rates show, requests may depend on each other and count for fewer. It would take {times} times as \
         many: more `repeats` in the plan, fewer rates, a higher rate beside the highest, or the long lab (`make lab-full`)",
        longer.len(),
        valid.len()
    ))
}
