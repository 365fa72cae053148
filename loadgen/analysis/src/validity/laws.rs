//! Operational laws as checks of every step: Little's law, and for a closed loop the interactive response time law.
//!
//! In: the repeats of a point, or the samples of a step. Out: both sides. Knows nothing of verdicts.
//!
//! *Little's law*: mean in flight = rate × mean time in flight. For one side the pacer's thread counts the requests in
//! flight at random moments; the other side is computed from the due times and ends that every request recorded. The sides
//! share no measurement, so requests that were lost, counted twice or timed by a wrong clock make them differ. J. D. C.
//! Little, *Operations Research* 9 (1961).

use crate::record::{ClosedLoopFigures, Repeat, Sample};
use std::ops::Range;

/// Returns the law's right side over a finite window (microseconds on the samples' clock): the parts of all stays (due
/// to done) that lie in the window, over its length. Without edges this is rate × mean latency; with stays cut at the
/// edges it is exact for any window.
pub fn by_stays(samples: &[Sample], window: &Range<u64>) -> f64 {
    let within = |us: u64| us.clamp(window.start, window.end);
    let stay = |sample: &Sample| within(sample.done_us).saturating_sub(within(sample.due_us));
    let stays: u64 = samples.iter().map(stay).sum();
    stays as f64 / window.end.saturating_sub(window.start).max(1) as f64
}

/// Returns the growth of the number in flight over a window at a constant latency, from the window's good requests: a
/// warm-up that is shorter than the latency leaves fewer in flight at the window's start than at its end.
pub fn start_fill(good: &[Sample], window: &Range<u64>) -> f64 {
    let gained = |us: u64| us.min(window.end) - us.min(window.start);
    let gained: u64 = good.iter().map(|sample| gained(sample.latency_us())).sum();
    gained as f64 / window.end.saturating_sub(window.start).max(1) as f64
}

/// Returns both sides over all repeats, weighted by their windows: counted, and from the requests' own times.
pub fn in_flight(repeats: &[Repeat]) -> (f64, f64) {
    let window: f64 = repeats.iter().map(|repeat| repeat.window_s).sum();
    if window <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = |side: fn(&Repeat) -> f64| repeats.iter().map(|r| side(r) * r.window_s).sum::<f64>() / window;
    (mean(|repeat| sides(repeat).0), mean(|repeat| sides(repeat).1))
}

/// Returns both sides of one step. For older results without the requests' stays, the right side is rate × mean latency
/// from the histograms, which counts requests of the window entirely even if they ended after it.
pub fn sides(repeat: &Repeat) -> (f64, f64) {
    let by_stays = repeat.in_flight_by_stays.unwrap_or_else(|| {
        let latency = &repeat.histograms.latency;
        let us: f64 = latency.iter().map(|block| block.mean() * block.len() as f64).sum();
        us / 1e6 / repeat.window_s
    });
    (repeat.mean_in_flight, by_stays)
}

/// Requests in flight from which the law is checked: sampled counts have an error of about half a request, a tenth of
/// this.
pub const CHECK_FROM: f64 = 5.0;

/// True if both sides agree within 10 %; `None` if fewer than [`CHECK_FROM`] are in flight by either side, since the law could
/// not fail then.
pub fn holds((counted, by_stays): (f64, f64)) -> Option<bool> {
    (counted.max(by_stays) >= CHECK_FROM).then(|| (counted - by_stays).abs() <= (0.1 * by_stays).max(0.1 * CHECK_FROM))
}

/// Returns the steps that break the law, with both sides.
pub fn violations(repeats: &[Repeat]) -> impl Iterator<Item = (u32, (f64, f64))> {
    let steps = repeats.iter().map(|repeat| (repeat.index, sides(repeat)));
    steps.filter(|(_, sides)| holds(*sides) == Some(false))
}

/// Tolerance of the closed loop's law, as a share, beyond the cycles cut by the window's edges.
const TOLERANCE: f64 = 0.02;

/// Returns the terms of the interactive response time law over the repeats of a closed loop, weighted by requests; `None`
/// if nothing ended. `users = rate × (response time + pause)` holds for any server (P. J. Denning and J. P. Buzen, *The
/// operational analysis of queueing network models*, 1978).
pub fn closed_loop_figures(repeats: &[Repeat]) -> Option<ClosedLoopFigures> {
    let loops = || {
        let repeats = repeats.iter();
        repeats.filter_map(|repeat| Some((repeat.window_s, repeat.driver.closed_loop()?)))
    };
    let seconds: f64 = loops().map(|(window_s, _)| window_s).sum();
    let ended: f64 = loops().map(|(window_s, figures)| figures.ended_rps * window_s).sum();
    let mean = |of: fn(&ClosedLoopFigures) -> f64| {
        let weighted = loops().map(|(window_s, figures)| of(&figures) * figures.ended_rps * window_s);
        weighted.sum::<f64>() / ended
    };
    (ended > 0.0 && seconds > 0.0).then(|| ClosedLoopFigures {
        ended_rps: ended / seconds,
        mean_response_us: mean(|figures| figures.mean_response_us),
        mean_pause_us: mean(|figures| figures.mean_pause_us),
        mean_think_us: mean(|figures| figures.mean_think_us),
    })
}

