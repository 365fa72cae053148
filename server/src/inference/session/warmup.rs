//! Runs before a session takes requests: the first run allocates and plans, and a version that cannot run is refused.
//!
//! In: the samples of the model's config, with their files. Out: runs; the first sample that fails refuses the version.
//! Without samples there is one run on zeros. A graph that cannot run on zeros is served all the same, because zeros
//! may be invalid input. If the model is batched, one run has several rows: a graph whose outputs have another number
//! of rows is refused. A warm-up that takes too long is stopped from outside. After it, if requested, the fastest of a
//! few runs is timed: other work on the machine only makes a run slower.

use super::engine::Engine;
use super::{Fault, RunError};
use crate::host::memory::is_for_memory;
use crate::request::Part;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::model::{PROBE_ROWS, WarmupSample, WarmupTensor, sample_inputs, zero_bytes, zero_inputs};

/// Warm-up of a model.
#[derive(Debug, Default)]
pub(crate) struct Warmup {
    pub(crate) samples: Vec<WarmupSample>,
    /// Files of samples, by name.
    pub(crate) files: BTreeMap<String, Bytes>,
}

impl Warmup {
    /// Runs every sample.
    ///
    /// # Errors
    /// Fails at the first sample that does not match or run, or if an output of a batched model has other rows than its
    /// inputs.
    pub(super) fn run(&self, engine: &mut Engine, max_batch_size: u32) -> Result<(), String> {
        // ONNX Runtime plans memory by the first run of each shape, and treats shapes that differ in the rows of an
        // even number of inputs as equal. So the first run has as many rows as most requests.
        if self.samples.is_empty() {
            on_zeros(engine, 1)?;
        }
        for sample in &self.samples {
            let failed = |what: String| format!("warm-up `{}`: {what}", sample.name);
            let (parts, rows) = self.parts(engine, sample).map_err(failed)?;
            for _ in 0..sample.count {
                run_once(engine, &parts, rows).map_err(|error| failed(error.message))?;
            }
        }
        if !self.samples.iter().any(|sample| sample.batch_size > 1) && max_batch_size > 1 {
            on_zeros(engine, PROBE_ROWS.min(max_batch_size))?;
        }
        Ok(())
    }

    /// Inputs of a sample, and their number of rows.
    fn parts(&self, engine: &Engine, sample: &WarmupSample) -> Result<(Vec<Part>, usize), String> {
        let inputs = sample_inputs(sample, &self.files, &engine.signature)?;
        let rows = if engine.signature.batched { sample.batch_size } else { 1 };
        Ok((inputs.into_iter().map(part).collect(), rows as usize))
    }
}

fn part(WarmupTensor { shape, data }: WarmupTensor) -> Part {
    let data = data.into();
    Part { shape, data }
}

/// Runs the model on `rows` rows of zeros.
///
/// # Errors
/// Fails if outputs have another number of rows, when stopped, or without memory. If the model does not run at all,
/// only logs it.
fn on_zeros(engine: &mut Engine, rows: u32) -> Result<(), String> {
    let run = zero_inputs(&engine.signature, rows)
        .map(|inputs| inputs.into_iter().map(part).collect::<Vec<_>>())
        .map_err(RunError::from)
        .and_then(|parts| run_once(engine, &parts, rows as usize));
    match run {
        Err(error) if error.fault == Fault::Rows || is_for_memory(&error.message) => Err(error.message),
        Err(error) => {
            if let Some(why) = engine.control.active.stopped() {
                return Err(why.message);
            }
            tracing::warn!(error = %error.message, rows, "model does not run on zeros: not warmed up");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

pub(super) fn run_once(engine: &mut Engine, parts: &[Part], rows: usize) -> Result<(), RunError> {
    let active = Arc::clone(&engine.control.active);
    active.begin(&mut [], Instant::now()).map_err(|why| why.message)?;
    let run = catch_unwind(AssertUnwindSafe(|| engine.run_parts(&[parts], &[rows])));
    active.end(&mut []);
    match run {
        Ok(run) => run.map(drop),
        Err(_) => Err("the run panicked".to_owned().into()),
    }
}

/// Maximum runs.
const MAX_RUNS: usize = 5;
/// Sizes tried for free dimensions after the first: a short text, a small picture. If neither runs, the warm-up's sizes
/// are used.
const FREE_DIMS: [i64; 2] = [64, 1];

/// Time of a run. Only the first run may start after `budget`.
pub(super) fn fastest_run(engine: &mut Engine, warmup: &Warmup, budget: Duration) -> Option<Duration> {
    let began = Instant::now();
    if let Some(sample) = warmup.samples.first() {
        let (parts, rows) = warmup.parts(engine, sample).ok()?;
        return fastest(engine, &parts, rows, began + budget);
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

/// A row of zeros; free dimensions after the first have size `free`.
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
