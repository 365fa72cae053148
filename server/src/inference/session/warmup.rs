//! Runs before a session takes requests: the first one allocates and plans, and a version that cannot run is refused.
//!
//! In: the samples of the model's config, with their files. Out: runs; the first sample that fails refuses the version.
//! Without samples there is one run on zeros. A graph that cannot run on zeros is served all the same: they may be no
//! input that makes sense to it. Where the model is batched, one run has several rows: a graph that gives back another
//! number of them is refused. A warm-up that takes too long is stopped from outside.

use super::engine::Engine;
use super::error::{Fault, RunError};
use crate::host::memory::is_for_memory;
use crate::request::parts::Part;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::model::{PROBE_ROWS, WarmupSample, WarmupTensor, sample_inputs, zero_inputs};

/// The warm-up of a model.
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
    /// The first sample that does not fit or does not run; an output of a batched model whose rows are not those of its
    /// inputs.
    pub(super) fn run(&self, engine: &mut Engine, max_batch_size: u32) -> Result<(), String> {
        // ONNX Runtime plans the memory of a run by the first one of its shapes, and takes shapes that differ in the rows of
        // an even number of inputs for the same: the first run has as many rows as most requests.
        if self.samples.is_empty() {
            on_zeros(engine, 1)?;
        }
        for sample in &self.samples {
            let failed = |what: String| format!("warm-up `{}`: {what}", sample.name);
            let parts = self.parts(engine, sample).map_err(failed)?;
            let rows = if engine.signature.batched {
                sample.batch_size as usize
            } else {
                1
            };
            for _ in 0..sample.count {
                run_once(engine, &parts, rows).map_err(|error| failed(error.message))?;
            }
        }
        if !self.samples.iter().any(|sample| sample.batch_size > 1) && max_batch_size > 1 {
            on_zeros(engine, PROBE_ROWS.min(max_batch_size))?;
        }
        Ok(())
    }

    pub(super) fn parts(&self, engine: &Engine, sample: &WarmupSample) -> Result<Vec<Part>, String> {
        let inputs = sample_inputs(sample, &self.files, &engine.signature)?;
        Ok(inputs.into_iter().map(part).collect())
    }
}

fn part(input: WarmupTensor) -> Part {
    Part {
        shape: input.shape,
        data: input.data.into(),
    }
}

/// Runs so many rows of zeros.
///
/// # Errors
/// Outputs that have another number of rows; a stop; no memory. That it does not run at all is only noted.
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
            tracing::warn!(error = %error.message, rows, "the model does not run on zeros: not warmed up");
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
