//! How much the samples of a point are taken to depend on each other when it is decided which percentiles are printed.
//!
//! In: the points of a run with what they measured. Out: an autocorrelation time for each. Pure.
//!
//! Never the time that a point's own samples show: a run that by chance met no burst shows a short one and a small p99 as
//! well, and printing by it prints the percentiles that are too small. It comes from what is not the dependence of its own
//! samples:
//! - the neighbouring rates of the same curve, if there is a higher one that was held: dependence grows with the rate, and
//!   other requests showed it. The larger time of the next lower and the next higher rate counts, each for as many requests
//!   as this rate has in that time, and at least [`LEAST_TIME`];
//! - else a queue, and the next lower rate if that shows more. Where one server with exponential service has as many
//!   requests in flight as the point had on average, requests depend on each other for some `2 (1 + in flight)²` of them:
//!   the relaxation time of that queue (M/M/1) at a load of `ρ = in flight / (1 + in flight)` is `1 / (1 - √ρ)²` services,
//!   less than `4 (1 + in flight)²` (J. Abate and W. Whitt, *Transient behavior of the M/M/1 queue*, Queueing Systems 2,
//!   1987), and percentiles settle in about half of it. A server that works on many requests side by side has as many in
//!   flight and depends less. One whose speed changes in spells depends more than either knows, where it was measured at a
//!   single rate;
//! - a closed loop of N users has neither: in a queue of one server each request waits for the N - 1 others, of which the next one
//!   shares N - 2 and so on, so that requests depend on each other over some N of them; [`LEAST_TIME`] times that is taken.

use crate::curves::{all_curves, is_valid};
use crate::record::{Driven, Point};
use crate::statistics::dependence::Dependence;
use crate::statistics::percentile::LEAST_TIME;
use crate::validity::disturbance::counted;
use crate::validity::littles_law;

/// By the requests in flight.
#[must_use]
pub fn of_queue(in_flight: f64) -> Dependence {
    let time = LEAST_TIME * (1.0 + in_flight.max(0.0)).powi(2);
    Dependence { body: time, tail: time }
}

/// By a point's own requests in flight, counted or summed, whichever is more.
#[must_use]
pub fn alone(point: &Point) -> Dependence {
    if let Some(Driven::ClosedLoop { users, .. }) = point.factors.driven {
        let time = LEAST_TIME * f64::from(users.max(1));
        return Dependence { body: time, tail: time };
    }
    let (counted, by_stays) = littles_law::in_flight(&counted(&point.repeats));
    of_queue(counted.max(by_stays))
}

/// Of each point of a run, in their order. Their summaries must have verdicts and measured times.
#[must_use]
pub fn assumed(points: &[Point]) -> Vec<Dependence> {
    let mut assumed: Vec<Dependence> = points.iter().map(alone).collect();
    for curve in all_curves(points) {
        for (place, point) in curve.points.iter().enumerate() {
            let neighbour = |place: Option<usize>| {
                let other = *curve.points.get(place?)?;
                let share = point.factors.offered_rps / other.factors.offered_rps.max(f64::MIN_POSITIVE);
                is_valid(other).then(|| measured(other, share)).flatten()
            };
            let (below, above) = (neighbour(place.checked_sub(1)), neighbour(Some(place + 1)));
            if let Some(index) = points.iter().position(|known| std::ptr::eq(known, *point)) {
                assumed[index] = beside(assumed[index], below, above);
            }
        }
    }
    assumed
}

/// Of a point that would be taken to have the time `alone`, by what its neighbours showed.
#[must_use]
pub fn beside(alone: Dependence, below: Option<Dependence>, above: Option<Dependence>) -> Dependence {
    let least = Dependence {
        body: LEAST_TIME,
        tail: LEAST_TIME,
    };
    let larger = |a: Dependence, b: Dependence| Dependence {
        body: a.body.max(b.body),
        tail: a.tail.max(b.tail),
    };
    let of_its_own = if above.is_some() { least } else { alone };
    [below, above].into_iter().flatten().fold(of_its_own, larger)
}

/// What a point measured, for a rate that is `share` of its own: what lasts some milliseconds lasts as many fewer requests.
fn measured(point: &Point, share: f64) -> Option<Dependence> {
    let at_that_rate = |time: f64| 1.0 + (time - 1.0) * share;
    point.summary.as_ref().map(|summary| Dependence {
        body: at_that_rate(summary.autocorrelation_time),
        tail: at_that_rate(summary.tail_autocorrelation_time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn both(time: f64) -> Dependence {
        Dependence { body: time, tail: time }
    }

    #[test]
    fn a_held_higher_rate_tells_more_than_the_queue_and_a_lower_one_can_only_add() {
        let queue = of_queue(4.0);
        assert_eq!(queue, both(50.0));
        assert_eq!(beside(queue, None, None), queue);
        assert_eq!(beside(queue, Some(both(7.0)), None), queue, "a lower rate depends less");
        assert_eq!(beside(queue, Some(both(70.0)), None), both(70.0));
        assert_eq!(beside(queue, None, Some(both(7.0))), both(7.0));
        assert_eq!(beside(queue, Some(both(9.0)), Some(both(7.0))), both(9.0));
        assert_eq!(beside(queue, None, Some(both(1.0))), both(LEAST_TIME));
        assert_eq!(
            beside(of_queue(0.1), None, Some(both(40.0))),
            both(40.0),
            "spells that no queue explains"
        );
    }
}
