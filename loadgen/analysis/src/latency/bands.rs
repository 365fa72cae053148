//! Composition of a step's latency, and growth of its backlog.
//!
//! In: the samples of one step's window. Out: the mean composition of the latency per percentile band, and the slope of
//! the latency over the window. Knows nothing of verdicts, nor of other steps.

use crate::record::{Band, Interval, Reads, Repeat, Sample};
use crate::statistics::sections::mean_interval;
use crate::statistics::student::Z95;
use tierlab_protocol::timing::{Stage, StageTimings};

/// Bands: name, lower and upper share of the requests sorted by latency.
const BANDS: [(&str, f64, f64); 4] = [
    ("p0-50", 0.0, 0.5),
    ("p50-90", 0.5, 0.9),
    ("p90-99", 0.9, 0.99),
    ("p99-100", 0.99, 1.0),
];

/// Part of the latency before the request was sent.
pub const SEND_LAG: &str = "send_lag";
/// Part of the latency outside the server: connection, both transfers, and both HTTP stacks.
pub const NETWORK: &str = "network";
/// In older results, time after the send of failed requests, whose replies carried no server timing.
pub const UNATTRIBUTED: &str = "unattributed";
/// Time after the send of good replies, if the server does not report its stages.
pub const UNREPORTED: &str = "untold";

/// Blocks into which [`backlog_slope`] cuts a step.
const SLOPE_BLOCKS: usize = 20;
/// Minimum number of samples in a block.
const SLOPE_BLOCK_SAMPLES: usize = 5;
/// Slope without information: up to a second per second, as for a stalled server under an open loop.
const UNKNOWN_SLOPE: Interval = Interval::new(0.0, -1e6, 1e6);

/// Returns the mean composition of the latency of good replies per percentile band: `send_lag`, `network`, then the
/// server's stages, and `untold` last if replies without timing fall into the band. The parts of a band sum to its mean
/// latency. Bands without requests are left out.
pub fn bands(samples: &[Sample]) -> Vec<Band> {
    let mut sorted: Vec<&Sample> = samples.iter().collect();
    sorted.sort_by_key(|sample| sample.latency_us());
    let cut = |share: f64| (share * sorted.len() as f64).round() as usize;
    let cut = BANDS.map(|(name, from, to)| (name, &sorted[cut(from)..cut(to)]));
    let filled = cut.into_iter().filter(|(_, samples)| !samples.is_empty());
    filled.map(|(name, samples)| band(name, samples)).collect()
}

fn band(name: &str, samples: &[&Sample]) -> Band {
    let count = samples.len() as f64;
    let (mut latency, mut lag, mut network, mut unreported) = (0.0, 0.0, 0.0, 0.0);
    let mut stages = [0.0; Stage::COUNT];
    let (mut reads, mut timed) = (Reads::default(), 0.0);
    for sample in samples {
        latency += sample.latency_us() as f64;
        lag += sample.lag_us() as f64;
        let service = sample.service_us() as f64;
        match &sample.timings {
            Some(timings) => {
                // Rounding can make this a microsecond negative for one request; it stays, so that the sum holds.
                network += service - timings.total().as_micros() as f64;
                for stage in Stage::ALL {
                    stages[stage as usize] += timings.get(stage).as_micros() as f64;
                }
                add_reads(&mut reads, &reads_of(timings), 1.0);
                timed += 1.0;
            }
            None => unreported += service,
        }
    }
    let mut parts_us = vec![
        (SEND_LAG.to_owned(), lag / count),
        (NETWORK.to_owned(), network / count),
    ];
    parts_us.extend(Stage::ALL.map(|stage| (stage.as_str().to_owned(), stages[stage as usize] / count)));
    if unreported > 0.0 {
        parts_us.push((UNREPORTED.to_owned(), unreported / count));
    }
    let mut mean_reads = Reads::default();
    if timed > 0.0 {
        add_reads(&mut mean_reads, &reads, 1.0 / timed);
    }
    Band {
        name: name.to_owned(),
        count: samples.len() as u64,
        mean_us: latency / count,
        over_repeats_us: None,
        parts_us,
        reads: mean_reads,
    }
}

fn reads_of(timings: &StageTimings) -> Reads {
    let us = |time: std::time::Duration| time.as_micros() as f64;
    Reads {
        queue_us: us(timings.tier_split.queue),
        device_us: us(timings.tier_split.device),
        copy_us: us(timings.tier_split.copy),
        cache_hits: f64::from(timings.cache_hits),
        cache_misses: f64::from(timings.cache_misses),
        tier_requests: f64::from(timings.tier_requests),
    }
}

