//! Curves: the points of one configuration by rising rate, with their knee.
//!
//! In: summarised points. Out: groups of them, the highest valid rate, a rate common to all. Knows nothing of presentation.
//!
//! The knee is that of Satopää, Albrecht, Irwin and Raghavan (*Finding a "Kneedle" in a Haystack*, ICDCS workshops 2011): the point
//! farthest below the diagonal of the curve scaled to the unit square. Only valid points count: the latency of a saturated point
//! grows with the window's length and would bend every curve just before it.

use crate::record::{Driven, Factors, Point, Verdict};

/// Minimum number of points with a knee.
const MIN_POINTS: usize = 4;
/// Minimum depth of the knee below the diagonal, as a share of the curve's height.
const MIN_DEPTH: f64 = 0.15;

/// Points that differ only in the offered rate, by rising rate.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    /// Points by rising rate; at least one.
    pub points: Vec<&'a Point>,
}

impl<'a> Curve<'a> {
    /// Factors that the points share, with the rate of the first.
    pub fn factors(&self) -> &'a Factors {
        &self.points[0].factors
    }

    /// Returns the valid point with the highest rate up to which every point is valid. A valid point above an invalid
    /// one says nothing about the server's capacity.
    pub fn highest_valid(&self) -> Option<&'a Point> {
        self.points.iter().copied().take_while(|point| is_valid(point)).last()
    }

    /// Returns the valid point at a rate.
    pub fn valid_at(&self, offered_rps: f64) -> Option<&'a Point> {
        let mut points = self.points.iter().copied();
        points.find(|point| point.factors.offered_rps == offered_rps && is_valid(point))
    }

    /// Returns the rate at the knee of the p95; `None` with fewer than four valid points, or without a bend.
    pub fn knee(&self) -> Option<f64> {
        let valid = self.points.iter().filter(|point| is_valid(point));
        let p95 = valid.filter_map(|point| Some((point.factors.offered_rps, point.summary.as_ref()?.p95_us?.value)));
        knee(&p95.collect::<Vec<_>>())
    }
}

/// True if a point's verdict is `valid`.
pub fn is_valid(point: &Point) -> bool {
    let summary = point.summary.as_ref();
    summary.is_some_and(|summary| summary.verdict == Verdict::Valid)
}

/// Returns the curves of single requests in an open loop, in the order in which their first points appear. Only these
/// show a server's capacity: a closed loop offers no rate, and a journey is more than a request.
pub fn curves(points: &[Point]) -> Vec<Curve<'_>> {
    curves_of(points.iter().filter(|point| point.factors.driven.is_none()))
}

/// Returns the curves of all points with a rate, journeys and their steps included.
pub(crate) fn all_curves(points: &[Point]) -> Vec<Curve<'_>> {
    let is_closed = |point: &Point| point.factors.driven.as_ref().is_some_and(Driven::is_closed);
    curves_of(points.iter().filter(|point| !is_closed(point)))
}

fn curves_of<'a>(points: impl Iterator<Item = &'a Point>) -> Vec<Curve<'a>> {
    let curves = grouped(points.map(|point| (without_rate(&point.factors), point))).into_iter();
    let in_order = |(_, mut points): (Factors, Vec<&'a Point>)| {
        points.sort_by(|a, b| a.factors.offered_rps.total_cmp(&b.factors.offered_rps));
        Curve { points }
    };
    curves.map(in_order).collect()
}

/// Returns items by key, in the order in which the keys first appear.
pub fn grouped<K: PartialEq, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(existing, _)| *existing == key) {
            Some((_, items)) => items.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns distinct items, in the order in which they first appear.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let groups = grouped(items.into_iter().map(|item| (item, ())));
    groups.into_iter().map(|(item, _)| item).collect()
}

/// Returns the rate at which the most curves have a valid point; the highest of several. `None` without valid points.
pub fn common_rate(curves: &[&Curve<'_>]) -> Option<f64> {
    let rates = curves.iter().flat_map(|curve| &curve.points);
    let rates = rates.map(|point| point.factors.offered_rps);
    let valid_at = |rate: f64| curves.iter().filter(|curve| curve.valid_at(rate).is_some()).count();
    let counted = rates.map(|rate| (valid_at(rate), rate));
    let most = counted.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    (most.0 > 0).then_some(most.1)
}

/// True if two points belong to the same curve.
pub fn same_but_rate(a: &Factors, b: &Factors) -> bool {
    without_rate(a) == without_rate(b)
}

/// Factors that the points of a curve share.
pub(crate) fn without_rate(factors: &Factors) -> Factors {
    Factors {
        offered_rps: 0.0,
        ..factors.clone()
    }
}

/// Returns the knee of points with rising rates.
fn knee(points: &[(f64, f64)]) -> Option<f64> {
    let (&(first, low), &(last, high)) = (points.first()?, points.last()?);
    if points.len() < MIN_POINTS || high <= low || last <= first {
        return None;
    }
    let below = |&(rps, us): &(f64, f64)| (rps - first) / (last - first) - (us - low) / (high - low);
    let knee = points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(knee) > MIN_DEPTH).then_some(knee.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_queue_bends_where_it_fills_and_a_line_does_not() {
        // M/M/1 at capacity 1,000/s: p95 = 3 / (1,000 - rate) s, whose tangent has the slope of the chord at 900/s.
        let queue: Vec<(f64, f64)> = (1..100)
            .map(|step| (f64::from(step) * 10.0, 3e6 / (1_000.0 - f64::from(step) * 10.0)))
            .collect();
        assert_eq!(knee(&queue), Some(900.0));
        let line: Vec<(f64, f64)> = (1..20).map(|step| (f64::from(step), 5.0 + f64::from(step))).collect();
        assert_eq!(knee(&line), None);
        assert_eq!(knee(&queue[..3]), None);
        assert_eq!(knee(&[]), None);
    }

    proptest! {
        /// For any curve, a knee is one of its points, neither the first nor the last.
        #[test]
        fn a_knee_is_an_inner_point(latencies in prop::collection::vec(1.0_f64..1e6, 0..20)) {
            let points: Vec<(f64, f64)> = latencies.iter().enumerate().map(|(i, &us)| ((i + 1) as f64, us)).collect();
            if let Some(rps) = knee(&points) {
                prop_assert!(rps > 1.0 && rps < points.len() as f64);
            }
        }

        /// The knee of a convex curve that rises mostly in its last part lies before that part's end.
        #[test]
        fn a_hockey_stick_bends_at_its_corner(corner in 4_usize..15, slope in 2.0_f64..1e3) {
            let points: Vec<(f64, f64)> = (0..20)
                .map(|i| (f64::from(i) + 1.0, 100.0 + (f64::from(i) - corner as f64).max(0.0) * slope))
                .collect();
            prop_assert_eq!(knee(&points), Some(corner as f64 + 1.0));
        }
    }
}
