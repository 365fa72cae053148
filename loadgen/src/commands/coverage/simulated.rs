//! Repeats and points that never were, as the recorder would make them. In: latencies. Out: [`Repeat`]s and [`Point`]s.
//! Knows nothing of laws.

use std::collections::BTreeMap;
use tierlab_analysis::record::{Factors, Histograms, Interval, Mode, Point, Repeat};
use tierlab_analysis::statistics::histogram::histogram;

/// Time blocks of a repeat: enough for thirds and for the course within a window.
const BLOCKS: usize = 12;

/// Repeat at a rate, its requests independent.
pub(super) fn repeat(index: usize, latencies_us: &[f64], rps: f64) -> Repeat {
    let latencies: Vec<u64> = latencies_us.iter().map(|us| us.round() as u64).collect();
    let window_s = latencies.len() as f64 / rps;
    let repeat = answered(index as u32, &latencies, window_s, BLOCKS);
    Repeat {
        achieved_rps: rps,
        in_flight_by_stays: Some(repeat.mean_in_flight),
        ..repeat
    }
}

/// Repeat in which every request was sent in time and answered. `latencies` are in microseconds.
pub(super) fn answered(index: u32, latencies: &[u64], window_s: f64, blocks: usize) -> Repeat {
    let block = latencies.len().div_ceil(blocks).max(1);
    Repeat {
        index,
        attempt: 0,
        purpose: tierlab_analysis::record::Purpose::Explore,
        machine: None,
        disturbed: None,
        disturbed_before: Vec::new(),
        agents: Vec::new(),
        lost_before: Vec::new(),
        seed: u64::from(index),
        started_at: String::new(),
        window_s,
        scheduled: latencies.len() as u64,
        completed: latencies.len() as u64,
        errors: BTreeMap::new(),
        examples: BTreeMap::new(),
        achieved_rps: latencies.len() as f64 / window_s,
        in_flight_limit_hit: false,
        mean_in_flight: latencies.iter().sum::<u64>() as f64 / 1e6 / window_s,
        in_flight_by_stays: None,
        autocorrelation_time: 1.0,
        tail_autocorrelation_time: Some(1.0),
        backlog_slope: Interval::default(),
        bands: Vec::new(),
        server: None,
        mix_share: None,
        sent: None,
        closed_loop: None,
        journeys: None,
        goose: None,
        hdr_file: String::new(),
        histograms: Histograms {
            block_s: window_s / blocks as f64,
            latency: latencies.chunks(block).map(histogram).collect(),
            service: Vec::new(),
            lag: Vec::new(),
            failed: Vec::new(),
        },
    }
}

/// A point of these repeats.
pub(super) fn point(rps: f64, repeats: Vec<Repeat>) -> Point {
    Point {
        factors: factors(rps),
        repeats,
        summary: None,
    }
}

/// What tells a simulated point from others: its rate.
pub(super) fn factors(rps: f64) -> Factors {
    Factors {
        variant: String::new(),
        tier: "simulated".into(),
        cache: "none".into(),
        cache_share: 0.0,
        model: "none".into(),
        mode: Mode::Realtime,
        batch_size: 1,
        offered_rps: rps,
        arrivals: "poisson".into(),
        keys: "none".into(),
        mix: None,
        driven: None,
    }
}
