//! Repeat of a point from the samples of one step. In: samples, the schedule, the pacer's observations. Out: a
//! [`Repeat`] with its histograms. The population is by scheduled start: only tickets due in the window count, whenever
//! they completed.

use std::collections::BTreeMap;
use tierlab_analysis::latency::objective;
use tierlab_analysis::record::{
    GooseFigures, Histograms, Objective, Outcome, Pool, RAMP_BLOCKS, RampFigures, RampRates, Repeat, Sample,
    ServerDelta, StreamFigure, StreamSample,
};
use tierlab_analysis::statistics::dependence::Dependence;
use tierlab_analysis::statistics::percentile::histogram;
use tierlab_analysis::validity::laws::{by_stays, start_fill};
use tierlab_load::driver::Finished;
use tierlab_load::schedule::Schedule;

/// Minimum requests of a time block on average, so that it shows a distribution.
const BLOCK_REQUESTS: f64 = 20.0;
/// Number of blocks in a window, from which latency over time is drawn.
const BLOCKS: std::ops::RangeInclusive<usize> = 5..=60;

/// Failures in a repeat's window, and examples of them, by their names in the result.
#[derive(Debug, Default)]
pub(super) struct NamedFailures {
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) examples: BTreeMap<String, String>,
}

/// Converts a finished step to a repeat, whose index, seed and file of histograms are the caller's.
pub fn record(finished: &Finished, schedule: &Schedule, server: Option<ServerDelta>) -> Repeat {
    let samples = finished.samples.iter();
    let due = samples.filter(|sample| schedule.in_window(sample.due_us));
    let mut window: Vec<Sample> = due.copied().collect();
    window.sort_unstable_by_key(|sample| sample.due_us);
    let good: Vec<Sample> = window.iter().filter(|sample| sample.is_ok()).copied().collect();
    let latencies: Vec<u64> = good.iter().map(Sample::latency_us).collect();
    let dependence = Dependence::of(&latencies);
    let mut errors = BTreeMap::new();
    for sample in &window {
        if let Outcome::Failed(failure) = sample.outcome {
            *errors.entry(failure.to_string()).or_insert(0) += 1;
        }
    }
    let examples = finished.examples.iter();
    let examples = examples.map(|(failure, message)| (failure.to_string(), message.clone()));
    let examples = examples.filter(|(reason, _)| errors.contains_key(reason)).collect();
    let is_inside = |sample: &&Sample| schedule.in_window(sample.done_us);
    let answered = answered(finished).filter(is_inside).count();
    let window_us = schedule.window_start_us..schedule.window_end_us;
    Repeat {
        started_at: crate::store::time::rfc3339_ms(finished.window_began),
        window_s: schedule.window_s(),
        scheduled: window.len() as u64,
        completed: good.len() as u64,
        errors,
        examples,
        achieved_rps: answered as f64 / schedule.window_s(),
        in_flight_limit_hit: finished.observed.limit_hit,
        mean_in_flight: finished.observed.mean_in_flight,
        in_flight_by_stays: Some(by_stays(&finished.samples, &window_us)),
        start_fill: start_fill(&good, &window_us),
        autocorrelation_time: dependence.body,
        tail_autocorrelation_time: Some(dependence.tail),
        backlog_slope: tierlab_analysis::backlog_slope(&good),
        bands: tierlab_analysis::bands(&good),
        server,
        histograms: histograms(&window, &finished.streams, schedule),
        ..Repeat::empty()
    }
}

/// Computes the figures of goose's own clock, from its times in microseconds; `None` without any.
pub fn goose_figures(mut times_us: Vec<u64>, counted: Option<u64>) -> Option<GooseFigures> {
    times_us.sort_unstable();
    let at = |quantile: f64| {
        let rank = (quantile * times_us.len() as f64).ceil() as usize;
        times_us.get(rank.max(1) - 1).map(|us| *us as f64)
    };
    Some(GooseFigures {
        counted,
        p50_us: at(0.5)?,
        p95_us: at(0.95)?,
        p99_us: at(0.99)?,
    })
}

/// Good replies; those of a ramp up to its stop, which ends the time that they are divided by.
fn answered(finished: &Finished) -> impl Iterator<Item = &Sample> {
    let end_us = finished.observed.stopped_us.unwrap_or(u64::MAX);
    let samples = finished.samples.iter();
    samples.filter(move |sample| sample.is_ok() && sample.done_us <= end_us)
}

/// Good replies of a ramp by the block in which they completed, and the rate at which it stopped.
pub(super) fn ramp_figures(finished: &Finished, schedule: &Schedule, rates: RampRates) -> RampFigures {
    let window_us = schedule.window_end_us - schedule.window_start_us;
    let mut answered = [0; RAMP_BLOCKS];
    for sample in self::answered(finished) {
        let into_us = sample.done_us.checked_sub(schedule.window_start_us);
        let block = into_us.map(|us| us as usize * RAMP_BLOCKS / window_us as usize);
        if let Some(answered) = block.and_then(|block| answered.get_mut(block)) {
            *answered += 1;
        }
    }
    let rate = |us: u64| rates.rate(us.saturating_sub(schedule.window_start_us) as f64 / window_us as f64);
    RampFigures {
        answered,
        stopped_rps: finished.observed.stopped_us.map(rate),
    }
}

