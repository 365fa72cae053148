//! Due times of requests. In: a rate, a warm-up, a window and a seed. Out: every due time of a step, before it starts.
//!
//! A Poisson schedule at rate `r` holds a Poisson number of arrivals about `r t` in a window of `t` seconds, since a queue
//! needs the noise of that number for its tail: with the count fixed, windows of 1.5 s show an M/M/1 queue a quarter fewer
//! slow requests than the long run has. A gamma renewal process is stationary from the start, too. Even arrivals and traces
//! have exactly `round(r t)`: a trace is stretched so that the needed number of its requests fills the span. A profile then
//! bends time: an arrival at the share `u` of a span's mean rate is due when the share `u` of the profile's rate has passed.

use crate::arrivals::{Arrivals, Process, Shape, Trace};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Gamma};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::Duration;
use tierlab_analysis::record::{Mode, RampRates};
pub use tierlab_analysis::statistics::split_mix;

/// Streams of one step's seed, so that arrivals and keys do not depend on each other.
const ARRIVAL_STREAM: u64 = 1;

/// Due times of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Microseconds since the step's start, ascending.
    pub due_us: Vec<u64>,
    /// Start of the measured window, in microseconds since the step's start.
    pub window_start_us: u64,
    /// End of the measured window (exclusive), in microseconds since the step's start.
    pub window_end_us: u64,
    /// Number of requests due in the window, of all shares together.
    pub window_requests: usize,
    /// If true, the step stops once every user has been busy for a while.
    pub stops: bool,
}

impl Schedule {
    /// Creates a step's schedule; the same arguments give the same schedule.
    pub fn new(arrivals: &Arrivals, rate: f64, warmup: Duration, window: Duration, seed: u64) -> Self {
        let window_start_us = micros(warmup);
        let window_end_us = window_start_us + micros(window);
        if let Process::Trace { trace, speed } = &arrivals.process
            && let Some(speed) = speed
        {
            let due_us = trace.at_s.iter().map(|at_s| (at_s / speed * 1e6).round() as u64);
            let due_us: Vec<u64> = due_us.take_while(|due_us| *due_us < window_end_us).collect();
            return Self {
                window_requests: due_us.len() - due_us.partition_point(|due_us| *due_us < window_start_us),
                due_us,
                window_start_us,
                window_end_us,
                stops: false,
            };
        }
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(ARRIVAL_STREAM);
        let expected = |span: &Range<u64>, rate: f64| rate * (span.end - span.start) as f64 / 1e6;
        let (before, window) = (0..window_start_us, window_start_us..window_end_us);
        let first_rate = match &arrivals.shape {
            Shape::Climb(ramp) => ramp.from,
            _ => rate,
        };
        let process = &arrivals.process;
        let first = shares(process, expected(&before, first_rate), true, &mut rng);
        let measured = shares(process, expected(&window, rate), false, &mut rng);
        let mut due_us = due_times(&first, &Shape::Flat, &before);
        due_us.extend(due_times(&measured, &arrivals.shape, &window));
        Self {
            due_us,
            window_start_us,
            window_end_us,
            window_requests: measured.len(),
            stops: matches!(arrivals.shape, Shape::Climb(_)),
        }
    }

    /// Returns the share of every `of`-th request from the `number`-th on, over the same window.
    #[must_use]
    pub fn share(&self, number: usize, of: usize) -> Self {
        Self {
            due_us: self.due_us.iter().skip(number).step_by(of).copied().collect(),
            ..self.clone()
        }
    }

    /// True if a due time is in the measured window.
    pub const fn in_window(&self, due_us: u64) -> bool {
        due_us >= self.window_start_us && due_us < self.window_end_us
    }

    /// Length of the measured window in seconds.
    pub fn window_s(&self) -> f64 {
        (self.window_end_us - self.window_start_us) as f64 / 1e6
    }
}

/// Arrivals of a span with `expected` requests on average, as ascending shares of its length below 1. A trace begins
/// with the window; the warm-up replays the part before it, which is the trace's end.
fn shares(process: &Process, expected: f64, is_warmup: bool, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let count = expected.round() as usize;
    match process {
        // Shifted by half a gap, so that no arrival is at the edge of the span.
        Process::Constant => (0..count).map(|i| (i as f64 + 0.5) / count as f64).collect(),
        Process::Poisson => renewals(1.0, expected, rng),
        Process::Gamma { cv } => renewals(1.0 / (cv * cv), expected, rng),
        Process::Trace { trace, .. } => replay(trace, count, is_warmup),
    }
}

