//! How much the samples of a point are taken to depend on each other when it is decided which percentiles are printed.
//!
//! In: the points of a run with what they measured. Out: an autocorrelation time for each. Pure.
//!
//! Never the time that a point's own samples show: a run that by chance met no burst shows a short one and a small p99 as
//! well, and printing by it prints the percentiles that are too small. Two things bound it that are not the dependence of its
//! own samples, and the smaller bound is taken:
//! - a queue. Where one server with exponential service has as many requests in flight as the point had on average, requests
//!   depend on each other for some `2 (1 + in flight)²` of them: the relaxation time of that queue (M/M/1) at a load of
//!   `ρ = in flight / (1 + in flight)` is `1 / (1 - √ρ)²` services, less than `4 (1 + in flight)²` (J. Abate and W. Whitt,
//!   *Transient behavior of the M/M/1 queue*, Queueing Systems 2, 1987), and percentiles settle in about half of it. A
//!   server that works on many requests side by side has as many in flight and depends less;
//! - the neighbouring rates of the same curve, if there is a higher one that was held: dependence grows with the rate, and
//!   other requests showed it. The larger time of the next lower and the next higher rate counts, and at least
//!   `LEAST`.

use crate::curves::{curves, is_valid};
use crate::record::Point;
use crate::statistics::dependence::Dependence;
use crate::validity::littles_law;

/// No point's samples are taken to depend on each other less.
const LEAST: f64 = 2.0;

/// By the requests in flight.
#[must_use]
pub fn of_queue(in_flight: f64) -> Dependence {
    let time = LEAST * (1.0 + in_flight.max(0.0)).powi(2);
    Dependence { body: time, tail: time }
}

/// By a point's own requests in flight, counted or summed, whichever is more.
#[must_use]
pub fn alone(point: &Point) -> Dependence {
    let (counted, by_stays) = littles_law::in_flight(&point.repeats);
    of_queue(counted.max(by_stays))
}

/// Of each point of a run, in their order. Their summaries must have verdicts and measured times.
#[must_use]
pub fn assumed(points: &[Point]) -> Vec<Dependence> {
    let mut assumed: Vec<Dependence> = points.iter().map(alone).collect();
    for curve in curves(points) {
        for (place, point) in curve.points.iter().enumerate() {
            let neighbour = |place: Option<usize>| {
                let other = *curve.points.get(place?)?;
                is_valid(other).then(|| measured(other)).flatten()
            };
            let Some(above) = neighbour(Some(place + 1)) else {
                continue;
            };
            let below = neighbour(place.checked_sub(1)).unwrap_or(above);
            let Some(index) = points.iter().position(|known| std::ptr::eq(known, *point)) else {
                continue;
            };
            let own = &mut assumed[index];
            own.body = own.body.min(above.body.max(below.body).max(LEAST));
            own.tail = own.tail.min(above.tail.max(below.tail).max(LEAST));
        }
    }
    assumed
}

fn measured(point: &Point) -> Option<Dependence> {
    point.summary.as_ref().map(|summary| Dependence {
        body: summary.autocorrelation_time,
        tail: summary.tail_autocorrelation_time,
    })
}