/// Send lag beyond waits for one of `connections` connections: a request can be sent once fewer than `connections` of
/// those before it are unfinished.
pub(super) fn pool(finished: &Finished, schedule: &Schedule, connections: usize) -> Pool {
    let mut samples = finished.samples.clone();
    samples.sort_by_key(|sample| sample.due_us);
    let mut done: Vec<u64> = samples.iter().map(|sample| sample.done_us).collect();
    done.sort_unstable();
    let own_us = |(index, sample): (usize, &Sample)| {
        let free_us = index.checked_sub(connections).map_or(0, |before| done[before]);
        let own_us = sample.sent_us.saturating_sub(sample.due_us.max(free_us));
        schedule.in_window(sample.due_us).then_some(own_us)
    };
    let own_lags: Vec<u64> = samples.iter().enumerate().filter_map(own_us).collect();
    Pool {
        connections,
        own_lag_p99_us: histogram(&own_lags).value_at_quantile(0.99),
    }
}

fn histograms(window: &[Sample], streams: &[StreamSample], schedule: &Schedule) -> Histograms {
    // A share has the blocks of the whole, so that the blocks of all shares add up.
    let blocks = match schedule.stops {
        true => RAMP_BLOCKS,
        false => ((schedule.window_requests as f64 / BLOCK_REQUESTS) as usize).clamp(*BLOCKS.start(), *BLOCKS.end()),
    };
    let block_us = (schedule.window_end_us - schedule.window_start_us).div_ceil(blocks as u64);
    let block = |sample: &Sample| ((sample.due_us - schedule.window_start_us) / block_us) as usize;
    let by_block = |value: fn(&Sample) -> u64, counts: fn(&Sample) -> bool| {
        let mut values = vec![Vec::new(); blocks];
        for sample in window.iter().filter(|sample| counts(sample)) {
            values[block(sample)].push(value(sample));
        }
        values.iter().map(|values| histogram(values)).collect()
    };
    let of_figure = |figure: StreamFigure| {
        let mut values = vec![Vec::new(); blocks];
        for stream in in_window(streams, schedule) {
            figure.values(stream, &mut values[block(&stream.sample)]);
        }
        let blocks: Vec<_> = values.iter().map(|values| histogram(values)).collect();
        (figure, blocks)
    };
    let is_failed = |sample: &Sample| !sample.is_ok();
    let failed = match window.iter().any(is_failed) {
        true => by_block(Sample::latency_us, is_failed),
        false => Vec::new(),
    };
    let figures = StreamFigure::ALL.into_iter().filter(|_| !streams.is_empty());
    let figures = figures.map(of_figure);
    let figures = figures.filter(|(_, blocks)| blocks.iter().any(|block| !block.is_empty()));
    Histograms {
        block_s: block_us as f64 / 1e6,
        latency: by_block(Sample::latency_us, Sample::is_ok),
        service: by_block(Sample::service_us, Sample::is_ok),
        lag: by_block(Sample::lag_us, |_| true),
        failed,
        streams: figures.collect(),
    }
}

/// Streamed replies to requests due in the window.
fn in_window<'a>(streams: &'a [StreamSample], schedule: &Schedule) -> impl Iterator<Item = &'a StreamSample> {
    streams.iter().filter(|stream| schedule.in_window(stream.sample.due_us))
}