/// Returns the users by the law if they differ from the plan's. At each edge of a window a user's cycle is cut, so the
/// count of cycles may be wrong by the number of users.
pub fn differing_users(users: u32, repeats: &[Repeat]) -> Option<f64> {
    let figures = closed_loop_figures(repeats)?;
    let ended = |repeat: &Repeat| Some(repeat.driver.closed_loop()?.ended_rps * repeat.window_s);
    let ended: f64 = repeats.iter().filter_map(ended).sum();
    let by_law = figures.users_by_law();
    let users = f64::from(users);
    let edges = users * repeats.len() as f64 / ended;
    ((by_law / users - 1.0).abs() > TOLERANCE + edges).then_some(by_law)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DriverFigures, Outcome};
    use proptest::prelude::*;

    /// A second of warm-up, two of window.
    const WINDOW: Range<u64> = 1_000_000..3_000_000;

    fn sample(due_us: u64, done_us: u64) -> Sample {
        Sample {
            due_us,
            sent_us: due_us,
            done_us,
            outcome: Outcome::Ok,
            timings: None,
        }
    }

    #[test]
    fn a_hundred_a_second_for_fifty_milliseconds_are_five() {
        let samples: Vec<Sample> = (0..300).map(|i| sample(i * 10_000, i * 10_000 + 50_000)).collect();
        assert!((by_stays(&samples, &WINDOW) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn stays_are_cut_at_the_edges_of_the_window() {
        let over = [
            sample(0, 1_500_000),         // warm-up, half a second inside
            sample(2_500_000, 9_000_000), // half a second inside
            sample(0, 10_000_000),        // all of it
            sample(0, 900_000),           // before it
            sample(3_100_000, 3_200_000), // after it
        ];
        assert!((by_stays(&over, &WINDOW) - 1.5).abs() < 1e-9);
        assert_eq!(by_stays(&[], &WINDOW), 0.0);
    }

    #[test]
    fn a_latency_beyond_the_warm_up_fills_the_window() {
        // 100/s of 1.5 s each: 100 in flight after the warm-up of a second, 150 at the end.
        let of = |us: u64| {
            (100..300)
                .map(|i| sample(i * 10_000, i * 10_000 + us))
                .collect::<Vec<_>>()
        };
        assert_eq!(start_fill(&of(1_500_000), &WINDOW), 50.0);
        assert_eq!(start_fill(&of(900_000), &WINDOW), 0.0);
    }

    #[test]
    fn agreement_is_relative_and_not_asked_of_few() {
        assert_eq!((holds((100.0, 95.0)), holds((100.0, 50.0))), (Some(true), Some(false)));
        assert_eq!((holds((5.4, 5.0)), holds((0.1, 6.0))), (Some(true), Some(false)));
        // The error of half a request makes the check meaningless here.
        assert_eq!((holds((0.1, 0.4)), holds((4.9, 0.1))), (None, None));
        assert_eq!(in_flight(&[]), (0.0, 0.0));
    }

    proptest! {
        /// Counting at every microsecond equals summing the stays.
        #[test]
        fn counting_and_summing_agree(stays in prop::collection::vec((0_u64..400, 0_u64..300), 0..40)) {
            let samples: Vec<Sample> = stays.iter().map(|&(due, length)| sample(due, due + length)).collect();
            let counted: usize = (100..300)
                .map(|now| samples.iter().filter(|s| s.due_us <= now && now < s.done_us).count())
                .sum();
            prop_assert!((by_stays(&samples, &(100..300)) - counted as f64 / 200.0).abs() < 1e-9);
        }
    }

    fn repeat(users: f64, response_us: f64, pause_us: f64, window_s: f64) -> Repeat {
        let closed_loop = ClosedLoopFigures {
            ended_rps: users * 1e6 / (response_us + pause_us),
            mean_response_us: response_us,
            mean_pause_us: pause_us,
            mean_think_us: 0.0,
        };
        Repeat {
            window_s,
            driver: DriverFigures::ClosedLoop {
                closed_loop,
                goose: None,
            },
            ..Repeat::empty()
        }
    }

    proptest! {
        #[test]
        fn what_obeys_the_law_is_not_broken_and_what_lost_requests_is(
            users in 1_u32..64, response_us in 100.0..50_000.0, pause_us in 0.0..50_000.0,
        ) {
            // Long enough that the edges are at most a percent.
            let window_s = 100.0 * (response_us + pause_us) / 1e6;
            let sound = vec![repeat(f64::from(users), response_us, pause_us, window_s); 3];
            prop_assert_eq!(differing_users(users, &sound), None);
            let lost = vec![repeat(0.9 * f64::from(users), response_us, pause_us, window_s); 3];
            prop_assert!(differing_users(users, &lost).is_some());
        }
    }

    #[test]
    fn repeats_count_by_their_requests() {
        let repeats = [repeat(1.0, 1_000.0, 0.0, 1.0), repeat(1.0, 3_000.0, 0.0, 3.0)];
        let figures = closed_loop_figures(&repeats).unwrap();
        // A thousand requests of each.
        assert!((figures.mean_response_us - 2_000.0).abs() < 1e-6 && (figures.ended_rps - 500.0).abs() < 1e-6);
        assert_eq!(closed_loop_figures(&[Repeat::empty()]), None);
    }
}