/// Draws a stationary renewal process whose gaps are gamma distributed with this shape; 1 is a Poisson process.
fn renewals(shape: f64, expected: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let (Ok(gaps), Ok(first_gap)) = (Gamma::new(shape, 1.0 / shape), Gamma::new(shape + 1.0, 1.0 / shape)) else {
        unreachable!("a plan's coefficient of variation is positive, and so is its shape");
    };
    // A span begins anywhere in a gap, more often in a long one.
    let first = rng.random_range(0.0..1.0) * first_gap.sample(rng);
    let arrivals = std::iter::successors(Some(first), |at| Some(at + gaps.sample(rng)));
    let arrivals = arrivals.take_while(|at| *at < expected);
    arrivals.map(|at| (at / expected).min(1.0 - f64::EPSILON)).collect()
}

/// Returns `count` requests of a trace, repeated if it has fewer, from its beginning or up to it.
fn replay(trace: &Trace, count: usize, is_warmup: bool) -> Vec<f64> {
    let recorded = trace.at_s.len();
    let (Some(&first), Some(&last)) = (trace.at_s.first(), trace.at_s.last()) else {
        return Vec::new();
    };
    // Two rounds are a mean gap apart.
    let round_s = (last - first) * recorded as f64 / (recorded as f64 - 1.0);
    let before = (recorded - count % recorded) % recorded;
    let skipped = if is_warmup { before } else { 0 };
    let at = |index: usize| trace.at_s[index % recorded] + (index / recorded) as f64 * round_s;
    let (from, to) = (at(skipped), at(skipped + count));
    let length = if to > from { to - from } else { 1.0 };
    let share = |index: usize| ((at(index) - from) / length).min(1.0 - f64::EPSILON);
    (skipped..skipped + count).map(share).collect()
}

/// Converts shares of a span's requests to times in it.
fn due_times(shares: &[f64], shape: &Shape, span: &Range<u64>) -> Vec<u64> {
    let length = (span.end - span.start) as f64;
    shares
        .iter()
        .map(|&share| (span.start + (time_share(share, shape) * length).round() as u64).min(span.end.saturating_sub(1)))
        .collect()
}

/// Returns the share of the span's time after which the share `passed` of its requests is due.
fn time_share(passed: f64, shape: &Shape) -> f64 {
    match shape {
        Shape::Flat => passed,
        Shape::Steps(pieces) => {
            let length = 1.0 / pieces.len() as f64;
            let (mut before, mut start) = (0.0, 0.0);
            for piece in pieces {
                if passed < before + piece * length {
                    return start + (passed - before) / piece;
                }
                (before, start) = (before + piece * length, start + length);
            }
            1.0
        }
        &Shape::Ramp { from, to } => RampRates { from, to, over: 1.0 }.share_of_time(passed),
        Shape::Climb(ramp) => ramp.share_of_time(passed),
    }
}

/// Converts a duration to microseconds, capped so that sums do not overflow.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 4)
}

/// Returns the seed of a step: equal for every tier and cache state in a repeat, so that tiers are compared on the same
/// arrivals and keys, and different for every repeat and load.
pub fn step_seed(plan_seed: u64, repeat: u32, load_index: usize) -> u64 {
    let mixed = split_mix(plan_seed) ^ split_mix(u64::from(repeat) << 32 | load_index as u64);
    split_mix(mixed)
}

/// Mode, batch size and rate of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    pub batch_size: u32,
    /// Requests per second.
    pub rate: f64,
}

