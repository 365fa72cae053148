//! Groups of points: curves over the rate, the highest valid rate, a rate common to all, and differences between two
//! points.
//!
//! In: summarised points. Out: groupings and comparisons of them. Knows nothing of presentation.

use crate::record::{Driven, Factors, Interval, Point, Repeat, Verdict, samples_needed};
use crate::statistics::percentile::BlockTable;
use crate::statistics::sections::{self, OUTSIDE, Pairing};
use crate::validity::disturbance::counted;

/// Points that differ only in the offered rate, by rising rate.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    /// Points by rising rate; at least one.
    pub points: Vec<&'a Point>,
}

impl<'a> Curve<'a> {
    /// Factors that the points share, with the rate of the first.
    #[must_use]
    pub fn factors(&self) -> &'a Factors {
        &self.points[0].factors
    }

    /// Returns the valid point with the highest rate up to which every point is valid. A valid point above an invalid
    /// one says nothing about the server's capacity.
    #[must_use]
    pub fn highest_valid(&self) -> Option<&'a Point> {
        self.points.iter().copied().take_while(|point| is_valid(point)).last()
    }

    /// Returns the lowest point that is not valid; `None` if all are valid.
    #[must_use]
    pub fn first_not_valid(&self) -> Option<&'a Point> {
        self.points.iter().copied().find(|point| !is_valid(point))
    }

    /// Returns the valid point at a rate.
    #[must_use]
    pub fn valid_at(&self, offered_rps: f64) -> Option<&'a Point> {
        self.points
            .iter()
            .copied()
            .find(|point| point.factors.offered_rps == offered_rps && is_valid(point))
    }
}

/// True if a point's verdict is `valid`.
#[must_use]
pub fn is_valid(point: &Point) -> bool {
    point
        .summary
        .as_ref()
        .is_some_and(|summary| summary.verdict == Verdict::Valid)
}

/// Returns the curves of single requests in an open loop, in the order in which their first points appear. Only these
/// show a server's capacity: a closed loop offers no rate, and a journey is more than a request.
#[must_use]
pub fn curves(points: &[Point]) -> Vec<Curve<'_>> {
    curves_of(points.iter().filter(|point| point.factors.driven.is_none()))
}

/// Returns the curves of all points with a rate, journeys and their steps included.
#[must_use]
pub fn all_curves(points: &[Point]) -> Vec<Curve<'_>> {
    let is_closed = |point: &Point| point.factors.driven.as_ref().is_some_and(Driven::is_closed);
    curves_of(points.iter().filter(|point| !is_closed(point)))
}

fn curves_of<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Curve<'a>> {
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for point in points {
        match curves
            .iter_mut()
            .find(|curve| same_but_rate(curve.factors(), &point.factors))
        {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { points: vec![point] }),
        }
    }
    for curve in &mut curves {
        curve
            .points
            .sort_by(|a, b| a.factors.offered_rps.total_cmp(&b.factors.offered_rps));
    }
    curves
}

/// Returns the rate at which the most curves have a valid point; the highest of several. `None` without valid points.
#[must_use]
pub fn common_rate(curves: &[&Curve<'_>]) -> Option<f64> {
    let rates = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.factors.offered_rps);
    rates
        .map(|rate| {
            (
                curves.iter().filter(|curve| curve.valid_at(rate).is_some()).count(),
                rate,
            )
        })
        .filter(|(count, _)| *count > 0)
        .max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
        .map(|(_, rate)| rate)
}

/// True if two points belong to the same curve.
#[must_use]
pub fn same_but_rate(a: &Factors, b: &Factors) -> bool {
    let but_rate = |factors: &Factors| Factors {
        offered_rps: 0.0,
        ..factors.clone()
    };
    but_rate(a) == but_rate(b)
}

/// Difference of a latency percentile of `b` from that of `a`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Ratio `b / a`.
    pub ratio: Interval,
    /// Difference `b - a`, in microseconds.
    pub delta_us: Interval,
    /// Logarithm of the ratio with its standard error, for intervals of another confidence.
    pub log_ratio: sections::Estimate,
}

impl Difference {
    /// True if the interval of the ratio excludes 1.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.ratio.lo > 1.0 || self.ratio.hi < 1.0
    }
}

/// Returns the difference of a latency percentile between two points, with its 95 % interval. [`Pairing::ByRepeat`]
/// uses only repeats that both points have, matched by index. `None` if either has too few samples for the percentile.
#[must_use]
pub fn difference(a: &Point, b: &Point, quantile: f64, pairing: Pairing) -> Option<Difference> {
    let (counted_a, counted_b) = (counted(&a.repeats), counted(&b.repeats));
    let table = |of: &[Repeat], others: &[Repeat]| {
        let paired = |index: u32| others.iter().any(|repeat| repeat.index == index);
        let mut repeats: Vec<_> = of.iter().collect();
        if pairing == Pairing::ByRepeat {
            repeats.retain(|repeat| paired(repeat.index));
        }
        repeats.sort_by_key(|repeat| repeat.index);
        BlockTable::new(repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()))
    };
    let (table_a, table_b) = (table(&counted_a, &counted_b), table(&counted_b, &counted_a));
    if table_a.samples().min(table_b.samples()) < samples_needed(quantile) {
        return None;
    }
    // A repeat without samples cannot be matched by position, so there is no difference then.
    let tables = (&table_a, &table_b);
    let log_ratio = sections::difference(tables, quantile, pairing, f64::ln)?;
    let delta = sections::difference(tables, quantile, pairing, |us| us)?;
    Some(Difference {
        ratio: log_ratio.interval(OUTSIDE).map(f64::exp),
        delta_us: delta.interval(OUTSIDE),
        log_ratio,
    })
}