/// Returns the good replies in time by every objective at once; `None` unless one of them limits a stream.
pub(super) fn in_time(finished: &Finished, schedule: &Schedule, objectives: &[Objective]) -> Option<u64> {
    let has_stream = objectives.iter().any(|objective| objective.stream().is_some());
    has_stream.then(|| objective::in_time(objectives, in_window(&finished.streams, schedule)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;
    use std::time::{Duration, SystemTime};
    use tierlab_analysis::record::Failure;
    use tierlab_load::arrivals::Arrivals;
    use tierlab_load::pacer::Observed;

    fn sample(due_us: u64, sent_us: u64, done_us: u64) -> Sample {
        Sample {
            due_us,
            sent_us,
            done_us,
            outcome: Outcome::Ok,
            timings: None,
        }
    }

    fn one_second_after_one() -> Schedule {
        Schedule::new(
            &Arrivals::constant(),
            10.0,
            Duration::from_secs(1),
            Duration::from_secs(1),
            1,
        )
    }

    fn finished(samples: Vec<Sample>) -> Finished {
        Finished {
            streams: Vec::new(),
            recorded: Vec::new(),
            examples: BTreeMap::new(),
            samples,
            observed: Observed {
                limit_hit: false,
                mean_in_flight: 0.5,
                stopped_us: None,
            },
            window_began: SystemTime::UNIX_EPOCH,
        }
    }

    fn record_all(samples: Vec<Sample>) -> Repeat {
        record(&finished(samples), &one_second_after_one(), None)
    }

    #[test]
    fn a_wait_for_a_connection_is_not_the_generators_own() {
        let samples = vec![
            // The second waits for the first; the third is sent 3 ms after a connection is free, the last 4 ms late.
            sample(1_000_000, 1_000_000, 1_050_000),
            sample(1_010_000, 1_050_000, 1_060_000),
            sample(1_020_000, 1_063_000, 1_070_000),
            sample(1_100_000, 1_104_000, 1_110_000),
        ];
        let finished = finished(samples);
        let own_us = |connections| pool(&finished, &one_second_after_one(), connections).own_lag_p99_us;
        assert!((3_990..=4_010).contains(&own_us(1)), "{}", own_us(1));
        // With two, the second could have been sent at once.
        assert!((39_900..=40_100).contains(&own_us(2)), "{}", own_us(2));
    }

    #[test]
    fn replies_after_the_stop_of_a_ramp_do_not_count_for_the_time_before_it() {
        let schedule = one_second_after_one();
        let samples = [1_040_000, 1_130_000, 1_149_000, 1_160_000, 1_190_000];
        let mut stopped = finished(samples.map(|done_us| sample(1_010_000, 1_010_000, done_us)).into());
        stopped.observed.stopped_us = Some(1_150_000);
        let rates = RampRates {
            from: 0.0,
            to: 100.0,
            over: 1.0,
        };
        let figures = ramp_figures(&stopped, &schedule, rates);
        assert_eq!(figures.answered[..3], [1, 2, 0]);
        assert_eq!(figures.stopped_rps, Some(15.0));
        assert!((record(&stopped, &schedule, None).achieved_rps - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_population_is_what_was_due_in_the_window() {
        let mut failed = sample(1_500_000, 1_500_100, 2_500_000);
        failed.outcome = Outcome::Failed(Failure::Timeout);
        let repeat = record_all(vec![
            sample(999_999, 1_000_000, 1_000_500),   // warm-up, answered inside the window
            sample(1_000_000, 1_000_010, 1_001_000), // first of the window
            failed,
            sample(1_999_999, 2_000_000, 2_300_000), // last of the window, answered after it
        ]);
        assert_eq!((repeat.scheduled, repeat.completed), (3, 2));
        assert_eq!(repeat.errors, BTreeMap::from([("timeout".into(), 1)]));
        // By completion: the warm-up's reply and the first one fell inside.
        assert!((repeat.achieved_rps - 2.0).abs() < 1e-9);
        let slowest = repeat.histograms.latency.iter().map(Histogram::max).max().unwrap();
        assert!(slowest.abs_diff(300_001) <= 300, "{slowest}");
        // The failure is in the histogram of failures, with its age.
        let age = repeat.histograms.failed.iter().map(Histogram::max).max().unwrap();
        assert!(age.abs_diff(1_000_000) <= 1_000, "{age}");
    }

    #[test]
    fn failures_are_no_fast_replies() {
        let samples = (0..100).map(|i| {
            let due = 1_000_000 + i * 9_000;
            let mut one = sample(due, due + 10, due + if i % 5 < 3 { 400 } else { 8_000 });
            if i % 5 < 3 {
                one.outcome = Outcome::Failed(Failure::Status(503));
            }
            one
        });
        let repeat = record_all(samples.collect());
        assert_eq!((repeat.scheduled, repeat.completed, repeat.failed()), (100, 40, 60));
        let held = |clock: &[Histogram<u64>]| clock.iter().map(Histogram::len).sum::<u64>();
        let clocks = &repeat.histograms;
        assert_eq!(
            [&clocks.latency, &clocks.service, &clocks.lag, &clocks.failed].map(|clock| held(clock)),
            [40, 40, 100, 60]
        );
        assert!(!repeat.has_failures_in_latency());
        for clock in [&clocks.latency, &clocks.service] {
            assert!(
                clock
                    .iter()
                    .filter(|block| !block.is_empty())
                    .all(|block| block.min() > 7_000)
            );
        }
        assert!(
            repeat.bands.iter().all(|band| band.mean_us > 7_000.0),
            "{:?}",
            repeat.bands
        );
    }

    proptest! {
        #[test]
        fn no_sample_is_lost_and_values_keep_three_digits(
            latencies in prop::collection::vec(0_u64..100_000_000, 1..200),
        ) {
            let samples: Vec<_> = latencies
                .iter()
                .enumerate()
                .map(|(i, latency)| {
                    let due = 1_000_000 + i as u64 * 4_999;
                    sample(due, due, due + latency)
                })
                .collect();
            let repeat = record_all(samples);
            let total: u64 = repeat.histograms.latency.iter().map(Histogram::len).sum();
            prop_assert_eq!(total, latencies.len() as u64);
            let most = *latencies.iter().max().unwrap();
            let kept = repeat.histograms.latency.iter().map(Histogram::max).max().unwrap();
            prop_assert!(kept.abs_diff(most) <= 1 + most / 1_000, "{} became {}", most, kept);
        }
    }
}
