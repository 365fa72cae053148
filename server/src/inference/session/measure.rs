//! Run time of a single session.
//!
//! In: a warm session. Out: the fastest of a few runs, or `None` if it does not run on its input: the first sample of the
//! model's warm-up, else zeros. The fastest is used because other work on the machine only makes a run slower.

use super::engine::Engine;
use super::warmup::{Warmup, run_once};
use crate::request::parts::Part;
use std::time::{Duration, Instant};
use tierlab_formats::model::zero_bytes;

/// Runs at most.
const MAX_RUNS: usize = 5;
/// Sizes tried for free dimensions behind the first: a short text, a small picture. If neither runs, the warm-up's sizes are
/// used.
const FREE_DIMS: [i64; 2] = [64, 1];

/// The time of one run. No run begins after `budget`, but for the first.
pub(super) fn fastest_run(engine: &mut Engine, warmup: &Warmup, budget: Duration) -> Option<Duration> {
    let began = Instant::now();
    if let Some(sample) = warmup.samples.first() {
        let rows = if engine.signature.batched { sample.batch_size } else { 1 };
        let parts = warmup.parts(engine, sample).ok()?;
        return fastest(engine, &parts, rows as usize, began + budget);
    }
    FREE_DIMS.into_iter().find_map(|free| {
        let parts = zeros(engine, free)?;
        fastest(engine, &parts, 1, began + budget)
    })
}

fn fastest(engine: &mut Engine, parts: &[Part], rows: usize, until: Instant) -> Option<Duration> {
    let mut best: Option<Duration> = None;
    for _ in 0..MAX_RUNS {
        let began = Instant::now();
        run_once(engine, parts, rows).ok()?;
        let time = began.elapsed();
        best = Some(best.map_or(time, |best| best.min(time)));
        if Instant::now() >= until {
            break;
        }
    }
    best
}

/// One row of zeros, the free dimensions behind the first as `free`.
fn zeros(engine: &Engine, free: i64) -> Option<Vec<Part>> {
    let inputs = engine.signature.inputs.iter();
    let part = inputs.map(|spec| {
        let dims = spec.shape.iter().enumerate();
        let shape: Vec<i64> = dims
            .map(|(at, &dim)| match (at, dim) {
                (_, 0..) => dim,
                (0, _) => 1,
                _ => free,
            })
            .collect();
        let data = zero_bytes(spec.dtype, &shape).ok()?.into();
        Some(Part { shape, data })
    });
    part.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::session::tests as engines;

    #[test]
    fn a_run_is_timed_and_a_budget_that_is_out_leaves_one() {
        let [mut engine, _] = engines::engines();
        for budget in [Duration::ZERO, Duration::from_secs(1)] {
            let time = fastest_run(&mut engine, &Warmup::default(), budget);
            assert!(time.is_some_and(|time| time > Duration::ZERO));
        }
    }

    #[test]
    fn what_does_not_run_has_no_time() {
        let [mut engine, _] = engines::engines();
        engine.signature.inputs[0].shape = vec![-1, engines::WIDTH as i64 + 1];
        assert_eq!(
            fastest_run(&mut engine, &Warmup::default(), Duration::from_secs(1)),
            None
        );
        // A free dimension that the graph wants as 64.
        engine.signature.inputs[0].shape = vec![-1, -1];
        assert!(fastest_run(&mut engine, &Warmup::default(), Duration::from_secs(1)).is_some());
    }
}
