//! Runs before a session takes requests: the first one allocates and plans, and a version that cannot run is refused.
//!
//! In: the samples of the model's config, with their files. Out: runs; the first sample that fails refuses the version.
//! Without samples there is one run on zeros. A graph that cannot run on zeros is served all the same: they may be no
//! input that makes sense to it. Where the model is batched, one run has several rows: a graph that gives back another
//! number of them is refused. A warm-up that takes too long is stopped from outside.

use super::engine::Engine;
use super::error::{Fault, RunError};
use crate::pipeline::batch::job::Part;
use bytes::Bytes;
use half::{bf16, f16};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tierlab_formats::model::{WarmupData, WarmupInput, WarmupSample};
use tierlab_protocol::tensor::{DataType, TensorSpec, element_count};

/// Bytes of one input of a sample at most.
const MAX_INPUT_BYTES: usize = 1 << 30;

/// Rows of the run that checks the outputs of a batched model. One row would not tell a batch from a sum over it, nor two
/// from the rank of a matrix.
const PROBE_ROWS: u32 = 3;

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
        let signature = &engine.signature;
        let known = |name: &String| signature.inputs.iter().any(|spec| spec.name == *name);
        if let Some(unknown) = sample.inputs.keys().find(|name| !known(name)) {
            return Err(format!("the graph has no input `{unknown}`"));
        }
        let batch = signature.batched.then(|| i64::from(sample.batch_size));
        let part = |spec: &TensorSpec| match sample.inputs.get(&spec.name) {
            Some(wanted) => self.part(spec, wanted, batch),
            None => zeros(spec, batch),
        };
        signature
            .inputs
            .iter()
            .map(|spec| part(spec).map_err(|what| format!("input `{}`: {what}", spec.name)))
            .collect()
    }

    fn part(&self, spec: &TensorSpec, wanted: &WarmupInput, batch: Option<i64>) -> Result<Part, String> {
        let shape = match &wanted.dims {
            Some(dims) => batch.iter().chain(dims).copied().collect(),
            None => free_as_one(spec, batch),
        };
        let fits = shape.len() == spec.shape.len()
            && shape
                .iter()
                .zip(&spec.shape)
                .all(|(&have, &want)| want < 0 || have == want);
        if !fits {
            return Err(format!("shape {shape:?} does not fit the graph's {:?}", spec.shape));
        }
        let data = match &wanted.data {
            WarmupData::Zero => zero_bytes(spec.dtype, &shape)?,
            WarmupData::Random => random(spec.dtype, zero_bytes(spec.dtype, &shape)?),
            WarmupData::File(file) => {
                let bytes = self.files.get(file).ok_or_else(|| format!("`{file}` was not read"))?;
                let rows = usize::try_from(batch.unwrap_or(1)).unwrap_or(usize::MAX);
                let whole = zero_bytes(spec.dtype, &shape)?.len();
                if spec.dtype != DataType::Bytes && bytes.len().checked_mul(rows) != Some(whole) {
                    let row = whole / rows.max(1);
                    return Err(format!("`{file}` has {} bytes, one row has {row}", bytes.len()));
                }
                bytes.repeat(rows)
            }
        };
        Ok(Part {
            shape,
            data: data.into(),
        })
    }
}

/// Runs so many rows of zeros.
///
/// # Errors
/// Outputs that have another number of rows; a stop. That it does not run at all is only noted.
fn on_zeros(engine: &mut Engine, rows: u32) -> Result<(), String> {
    let batch = engine.signature.batched.then_some(i64::from(rows));
    let parts = engine.signature.inputs.iter().map(|spec| zeros(spec, batch));
    let run = parts
        .collect::<Result<Vec<_>, _>>()
        .map_err(RunError::from)
        .and_then(|parts| run_once(engine, &parts, rows as usize));
    match run {
        Err(error) if error.fault == Fault::Rows => Err(error.message),
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

/// A shape with free dimensions as 1, the batch dimension set.
fn free_as_one(spec: &TensorSpec, batch: Option<i64>) -> Vec<i64> {
    let mut shape: Vec<i64> = spec.shape.iter().map(|&dim| if dim < 0 { 1 } else { dim }).collect();
    if let (Some(batch), Some(first)) = (batch, shape.first_mut()) {
        *first = batch;
    }
    shape
}

fn zeros(spec: &TensorSpec, batch: Option<i64>) -> Result<Part, String> {
    let shape = free_as_one(spec, batch);
    let data = zero_bytes(spec.dtype, &shape)?.into();
    Ok(Part { shape, data })
}

pub(super) fn zero_bytes(dtype: DataType, shape: &[i64]) -> Result<Vec<u8>, String> {
    // An empty string is four zero bytes.
    let size = dtype.size().unwrap_or(4);
    let bytes = element_count(shape).and_then(|count| count.checked_mul(size));
    match bytes.filter(|&bytes| bytes <= MAX_INPUT_BYTES) {
        Some(bytes) => Ok(vec![0; bytes]),
        None => Err(format!("shape {shape:?} is more than {MAX_INPUT_BYTES} bytes")),
    }
}

/// Random elements in the place of zeros: floats from 0 to 1, truth values, integers of any value. Strings stay empty.
/// The numbers are those of SplitMix64 (Steele, Lea, Flood 2014), the same ones every time.
fn random(dtype: DataType, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut state = 0_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let Some(size) = dtype.size() else { return bytes };
    for element in bytes.chunks_exact_mut(size) {
        let number = next();
        let unit = (number >> 40) as f32 / (1_u32 << 24) as f32;
        match dtype {
            DataType::Fp32 => element.copy_from_slice(&unit.to_le_bytes()),
            DataType::Fp64 => element.copy_from_slice(&f64::from(unit).to_le_bytes()),
            DataType::Fp16 => element.copy_from_slice(&f16::from_f32(unit).to_le_bytes()),
            DataType::Bf16 => element.copy_from_slice(&bf16::from_f32(unit).to_le_bytes()),
            DataType::Bool => element[0] = (number & 1) as u8,
            _ => element.copy_from_slice(&number.to_le_bytes()[..size]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_elements_are_of_their_type() {
        let bytes = random(DataType::Fp32, vec![0; 400]);
        let (floats, _) = bytes.as_chunks();
        let floats: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert!(floats.iter().all(|float| (0.0..1.0).contains(float)));
        assert!(floats.windows(2).any(|pair| pair[0] != pair[1]));
        assert!(random(DataType::Bool, vec![0; 50]).iter().all(|&byte| byte < 2));
        assert_eq!(random(DataType::Bytes, vec![0; 8]), [0; 8]);
        assert_ne!(random(DataType::Int64, vec![0; 8]), [0; 8]);
    }

    #[test]
    fn shapes_that_are_too_large_are_refused() {
        assert!(zero_bytes(DataType::Fp64, &[1 << 40]).is_err());
        assert!(zero_bytes(DataType::Fp64, &[i64::MAX, 2]).is_err());
        assert_eq!(zero_bytes(DataType::Bytes, &[3]).unwrap().len(), 12);
    }
}