impl Load {
    /// Returns the same load at another rate.
    #[must_use]
    pub fn at(self, rate: f64) -> Self {
        Self { rate, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn process(process: Process) -> Arrivals {
        Arrivals {
            process,
            shape: Shape::Flat,
        }
    }

    /// Standard deviation of the gaps over their mean.
    fn variation(schedule: &Schedule) -> f64 {
        let gaps: Vec<f64> = schedule
            .due_us
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        variance.sqrt() / mean
    }

    #[test]
    fn gamma_gaps_vary_as_they_should() {
        for cv in [0.3, 1.0, 2.0] {
            let arrivals = process(Process::Gamma { cv });
            let schedule = Schedule::new(&arrivals, 1_000.0, Duration::ZERO, Duration::from_secs(100), 3);
            let found = variation(&schedule);
            assert!((found / cv - 1.0).abs() < 0.05, "{cv}: {found}");
        }
    }

    /// A queue's tail needs the noise of the count, and mean shares over steps need it unbiased.
    #[test]
    fn the_number_of_random_arrivals_varies_as_in_any_part_of_a_long_process() {
        for (cv, process) in [
            (1.0, Process::Poisson),
            (0.3, Process::Gamma { cv: 0.3 }),
            (2.0, Process::Gamma { cv: 2.0 }),
        ] {
            let (arrivals, window) = (self::process(process), Duration::from_secs(1));
            let count = |seed| Schedule::new(&arrivals, 300.0, Duration::ZERO, window, seed).window_requests as f64;
            let counts: Vec<f64> = (0..1_000).map(count).collect();
            let mean = counts.iter().sum::<f64>() / counts.len() as f64;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((mean / 300.0 - 1.0).abs() < 0.01, "{cv}: {mean}");
            assert!((variance / (300.0 * cv * cv) - 1.0).abs() < 0.15, "{cv}: {variance}");
        }
    }

    #[test]
    fn a_profile_moves_requests_and_keeps_their_number() {
        let share_before = |shape: Shape, seconds: u64| {
            let arrivals = Arrivals {
                process: Process::Constant,
                shape,
            };
            let schedule = Schedule::new(&arrivals, 1_000.0, Duration::ZERO, Duration::from_secs(100), 3);
            let before = schedule.due_us.iter().filter(|&&due| due < seconds * 1_000_000).count();
            assert_eq!(schedule.due_us.len(), 100_000);
            before as f64 / 1e5
        };
        // Shares of the mean: 0.5 for the first quarter, 2 for the second, then 0.75.
        let steps = || Shape::Steps(vec![0.5, 2.0, 0.75, 0.75]);
        for (seconds, share) in [(25, 0.125), (50, 0.625), (75, 0.8125)] {
            assert!((share_before(steps(), seconds) - share).abs() < 0.01, "{seconds}");
        }
        // From zero to twice the mean: the integral is t².
        assert!((share_before(Shape::Ramp { from: 0.0, to: 2.0 }, 50) - 0.25).abs() < 0.01);
        assert!((share_before(Shape::Ramp { from: 1.0, to: 1.0 }, 50) - 0.5).abs() < 0.01);
    }

    #[test]
    fn a_trace_keeps_its_order_of_gaps() {
        let trace = Trace {
            file: "t.csv".into(),
            at_s: vec![0.0, 1.0, 1.5, 3.0],
            other_servers: 0,
        };
        let arrivals = process(Process::Trace {
            trace: Arc::new(trace),
            speed: None,
        });
        // Eight requests: two rounds of four seconds each, compressed into one.
        let schedule = Schedule::new(&arrivals, 8.0, Duration::ZERO, Duration::from_secs(1), 3);
        let expected = [0.0, 1.0, 1.5, 3.0, 4.0, 5.0, 5.5, 7.0].map(|at: f64| (at / 8.0 * 1e6) as u64);
        assert_eq!(schedule.due_us, expected);
        // A warm-up of a quarter round is the trace's last request, and the window begins with its first.
        let schedule = Schedule::new(&arrivals, 4.0, Duration::from_millis(250), Duration::from_secs(1), 3);
        assert_eq!(schedule.due_us, [0, 250_000, 500_000, 625_000, 1_000_000]);
    }

    #[test]
    fn a_replay_keeps_every_time_at_its_speed() {
        let trace = Arc::new(Trace {
            file: "t.log".into(),
            at_s: vec![0.0, 600.0, 900.0, 900.0, 1_799.9, 1_800.0],
            other_servers: 0,
        });
        let replayed = |speed| {
            let trace = Arc::clone(&trace);
            let speed = Some(speed);
            let arrivals = process(Process::Trace { trace, speed });
            Schedule::new(&arrivals, 0.0, Duration::from_secs(1), Duration::from_secs(2), 3)
        };
        let schedule = replayed(600.0);
        assert_eq!(schedule.due_us, [0, 1_000_000, 1_500_000, 1_500_000, 2_999_833]);
        assert_eq!(schedule.window_requests, 4);
        assert_eq!(replayed(1.0).due_us, [0]);
    }

    #[test]
    fn a_climb_reaches_its_rate_and_keeps_it() {
        let ramp = RampRates {
            from: 100.0,
            to: 500.0,
            over: 0.5,
        };
        let arrivals = Arrivals {
            process: Process::Constant,
            shape: Shape::Climb(ramp),
        };
        assert_eq!(ramp.mean(), 400.0);
        let schedule = Schedule::new(
            &arrivals,
            ramp.mean(),
            Duration::from_secs(1),
            Duration::from_secs(20),
            3,
        );
        assert!(schedule.stops);
        let between = |from: f64, to: f64| {
            let (from, to) = ((from * 1e6) as u64, (to * 1e6) as u64);
            schedule.due_us.iter().filter(|due| (from..to).contains(due)).count() as f64
        };
        // The warm-up at the first rate, the ramp's middle at its mean, the rest at the last.
        for (from, to, count) in [(0.0, 1.0, 100.0), (5.0, 7.0, 600.0), (11.0, 21.0, 5_000.0)] {
            assert!(
                (between(from, to) - count).abs() <= 2.0,
                "{from}: {}",
                between(from, to)
            );
        }
        let falling = RampRates {
            from: 300.0,
            to: 0.0,
            over: 0.5,
        };
        assert_eq!((falling.mean(), falling.share_of_time(1.0)), (75.0, 0.5));
    }

    proptest! {
        #[test]
        fn shares_are_the_whole(rate in 1.0_f64..500.0, of in 1_usize..8, seed: u64) {
            let second = Duration::from_secs(1);
            let whole = Schedule::new(&Arrivals::default(), rate, second, second, seed);
            let mut all: Vec<u64> = (0..of).flat_map(|number| whole.share(number, of).due_us).collect();
            all.sort_unstable();
            prop_assert_eq!(all, whole.due_us);
        }

        #[test]
        fn a_schedule_is_sorted_counted_and_repeatable(
            rate in 1.0_f64..2_000.0, warmup_ms in 0_u64..2_000, window_ms in 1_000_u64..4_000, seed: u64,
            process in 0_usize..5, shape in 0_usize..4,
        ) {
            let trace = Trace { file: "t.csv".into(), at_s: vec![0.0, 0.5, 0.5, 4.0], other_servers: 0 };
            let process = [
                Process::Poisson,
                Process::Constant,
                Process::Gamma { cv: 0.3 },
                Process::Gamma { cv: 3.0 },
                Process::Trace {
                    trace: Arc::new(trace),
                    speed: None,
                },
            ][process].clone();
            let shape = [
                Shape::Flat,
                Shape::Steps(vec![0.0, 2.0, 1.0]),
                Shape::Ramp { from: 0.0, to: 2.0 },
                Shape::Ramp { from: 1.5, to: 0.5 },
            ][shape].clone();
            let arrivals = &Arrivals { process, shape };
            let (warmup, window) = (Duration::from_millis(warmup_ms), Duration::from_millis(window_ms));
            let schedule = Schedule::new(arrivals, rate, warmup, window, seed);
            prop_assert!(schedule.due_us.is_sorted());
            prop_assert!(schedule.due_us.last().is_none_or(|&due| due < schedule.window_end_us));
            let inside = schedule.due_us.iter().filter(|&&due| schedule.in_window(due)).count();
            prop_assert_eq!(inside, schedule.window_requests);
            prop_assert_eq!(&schedule, &Schedule::new(arrivals, rate, warmup, window, seed));
            if matches!(arrivals.process, Process::Constant | Process::Trace { .. }) {
                let warm = schedule.due_us.len() - inside;
                prop_assert_eq!(inside as f64, (rate * window.as_secs_f64()).round());
                prop_assert_eq!(warm as f64, (rate * warmup.as_secs_f64()).round());
            }
        }

        #[test]
        fn neighbouring_steps_have_unrelated_seeds(seed: u64, repeat in 0_u32..100, load in 0_usize..100) {
            let here = step_seed(seed, repeat, load);
            prop_assert_ne!(here, step_seed(seed, repeat + 1, load));
            prop_assert_ne!(here, step_seed(seed, repeat, load + 1));
            prop_assert_ne!(here, step_seed(seed.wrapping_add(1), repeat, load));
        }
    }

    #[test]
    fn constant_gaps_are_equal() {
        let schedule = Schedule::new(
            &process(Process::Constant),
            500.0,
            Duration::ZERO,
            Duration::from_secs(2),
            9,
        );
        assert!(schedule.due_us.windows(2).all(|pair| pair[1] - pair[0] == 2_000));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let schedule = Schedule::new(
            &process(Process::Poisson),
            1_000.0,
            Duration::ZERO,
            Duration::from_secs(100),
            3,
        );
        let gaps: Vec<f64> = schedule
            .due_us
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // An exponential has a share of e^-1 above its mean, and e^-3 above three times its mean.
        for (times, share) in [(1.0, 0.3679), (3.0, 0.0498)] {
            let above = gaps.iter().filter(|&&gap| gap > times * mean).count() as f64 / gaps.len() as f64;
            assert!(
                (above - share).abs() < 0.01,
                "{above} of the gaps are above {times} means"
            );
        }
    }
}
