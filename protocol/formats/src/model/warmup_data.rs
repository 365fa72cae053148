//! Tensors of a warm-up sample.
//!
//! In: a sample, its files, and the graph's signature. Out: shapes with raw little-endian elements, or the input that
//! does not fit. Random elements are the same every time.

use super::config::{WarmupData, WarmupInput, WarmupSample};
use super::signature::Signature;
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use half::{bf16, f16};
use std::collections::BTreeMap;
use tierlab_protocol::tensor::{DataType, TensorSpec, element_count};

/// Maximum bytes of one input of a sample.
pub const MAX_INPUT_BYTES: usize = 1 << 30;

/// Rows of the run that checks the outputs of a batched model. One row would not distinguish a batch from a sum over
/// it, nor two from the rank of a matrix.
pub const PROBE_ROWS: u32 = 3;

/// Input of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmupTensor {
    /// Shape, with the batch dimension if there is one.
    pub shape: Vec<i64>,
    /// Elements in the protocol's binary form.
    pub data: Vec<u8>,
}

/// Returns an input for each of the graph's; `files` are those of the folder `warmup`, by name.
///
/// # Errors
/// An input that the graph does not have, a shape that does not fit it, or a file of another size, by name.
pub fn sample_inputs(
    sample: &WarmupSample,
    files: &BTreeMap<String, Bytes>,
    signature: &Signature,
) -> Result<Vec<WarmupTensor>> {
    let is_input = |name: &String| signature.inputs.iter().any(|spec| spec.name == *name);
    if let Some(unknown) = sample.inputs.keys().find(|name| !is_input(name)) {
        bail!("the graph has no input `{unknown}`");
    }
    let batch = signature.batched.then(|| i64::from(sample.batch_size));
    let input = |spec: &TensorSpec| match sample.inputs.get(&spec.name) {
        Some(wanted) => declared_input(spec, wanted, files, batch),
        None => zeros(spec, batch),
    };
    let named = |spec: &TensorSpec| input(spec).map_err(|what| anyhow!("input `{}`: {what}", spec.name));
    signature.inputs.iter().map(named).collect()
}

/// Returns zeros for `rows` rows, or for one run if the model is not batched; free dimensions are 1.
///
/// # Errors
/// An input of more than [`MAX_INPUT_BYTES`].
pub fn zero_inputs(signature: &Signature, rows: u32) -> Result<Vec<WarmupTensor>> {
    let batch = signature.batched.then_some(i64::from(rows));
    signature.inputs.iter().map(|spec| zeros(spec, batch)).collect()
}

fn declared_input(
    spec: &TensorSpec,
    declared: &WarmupInput,
    files: &BTreeMap<String, Bytes>,
    batch: Option<i64>,
) -> Result<WarmupTensor> {
    let shape = match &declared.dims {
        Some(dims) => batch.iter().chain(dims).copied().collect(),
        None => free_as_one(spec, batch),
    };
    let mut dims = shape.iter().zip(&spec.shape);
    if shape.len() != spec.shape.len() || !dims.all(|(&have, &want)| want < 0 || have == want) {
        bail!("shape {shape:?} does not fit the graph's {:?}", spec.shape);
    }
    let data = match &declared.data {
        WarmupData::Zero => zero_bytes(spec.dtype, &shape)?,
        WarmupData::Random => random(spec.dtype, zero_bytes(spec.dtype, &shape)?),
        WarmupData::File(file) => {
            let bytes = files.get(file).with_context(|| format!("`{file}` was not read"))?;
            let rows = usize::try_from(batch.unwrap_or(1)).unwrap_or(usize::MAX);
            let expected_bytes = zero_bytes(spec.dtype, &shape)?.len();
            if spec.dtype != DataType::Bytes && bytes.len().checked_mul(rows) != Some(expected_bytes) {
                let row = expected_bytes / rows.max(1);
                bail!("`{file}` has {} bytes, one row has {row}", bytes.len());
            }
            bytes.repeat(rows)
        }
    };
    Ok(WarmupTensor { shape, data })
}

/// Returns a shape with free dimensions as 1 and the batch dimension set.
fn free_as_one(spec: &TensorSpec, batch: Option<i64>) -> Vec<i64> {
    let mut shape: Vec<i64> = spec.shape.iter().map(|&dim| if dim < 0 { 1 } else { dim }).collect();
    if let (Some(batch), Some(first)) = (batch, shape.first_mut()) {
        *first = batch;
    }
    shape
}

fn zeros(spec: &TensorSpec, batch: Option<i64>) -> Result<WarmupTensor> {
    let shape = free_as_one(spec, batch);
    let data = zero_bytes(spec.dtype, &shape)?;
    Ok(WarmupTensor { shape, data })
}

/// Zeros of a type and a shape.
///
/// # Errors
/// More than [`MAX_INPUT_BYTES`].
pub fn zero_bytes(dtype: DataType, shape: &[i64]) -> Result<Vec<u8>> {
    // An empty string is four zero bytes.
    let size = dtype.size().unwrap_or(4);
    let bytes = element_count(shape).and_then(|count| count.checked_mul(size));
    match bytes.filter(|&bytes| bytes <= MAX_INPUT_BYTES) {
        Some(bytes) => Ok(vec![0; bytes]),
        None => bail!("shape {shape:?} is more than {MAX_INPUT_BYTES} bytes"),
    }
}

/// Returns random elements instead of zeros: floats from 0 to 1, booleans, integers of any value. Strings stay empty.
/// The numbers are those of SplitMix64 (Steele, Lea, Flood 2014), with a fixed seed.
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
