//! Latencies of a step or point compared with an objective, and goodput: good replies within a limit.
//!
//! In: an objective or a limit in microseconds, and a table of latencies or the repeats of a point. Out: the limited
//! figure, and the requests that miss it as counts, rates and shares. Pure. A failed request misses every limit, however
//! fast it failed.

use crate::record::{Objective, Repeat, StreamFigure, StreamSample};
use crate::statistics::percentile::BlockTable;
use hdrhistogram::Histogram;

/// Returns the times of a repeat that the objective limits.
pub fn limited(objective: Objective, repeat: &Repeat) -> &[Histogram<u64>] {
    match objective.stream() {
        Some(figure) => repeat.histograms.streams.get(&figure).map_or(&[], Vec::as_slice),
        None => &repeat.histograms.latency,
    }
}

/// Counts the good replies in time by every objective at once, each objective by its limit alone. A reply meets a limit
/// on gaps if the mean of its own gaps does.
pub fn in_time<'a>(objectives: &[Objective], replies: impl Iterator<Item = &'a StreamSample>) -> u64 {
    let keeps = |objective: &Objective, StreamSample { sample, reply }: &StreamSample| {
        let us = match objective.stream() {
            Some(StreamFigure::Gap) => reply.mean_gap_us().unwrap_or(0.0),
            Some(StreamFigure::FirstByte) => reply.first_byte_us.saturating_sub(sample.due_us) as f64,
            Some(_) => reply.first_event_us.saturating_sub(sample.due_us) as f64,
            None => sample.latency_us() as f64,
        };
        us <= objective.limit_us()
    };
    let in_time = replies.filter(|reply| objectives.iter().all(|objective| keeps(objective, reply)));
    in_time.count() as u64
}

/// Returns the figure that the objective limits from a table of its times, in microseconds; `None` without samples.
pub fn measured_us(objective: Objective, table: &BlockTable) -> Option<f64> {
    match objective.quantile() {
        Some(quantile) => Some(table.pooled_quantile(quantile)? as f64),
        None => table.mean(),
    }
}

/// Returns the share of requests that count as slow; the objective is missed above [`Objective::slow_share`].
///
/// For the mean the odds of being slow are the mean over its limit: they reach 1 at the limit, and rise with the rate
/// as the mean does.
fn slow_share(objective: Objective, table: &BlockTable) -> f64 {
    let limit_us = objective.limit_us();
    match objective {
        Objective::Mean { .. } => table.mean().map_or(0.0, |us| us / (us + limit_us)),
        // The limit is far below 2^63.
        _ => 1.0 - table.share_up_to(0..table.blocks(), limit_us as u64).unwrap_or(1.0),
    }
}

/// Returns the number of requests that missed a limit: slower good replies, and failed requests.
///
/// Older results hold failed requests among the latencies, without marking the slow ones: their counts are added, up to
/// the number of requests.
pub(crate) fn missed(repeat: &Repeat, limit_us: f64) -> u64 {
    // Limits are far below 2^63.
    let limit_us = limit_us as u64;
    let counts = repeat.histograms.latency.iter().flat_map(|block| block.iter_recorded());
    let slow = counts.filter(|step| step.value_iterated_to() > limit_us);
    let slow: u64 = slow.map(|step| step.count_at_value()).sum();
    (slow + repeat.failed()).min(repeat.scheduled)
}

/// Returns the number of requests that count as missing an objective, failed requests included; `None` if it limits streams, and none
/// of the repeat's replies were timed.
pub(crate) fn misses(repeat: &Repeat, objective: Objective) -> Option<f64> {
    Some(match objective {
        Objective::Stream { .. } if repeat.completed > 0 && repeat.histograms.streams.is_empty() => return None,
        Objective::Percentile { .. } | Objective::Goodput { .. } => missed(repeat, objective.limit_us()) as f64,
        Objective::Stream { .. } => {
            // The share of slow gaps counts once for each request, since the gaps of one reply depend on each other.
            let table = BlockTable::new([limited(objective, repeat)]);
            slow_share(objective, &table) * repeat.completed as f64 + repeat.failed() as f64
        }
        Objective::Mean { .. } => {
            let table = BlockTable::new([repeat.histograms.latency.as_slice()]);
            let slow = slow_share(objective, &table) * table.samples() as f64;
            (slow + repeat.failed() as f64).min(repeat.scheduled as f64)
        }
    })
}