fn add_reads(into: &mut Reads, reads: &Reads, weight: f64) {
    into.queue_us += reads.queue_us * weight;
    into.device_us += reads.device_us * weight;
    into.copy_us += reads.copy_us * weight;
    into.cache_hits += reads.cache_hits * weight;
    into.cache_misses += reads.cache_misses * weight;
    into.tier_requests += reads.tier_requests * weight;
}

/// Merges the bands of several steps: means weighted by their requests.
pub fn merge<'a>(steps: impl IntoIterator<Item = &'a [Band]>) -> Vec<Band> {
    let mut merged: Vec<Band> = Vec::new();
    for band in steps.into_iter().flatten() {
        match merged.iter_mut().find(|existing| existing.name == band.name) {
            Some(existing) => absorb(existing, band),
            None => merged.push(band.clone()),
        }
    }
    let order = |band: &Band| BANDS.iter().position(|(name, ..)| *name == band.name);
    merged.sort_by_key(order);
    merged
}

/// Returns the bands of all repeats of a point. Every repeat is cut into bands by itself, so that a slow repeat does
/// not fill the slowest band alone. The intervals are over the repeats' means, on the scale of their logarithm as for
/// percentiles.
pub fn over_repeats(repeats: &[Repeat]) -> Vec<Band> {
    let mut bands = merge(repeats.iter().map(|repeat| repeat.bands.as_slice()));
    for band in &mut bands {
        let of_repeats = repeats.iter().flat_map(|repeat| &repeat.bands);
        let same = of_repeats.filter(|other| other.name == band.name);
        let means: Vec<f64> = same.map(|other| other.mean_us.max(1.0).ln()).collect();
        let mean_us = band.mean_us;
        band.over_repeats_us = mean_interval(&means).map(|interval| {
            // The mean over requests may differ from the mean over repeats.
            Interval::new(mean_us, interval.lo.exp().min(mean_us), interval.hi.exp().max(mean_us))
        });
    }
    bands
}

fn absorb(into: &mut Band, band: &Band) {
    let count = into.count + band.count;
    if count == 0 {
        return;
    }
    let (old, new) = (into.count as f64 / count as f64, band.count as f64 / count as f64);
    into.mean_us = into.mean_us * old + band.mean_us * new;
    for (_, us) in &mut into.parts_us {
        *us *= old;
    }
    for (name, us) in &band.parts_us {
        match into.parts_us.iter_mut().find(|(existing, _)| existing == name) {
            Some((_, sum)) => *sum += us * new,
            None => into.parts_us.push((name.clone(), us * new)),
        }
    }
    let reads = std::mem::take(&mut into.reads);
    add_reads(&mut into.reads, &reads, old);
    add_reads(&mut into.reads, &band.reads, new);
    into.count = count;
}

/// Returns the microseconds of a part, summed over all requests of some bands.
pub fn band_total(bands: &[Band], part: &str) -> f64 {
    bands.iter().map(|band| band.count as f64 * band.part_us(part)).sum()
}

/// Returns a figure of the reads behind some bands' replies, summed over their requests.
pub fn reads_total(bands: &[Band], of: fn(&Reads) -> f64) -> f64 {
    bands.iter().map(|band| band.count as f64 * of(&band.reads)).sum()
}

