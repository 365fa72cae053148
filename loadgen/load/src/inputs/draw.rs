//! Random tensors of one request: dimensions first, dependent dimensions after them, then elements.
//!
//! In: the source of each input, and a seeded generator. Out: tensors. Knows nothing of encodings.

use super::recorded::fits;
use super::records::Records;
use super::resolved::{Inputs, Source, TypedRequest, Wanted};
use super::rule::{Dim, Law, Lengths, Values};
use crate::element::{self, Number};
use anyhow::{Result, anyhow, bail};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal};
use std::ops::Range;
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::{DataType, element_count};

/// Maximum size of one input of one request, because its shape may come from a server.
const INPUT_BYTES: usize = 256 << 20;
/// Maximum letters of a random word.
const WORD_LETTERS: u32 = 10;

/// Request to draw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Number of the request, from 0.
    pub(super) index: usize,
    /// Rows of the load.
    pub(super) rows: u32,
}

impl Inputs {
    /// Returns the tensors of a request, in the order of the model's inputs.
    pub(super) fn draw(&self, slot: Slot, rng: &mut ChaCha8Rng) -> Result<Vec<Tensor>> {
        let shapes = self.shapes(slot, rng)?;
        let mut tensors = Vec::with_capacity(self.wanted.len());
        for (index, (want, shape)) in self.wanted.iter().zip(shapes).enumerate() {
            let tensor = match &want.source {
                Source::Recorded => self.recorded_tensor(index, slot)?,
                Source::Generated { values, .. } => generate(want, &shape, values, slot, rng)?,
            };
            tensors.push(tensor);
        }
        Ok(tensors)
    }

    fn shapes(&self, slot: Slot, rng: &mut ChaCha8Rng) -> Result<Vec<Vec<u64>>> {
        let mut shapes = Vec::with_capacity(self.wanted.len());
        for (index, want) in self.wanted.iter().enumerate() {
            shapes.push(match &want.source {
                Source::Recorded => unsigned(&self.recorded_tensor(index, slot)?.shape),
                Source::Generated { dims: Some(dims), .. } => {
                    dims.iter().map(|dim| size(dim, slot, rng)).collect::<Result<_, _>>()?
                }
                Source::Generated {
                    values: Values::File(records),
                    ..
                } => stacked(want, records, slot)?.0,
                Source::Generated { .. } => Vec::new(),
            });
        }
        for (index, want) in self.wanted.iter().enumerate() {
            for (axis, dim) in want.source.dims().into_iter().flatten().enumerate() {
                let Dim::SameAs { input, axis: of } = dim else { continue };
                let named = |name: &String| self.wanted.iter().position(|want| want.spec.name == *name);
                let at = input.as_ref().and_then(named).unwrap_or(index);
                shapes[index][axis] = shapes[at].get(*of).copied().unwrap_or(0);
            }
        }
        for (want, shape) in self.wanted.iter().zip(&shapes) {
            let (name, declared) = (&want.spec.name, &want.spec.shape);
            if !fits(&signed(shape), declared) {
                bail!("`inputs.tensor.{name}`: a request has shape {shape:?}, the model's is {declared:?}");
            }
        }
        Ok(shapes)
    }

    /// Returns the recorded tensor of an input: of one request, or of as many consecutive requests as the load has
    /// rows.
    fn recorded_tensor(&self, index: usize, slot: Slot) -> Result<Tensor> {
        let typed: &[TypedRequest] = self.recorded.as_deref().unwrap_or_default();
        let rows = slot.rows as usize;
        let part = |row: usize| {
            let request = &typed[(slot.index * rows + row) % typed.len()];
            request.tensors.get(index).and_then(Option::as_ref)
        };
        let Some(first) = part(0) else {
            bail!("input `{}` is not recorded", self.wanted[index].spec.name);
        };
        let mut tensor = first.clone();
        if rows == 1 {
            return Ok(tensor);
        }
        let mut data = tensor.data.into_whole().to_vec();
        for row in 1..rows {
            let Some(next) = part(row) else { continue };
            if next.shape.get(1..) != first.shape.get(1..) {
                let (name, shape, other) = (&first.name, &first.shape, &next.shape);
                bail!(
                    "`load.batch_sizes`: cannot combine {rows} recorded requests into one: input `{name}` has shapes \
                     {shape:?} and {other:?}; measure mode \"realtime\", or record equal shapes"
                );
            }
            tensor.shape[0] += next.shape[0];
            data.extend_from_slice(&next.data.whole());
        }
        tensor.data = data.into();
        Ok(tensor)
    }
}

