//! Knee of a curve of latency over rate: the rate at which it turns upwards.
//!
//! In: points of a curve. Out: the rate of its knee, if it has one. Knows nothing of objectives.
//!
//! The definition is that of Satopää, Albrecht, Irwin and Raghavan (*Finding a "Kneedle" in a Haystack*, ICDCS
//! workshops 2011): the point farthest below the diagonal of the curve scaled to the unit square. Only valid points
//! count: the latency of a saturated point grows with the window's length and would bend every curve just before it.

use super::curve::{Curve, is_valid};

/// Minimum number of points.
const FEWEST: usize = 4;
/// Minimum depth of the knee below the diagonal, as a share of the curve's height.
const BEND: f64 = 0.15;

/// Returns the rate at the knee of a curve's p95; `None` with fewer than four valid points, or without a bend.
#[must_use]
pub fn knee(curve: &Curve<'_>) -> Option<f64> {
    let points: Vec<(f64, f64)> = curve
        .points
        .iter()
        .filter(|point| is_valid(point))
        .filter_map(|point| Some((point.factors.offered_rps, point.summary.as_ref()?.p95_us?.value)))
        .collect();
    of(&points)
}

/// Returns the knee of points with rising rates.
fn of(points: &[(f64, f64)]) -> Option<f64> {
    let (&(first, low), &(last, high)) = (points.first()?, points.last()?);
    if points.len() < FEWEST || high <= low || last <= first {
        return None;
    }
    let below = |&(rps, us): &(f64, f64)| (rps - first) / (last - first) - (us - low) / (high - low);
    let knee = points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(knee) > BEND).then_some(knee.0)
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
        assert_eq!(of(&queue), Some(900.0));
        let line: Vec<(f64, f64)> = (1..20).map(|step| (f64::from(step), 5.0 + f64::from(step))).collect();
        assert_eq!(of(&line), None);
        assert_eq!(of(&queue[..3]), None);
        assert_eq!(of(&[]), None);
    }

    proptest! {
        /// For any curve, a knee is one of its points, neither the first nor the last.
        #[test]
        fn a_knee_is_an_inner_point(latencies in prop::collection::vec(1.0_f64..1e6, 0..20)) {
            let points: Vec<(f64, f64)> = latencies.iter().enumerate().map(|(i, &us)| ((i + 1) as f64, us)).collect();
            if let Some(knee) = of(&points) {
                prop_assert!(knee > 1.0 && knee < points.len() as f64);
            }
        }

        /// The knee of a convex curve that rises mostly in its last part lies before that part's end.
        #[test]
        fn a_hockey_stick_bends_at_its_corner(corner in 4_usize..15, slope in 2.0_f64..1e3) {
            let points: Vec<(f64, f64)> = (0..20)
                .map(|i| (f64::from(i) + 1.0, 100.0 + (f64::from(i) - corner as f64).max(0.0) * slope))
                .collect();
            prop_assert_eq!(of(&points), Some(corner as f64 + 1.0));
        }
    }
}