/// Returns the growth of the latency over the step, in microseconds per second of schedule, with its 95 % interval.
///
/// The requests are cut by due time into up to 20 blocks of equal count; the estimate is the median of the slopes
/// between every two block medians, and the interval is the rank interval of Kendall's tau (Theil 1950; Sen 1968, J.
/// Am. Stat. Assoc. 63). Medians and ranks keep a short stall from looking like a trend. With too few requests for four
/// blocks the slope is unknown, and the interval reaches a second per second to either side.
pub fn backlog_slope(samples: &[Sample]) -> Interval {
    let blocks = SLOPE_BLOCKS.min(samples.len() / SLOPE_BLOCK_SAMPLES);
    if blocks < 4 {
        return UNKNOWN_SLOPE;
    }
    let times = |sample: &Sample| (sample.due_us, sample.latency_us());
    let mut sorted: Vec<(u64, u64)> = samples.iter().map(times).collect();
    sorted.sort_unstable();
    let medians = |block: usize| {
        let block = &sorted[block * sorted.len() / blocks..(block + 1) * sorted.len() / blocks];
        let mut latencies: Vec<u64> = block.iter().map(|&(_, latency)| latency).collect();
        latencies.sort_unstable();
        let middle = block.len() / 2;
        (block[middle].0 as f64 / 1e6, latencies[middle] as f64)
    };
    let medians: Vec<(f64, f64)> = (0..blocks).map(medians).collect();
    let mut slopes = Vec::with_capacity(blocks * (blocks - 1) / 2);
    for (index, &(x, y)) in medians.iter().enumerate() {
        let later = medians[index + 1..].iter().filter(|next| next.0 > x);
        slopes.extend(later.map(|next| (next.1 - y) / (next.0 - x)));
    }
    if slopes.is_empty() {
        return UNKNOWN_SLOPE;
    }
    slopes.sort_by(f64::total_cmp);
    let (pairs, blocks) = (slopes.len() as f64, blocks as f64);
    let spread = Z95 * (blocks * (blocks - 1.0) * (2.0 * blocks + 5.0) / 18.0).sqrt();
    let at = |rank: f64| slopes[(rank.max(0.0) as usize).min(slopes.len() - 1)];
    let (lo, hi) = (((pairs - spread) / 2.0).floor() - 1.0, ((pairs + spread) / 2.0).ceil());
    Interval::new(at((pairs - 1.0) / 2.0), at(lo), at(hi))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::time::Duration;
    use tierlab_protocol::timing::StageTimings;

    fn sample(due_us: u64, lag_us: u64, service_us: u64, tier_us: Option<u64>) -> Sample {
        let timings = tier_us.map(|tier| {
            let mut timings = StageTimings::default();
            timings.add(Stage::Tier, Duration::from_micros(tier));
            timings
        });
        Sample {
            due_us,
            sent_us: due_us + lag_us,
            done_us: due_us + lag_us + service_us,
            outcome: Outcome::Ok,
            timings,
        }
    }

    fn part(band: &Band, name: &str) -> f64 {
        band.parts_us.iter().find(|(part, _)| part == name).unwrap().1
    }

    #[test]
    fn the_slow_band_says_what_made_it_slow() {
        let samples: Vec<Sample> = (0..1_000)
            .map(|i| {
                if i % 100 == 99 {
                    sample(i, 1, 9_999, Some(9_500))
                } else {
                    sample(i, 1, 99, Some(10))
                }
            })
            .collect();
        let bands = bands(&samples);
        assert_eq!(
            bands.iter().map(|band| band.count).collect::<Vec<_>>(),
            [500, 400, 90, 10]
        );
        let (fast, slow) = (&bands[0], &bands[3]);
        assert!((fast.mean_us - 100.0).abs() < 1e-9 && (part(fast, "network") - 89.0).abs() < 1e-9);
        assert!((slow.mean_us - 10_000.0).abs() < 1e-9);
        assert!((part(slow, "tier") - 9_500.0).abs() < 1e-9 && (part(slow, "network") - 499.0).abs() < 1e-9);
    }

    #[test]
    fn replies_without_timing_are_told_apart() {
        let bands = bands(&[sample(0, 5, 100, None), sample(1, 5, 100, Some(60))]);
        assert!((part(&bands[0], UNREPORTED) - 100.0).abs() < 1e-9);
        assert!(bands[0].parts_us.len() + bands[1].parts_us.len() == 21);
    }

    #[test]
    fn the_reads_behind_a_band_are_means_over_the_replies_that_told() {
        let told = |hits, misses, device_us| {
            let mut sample = sample(0, 0, 1_000, Some(900));
            let timings = sample.timings.as_mut().unwrap();
            (timings.cache_hits, timings.cache_misses, timings.tier_requests) = (hits, misses, misses);
            timings.tier_split.device = Duration::from_micros(device_us);
            sample
        };
        let all = [told(3, 1, 800), told(1, 3, 400), sample(0, 0, 1_000, None)];
        let reads = band("all", &all.iter().collect::<Vec<_>>()).reads;
        assert_eq!(
            (reads.cache_hits, reads.cache_misses, reads.tier_requests),
            (2.0, 2.0, 2.0)
        );
        assert_eq!((reads.queue_us, reads.device_us), (0.0, 600.0));
        // Two steps, one with twice the requests of the other.
        let [one, two] = [vec![told(6, 0, 90)], vec![told(0, 0, 0); 2]].map(|step| {
            let step: Vec<&Sample> = step.iter().collect();
            [band("p0-50", &step)]
        });
        let merged = merge([&one[..], &two[..]]);
        assert_eq!((merged[0].reads.cache_hits, merged[0].reads.device_us), (2.0, 30.0));
    }

    #[test]
    fn the_interval_of_a_band_is_over_the_repeats() {
        let repeat = |us: u64| Repeat {
            bands: bands(&vec![sample(0, 0, us, None); 100]),
            ..Repeat::empty()
        };
        let all = over_repeats(&[repeat(90), repeat(100), repeat(110)]);
        // Student's t for two degrees of freedom: the logarithms are 4.6017 ± 4.303 × 0.10040 / sqrt(3).
        for band in &all {
            let interval = band.over_repeats_us.unwrap();
            assert!((interval.value - 100.0).abs() < 1e-9);
            assert!(
                (interval.hi - 127.9).abs() < 0.2 && (interval.lo - 77.6).abs() < 0.2,
                "{interval:?}"
            );
        }
        assert_eq!(all.len(), 4);
        assert!(
            over_repeats(&[repeat(90)])
                .iter()
                .all(|band| band.over_repeats_us.is_none())
        );
        assert_eq!(over_repeats(&[]), []);
    }

    #[test]
    fn nothing_has_no_bands_and_an_unknown_slope() {
        assert_eq!(bands(&[]), []);
        assert_eq!(merge([]), []);
        assert_eq!(backlog_slope(&[]), UNKNOWN_SLOPE);
        assert_eq!(backlog_slope(&vec![sample(7, 0, 10, None); 200]), UNKNOWN_SLOPE);
    }

    #[test]
    fn a_growing_backlog_is_measured_and_a_stall_is_not_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut run = |latency: &dyn Fn(u64) -> u64| {
            let samples: Vec<Sample> = (0..2_000)
                .map(|i| sample(i * 5_000, 0, latency(i) + rng.random_range(0..2_000), None))
                .collect();
            backlog_slope(&samples)
        };
        // 10 s in which the latency grows by 50 ms a second.
        let growing = run(&|i| 1_000 + i * 250);
        assert!((growing.value - 50_000.0).abs() < 500.0 && growing.lo > 49_000.0 && growing.hi < 51_000.0);
        let flat = run(&|_| 1_000);
        assert!(flat.lo < 0.0 && flat.hi > 0.0 && flat.value.abs() < 100.0);
        // One stall of half a second in the middle.
        let stalled = run(&|i| {
            if (1_000..1_100).contains(&i) {
                500_000 - (i - 1_000) * 5_000
            } else {
                1_000
            }
        });
        assert!(stalled.lo < 0.0 && stalled.hi > 0.0 && stalled.value.abs() < 200.0);
    }

    #[test]
    fn flat_steps_rarely_seem_to_grow() {
        let grown = (0..200)
            .filter(|&seed| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let samples: Vec<Sample> = (0..400)
                    .map(|i| sample(i * 10_000, 0, rng.random_range(500..50_000), None))
                    .collect();
                backlog_slope(&samples).lo > 0.0
            })
            .count();
        assert!(
            grown <= 10,
            "{grown} of 200 flat steps had a slope above zero; 2.5 % are expected"
        );
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_mean_and_counts_to_all(
            samples in prop::collection::vec((0_u64..5_000, 0_u64..90_000, prop::option::of(0_u64..90_000)), 1..300),
            split in 0_usize..300,
        ) {
            let samples: Vec<Sample> = samples
                .iter()
                .zip(0_u64..)
                .map(|(&(lag, service, tier), due)| sample(due, lag, service, tier.map(|tier| tier.min(service))))
                .collect();
            let (left, right) = samples.split_at(split.min(samples.len()));
            for bands in [bands(&samples), merge([&bands(left)[..], &bands(right)[..]])] {
                prop_assert_eq!(bands.iter().map(|band| band.count).sum::<u64>(), samples.len() as u64);
                for band in bands {
                    let sum: f64 = band.parts_us.iter().map(|(_, us)| us).sum();
                    prop_assert!((sum - band.mean_us).abs() < 1e-6 * band.mean_us.max(1.0));
                }
            }
        }

        #[test]
        fn the_slope_lies_in_its_interval(
            samples in prop::collection::vec((0_u64..10_000_000, 0_u64..1_000_000), 0..300),
        ) {
            let samples: Vec<Sample> = samples.iter().map(|&(due, service)| sample(due, 0, service, None)).collect();
            let slope = backlog_slope(&samples);
            prop_assert!(slope.lo <= slope.value && slope.value <= slope.hi);
        }
    }
}