fn signed(shape: &[u64]) -> Vec<i64> {
    shape.iter().map(|dim| i64::try_from(*dim).unwrap_or(-1)).collect()
}

pub(super) fn unsigned(shape: &[i64]) -> Vec<u64> {
    shape.iter().map(|dim| u64::try_from(*dim).unwrap_or(0)).collect()
}

fn size(dim: &Dim, slot: Slot, rng: &mut ChaCha8Rng) -> Result<u64> {
    Ok(match dim {
        Dim::Rows => slot.rows.into(),
        Dim::Fixed(size) => *size,
        Dim::Choices(sizes) => sizes[rng.random_range(0..sizes.len())],
        Dim::Draw(lengths) => length(lengths, rng)?,
        Dim::Listed { lengths, .. } => lengths[slot.index % lengths.len()],
        // Set once the other dimension is known.
        Dim::SameAs { .. } => 0,
    })
}

pub(crate) fn length(lengths: &Lengths, rng: &mut ChaCha8Rng) -> Result<u64> {
    let drawn = match lengths.law {
        Law::Uniform => rng.random_range(lengths.least..=lengths.most),
        Law::Lognormal { median, sigma } => {
            let normal = Normal::new(median.ln(), sigma).map_err(|error| anyhow!("a lognormal length: {error}"))?;
            // Saturates.
            normal.sample(rng).exp().round() as u64
        }
    };
    Ok(drawn.clamp(lengths.least, lengths.most))
}

/// Returns the shape of a file's records in a request, and the chosen records.
fn stacked(want: &Wanted, records: &Records, slot: Slot) -> Result<(Vec<u64>, Range<usize>)> {
    let declared = &want.spec.shape;
    let name = &want.spec.name;
    let at = |what: String| anyhow!("`inputs.tensor.{name}.values`: {}: {what}", records.source);
    let (first, _) = records.get(0);
    // An array whose first dimension is one of the model's own.
    if first.len() + 1 == declared.len()
        && declared.first().is_some_and(|dim| *dim >= 0)
        && let Some(shape) = records.shape()
    {
        return Ok((shape, 0..records.count()));
    }
    if first.len() == declared.len() {
        if slot.rows > 1 {
            return Err(at(format!(
                "each record is a complete input of shape {first:?} and cannot hold {} rows: measure mode \"realtime\"",
                slot.rows
            )));
        }
        let (shape, _) = records.get(slot.index);
        return Ok((shape, slot.index..slot.index + 1));
    }
    // Flat rows of the model: a text for [-1, 1], pixels in a list for [-1, 3, 224, 224].
    let size = |dims: &[u64]| dims.iter().product::<u64>();
    let tail = declared.get(1..).unwrap_or_default().iter();
    let tail: Option<Vec<u64>> = tail.map(|dim| u64::try_from(*dim).ok()).collect();
    let tail = tail.filter(|tail| !declared.is_empty() && size(tail) == size(&first));
    if first.len() + 1 != declared.len() && tail.is_none() {
        return Err(at(format!(
            "a record has shape {first:?}, the model's input is {declared:?}"
        )));
    }
    let (rows, begin) = (slot.rows as usize, slot.index * slot.rows as usize);
    let (shape, _) = records.get(begin);
    for row in begin..begin + rows {
        let (other, _) = records.get(row);
        if other != shape {
            return Err(at(format!(
                "rows {begin} and {row} have shapes {shape:?} and {other:?}, which one request cannot hold: measure mode \
                 \"realtime\", or pad them in the file"
            )));
        }
    }
    if tail.as_ref().is_some_and(|tail| size(tail) != size(&shape)) {
        return Err(at(format!(
            "row {begin} has shape {shape:?}, the model's input is {declared:?}"
        )));
    }
    let row = tail.unwrap_or(shape);
    let shape = std::iter::once(u64::from(slot.rows)).chain(row).collect();
    Ok((shape, begin..begin + rows))
}