/// Returns good replies within a limit per second of the window, by scheduled start.
pub(crate) fn rate(repeat: &Repeat, limit_us: f64) -> f64 {
    in_time_or_within(repeat, limit_us) as f64 / repeat.window_s
}

/// Returns the good replies in time: by every objective of a plan that limits streams, else within a latency limit.
fn in_time_or_within(repeat: &Repeat, limit_us: f64) -> u64 {
    let within = || repeat.scheduled - missed(repeat, limit_us);
    repeat.in_time.unwrap_or_else(within)
}

/// Returns the share of all scheduled requests with a good reply within a limit; `None` if nothing was scheduled.
pub(crate) fn share(repeats: &[Repeat], limit_us: f64) -> Option<f64> {
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let in_time: u64 = repeats.iter().map(|repeat| in_time_or_within(repeat, limit_us)).sum();
    (scheduled > 0).then(|| in_time as f64 / scheduled as f64)
}

/// Returns the quantile of good replies that is the given quantile of all requests, if failed requests count as slower
/// than any reply; `None` if the quantile is among the failures.
pub(crate) fn among_good(repeats: &[Repeat], quantile: f64) -> Option<f64> {
    let sum = |of: fn(&Repeat) -> u64| repeats.iter().map(of).sum::<u64>() as f64;
    let (scheduled, completed) = (sum(|repeat| repeat.scheduled), sum(|repeat| repeat.completed));
    if scheduled == completed || repeats.iter().any(Repeat::has_failures_in_latency) {
        return Some(quantile);
    }
    Some(quantile * scheduled / completed).filter(|among| *among <= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Histograms, Outcome, Percentile, Sample, StreamedReply};
    use crate::statistics::percentile::histogram;

    #[test]
    fn slow_requests_cross_their_share_where_the_figure_crosses_its_limit() {
        let latencies: Vec<u64> = (0..1_000).map(|i| if i % 50 == 0 { 60_000 } else { 1_000 }).collect();
        let table = BlockTable::new([&[histogram(&latencies)][..]]);
        let mean_us = table.mean().unwrap();
        assert!((mean_us / 2_180.0 - 1.0).abs() < 0.001, "{mean_us}");
        for (limit, met) in [(0.9, false), (1.1, true)] {
            let p99 = Objective::Percentile {
                percentile: Percentile::P99,
                limit_us: 60_000.0 * limit,
            };
            let mean = Objective::Mean {
                mean_limit_us: 2_180.0 * limit,
            };
            let within = Objective::Goodput {
                goodput_share: 0.985,
                within_us: 60_000.0 * limit,
            };
            for objective in [p99, mean, within] {
                let us = measured_us(objective, &table).unwrap();
                assert_eq!(us < objective.limit_us(), met, "{objective}: {us}");
                assert_eq!(
                    slow_share(objective, &table) <= objective.slow_share(),
                    met,
                    "{objective}"
                );
            }
        }
    }

    /// Creates a window of 2 s with good replies of these latencies and `failed` immediate failures.
    fn repeat(latencies_us: &[u64], failed: u64, is_old: bool) -> Repeat {
        let at_once = vec![400; failed as usize];
        let old = [latencies_us, &at_once].concat();
        let completed = latencies_us.len() as u64;
        Repeat {
            window_s: 2.0,
            scheduled: completed + failed,
            completed,
            histograms: Histograms {
                latency: vec![histogram(if is_old { &old } else { latencies_us })],
                failed: if is_old { Vec::new() } else { vec![histogram(&at_once)] },
                ..Histograms::default()
            },
            ..Repeat::empty()
        }
    }

    fn of_stream(figure: StreamFigure, limit_us: f64) -> Objective {
        Objective::Stream {
            figure,
            percentile: Percentile::P50,
            limit_us,
        }
    }

    #[test]
    fn a_reply_is_in_time_by_all_objectives_at_once() {
        let reply = |done_us: u64, first_event_us: u64, gaps_us: &[u32]| StreamSample {
            sample: Sample {
                due_us: 100,
                sent_us: 150,
                done_us,
                outcome: Outcome::Ok,
                timings: None,
            },
            reply: StreamedReply {
                first_byte_us: first_event_us - 50,
                first_event_us,
                gaps_us: gaps_us.to_vec(),
                ..StreamedReply::default()
            },
        };
        let replies = [
            reply(1_000, 300, &[10, 30]),
            reply(1_000, 301, &[10, 30]),
            reply(1_000, 300, &[10, 31]),
            reply(1_101, 300, &[]),
        ];
        let objectives = [
            of_stream(StreamFigure::Ttft, 200.0),
            of_stream(StreamFigure::Gap, 20.0),
            Objective::Mean { mean_limit_us: 1_000.0 },
        ];
        let counts = [0, 1, 2, 3].map(|taken| in_time(&objectives[..taken], replies.iter()));
        assert_eq!(counts, [4, 3, 2, 1]);
        let first_byte = [of_stream(StreamFigure::FirstByte, 150.0)];
        assert_eq!(in_time(&first_byte, replies.iter()), 3);
    }

    #[test]
    fn slow_gaps_count_in_requests_and_failures_miss() {
        let gaps: Vec<u64> = (0..1_000).map(|i| if i < 250 { 60 } else { 20 }).collect();
        let mut one = repeat(&[5_000; 8], 2, false);
        one.histograms.streams.insert(StreamFigure::Gap, vec![histogram(&gaps)]);
        let ttft = of_stream(StreamFigure::Ttft, 1.0);
        assert_eq!(misses(&repeat(&[5_000; 8], 2, false), ttft), None, "nothing was timed");
        assert_eq!(misses(&repeat(&[], 2, false), ttft), Some(2.0));
        let gap = |limit_us| misses(&one, of_stream(StreamFigure::Gap, limit_us)).unwrap();
        assert_eq!((gap(60.0), gap(50.0), gap(10.0)), (2.0, 4.0, 10.0));
        // Nothing is known of replies without events.
        assert_eq!(misses(&one, ttft), Some(2.0));
        one.in_time = Some(3);
        assert_eq!((rate(&one, 1e9), share(&[one], 1e9)), (1.5, Some(0.3)));
    }

    #[test]
    fn every_failure_misses_however_fast_it_failed() {
        let all = [5_000, 5_000, 40_000, 60_000];
        for is_old in [false, true] {
            let one = repeat(&all, 6, is_old);
            assert_eq!(one.has_failures_in_latency(), is_old);
            assert_eq!(missed(&one, 50_000.0), 7);
            assert_eq!(missed(&one, 500.0), 10);
            assert!((rate(&one, 50_000.0) - 1.5).abs() < 1e-12);
            assert_eq!(share(&[one], 50_000.0), Some(0.3));
        }
        assert_eq!(missed(&repeat(&all, 0, false), 50_000.0), 1);
        assert_eq!(share(&[Repeat::empty()], 50_000.0), None);
    }

    #[test]
    fn a_quantile_of_all_requests_is_a_higher_one_of_the_good() {
        let all: Vec<u64> = (1..=990).collect();
        let among = |failed, quantile, is_old| among_good(&[repeat(&all, failed, is_old)], quantile);
        assert_eq!(among(0, 0.99, false), Some(0.99));
        assert_eq!(among(10, 0.99, false), Some(1.0));
        assert_eq!(among(11, 0.99, false), None, "more than one in a hundred failed");
        assert!((among(10, 0.5, false).unwrap() - 0.5 / 0.99).abs() < 1e-12);
        assert_eq!(among(10, 0.99, true), Some(0.99));
    }
}