fn generate(want: &Wanted, shape: &[u64], values: &Values, slot: Slot, rng: &mut ChaCha8Rng) -> Result<Tensor> {
    let spec = &want.spec;
    let signed = signed(shape);
    let too_large = || {
        anyhow!(
            "input `{}` of shape {shape:?} exceeds {} MiB in one request",
            spec.name,
            INPUT_BYTES >> 20
        )
    };
    let count = element_count(&signed).ok_or_else(too_large)?;
    // A string takes four bytes and more.
    let bytes = count.checked_mul(spec.dtype.size().unwrap_or(4));
    let bytes = bytes.filter(|bytes| *bytes <= INPUT_BYTES).ok_or_else(too_large)?;
    let data = match values {
        Values::File(records) if want.source.dims().is_none() => records.bytes(stacked(want, records, slot)?.1),
        Values::File(records) => filled(want, records, shape, count, slot)?,
        _ => elements(spec.dtype, values, count, bytes, rng).ok_or_else(too_large)?,
    };
    Ok(Tensor {
        name: spec.name.clone(),
        dtype: spec.dtype,
        shape: signed,
        data: data.into(),
    })
}

/// Returns the values of as many records as fill a shape from the plan.
fn filled(want: &Wanted, records: &Records, shape: &[u64], count: usize, slot: Slot) -> Result<Vec<u8>> {
    let of = |index: usize| records.get(index).0.iter().product::<u64>() as usize;
    let per_request = count / of(0).max(1);
    let first = slot.index * per_request;
    let range = first..first + per_request;
    if range.clone().map(of).sum::<usize>() == count {
        return Ok(records.bytes(range));
    }
    let record = first % records.count();
    Err(anyhow!(
        "`inputs.tensor.{}.values`: {}: record {record} has shape {:?}, and the request's shape {shape:?} is not a \
         multiple of it",
        want.spec.name,
        records.source,
        records.get(record).0
    ))
}

/// Draws elements; `None` if texts together exceed the size of an input.
fn elements(dtype: DataType, values: &Values, count: usize, bytes: usize, rng: &mut ChaCha8Rng) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(bytes);
    match values {
        Values::Zeros => data.resize(bytes, 0),
        Values::Uniform { from, to } => each(dtype, count, &mut data, || from + (to - from) * rng.random::<f64>()),
        Values::Normal { mean, sd } => {
            let normal = Normal::new(*mean, *sd).ok()?;
            each(dtype, count, &mut data, || normal.sample(rng));
        }
        // Pixels: the whole range of a byte at once.
        Values::Integers { least: 0, most: 255 } if dtype == DataType::Uint8 => {
            data.resize(bytes, 0);
            rng.fill(&mut data[..]);
        }
        Values::Integers { least, most } => {
            for _ in 0..count {
                element::push(dtype, Number::Int(rng.random_range(*least..=*most)), &mut data);
            }
        }
        Values::Words { least, most } | Values::TextBytes { least, most } => {
            for _ in 0..count {
                let amount = rng.random_range(*least..=*most);
                let text = match values {
                    Values::Words { .. } => words(amount, rng),
                    _ => letters(amount, rng),
                };
                element::push_bytes(text.as_bytes(), &mut data);
                if data.len() > INPUT_BYTES {
                    return None;
                }
            }
        }
        Values::File(_) => return None,
    }
    Some(data)
}

/// Appends floats, as near as the type allows.
fn each(dtype: DataType, count: usize, data: &mut Vec<u8>, mut value: impl FnMut() -> f64) {
    for _ in 0..count {
        let drawn = value();
        if !element::push(dtype, Number::Float(drawn), data) {
            // Beyond the type's largest value.
            element::push(dtype, Number::Float(f64::INFINITY.copysign(drawn)), data);
        }
    }
}

pub(crate) fn words(count: u32, rng: &mut ChaCha8Rng) -> String {
    let word = |_| {
        let length = rng.random_range(2..=WORD_LETTERS);
        letters(length, rng)
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

fn letters(count: u32, rng: &mut ChaCha8Rng) -> String {
    (0..count).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
}
