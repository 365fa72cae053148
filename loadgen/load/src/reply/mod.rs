//! Whether a reply is one: what it must look like, and whether it does.
//!
//! In: what a model's metadata declares, and every reply of a step, whole. Out: nothing, or what is wrong with it in words.
//! The model's name, each output's name, type and shape and the amount of its data are compared; values are not. Bytes are
//! walked once and nothing is built, so that a small reply costs well below a microsecond; it is done after a request's last
//! time was read. Knows neither connections nor what becomes of a wrong reply.

mod grpc;
mod json;
mod judged;
mod received;

pub use judged::{Judged, Missing};
pub use received::{Cut, Limit, METADATA_BYTES, METRICS_BYTES, Received, TooLarge, read};

use std::fmt::Display;
use tierlab_protocol::tensor::{DataType, TensorSpec};

/// A reply up to this long is checked at once; a longer one on a thread that nobody waits for.
pub const CHECKED_AT_ONCE_BYTES: usize = 64 << 10;
/// What a server says is quoted up to so many characters.
const QUOTED: usize = 120;

/// What is wrong with a reply, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

/// What a reply must look like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    model: String,
    /// In the metadata's order; empty where the metadata declares none.
    outputs: Vec<Output>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    name: String,
    dtype: DataType,
    /// `None` where it is free.
    dims: Vec<Option<u64>>,
}

/// One tensor of a reply, as far as it has been read.
#[derive(Debug, Clone, Default)]
struct Found<'a> {
    name: &'a [u8],
    dtype: &'a [u8],
    shape: Shape,
}

/// Tensors have few dimensions: no allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    dims: [u64; Self::MOST],
    rank: usize,
}

impl Shape {
    const MOST: usize = 16;

    fn push(&mut self, dim: u64) -> Result<(), Wrong> {
        let place = self.dims.get_mut(self.rank);
        *place.ok_or_else(|| wrong(format_args!("a shape of more than {} dimensions", Self::MOST)))? = dim;
        self.rank += 1;
        Ok(())
    }

    fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    /// `None` where it overflows.
    fn elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1_u64, |all, &dim| all.checked_mul(dim))
    }
}

impl Expected {
    /// Of a model with these outputs, asked for `rows` rows. A free first dimension is the rows, or with `rows` unknown as
    /// free as the others.
    #[must_use]
    pub fn new(model: &str, outputs: &[TensorSpec], rows: Option<u32>) -> Self {
        let dims = |shape: &[i64]| {
            let dim = |(axis, &dim): (usize, &i64)| match (axis, u64::try_from(dim)) {
                (_, Ok(dim)) => Some(dim),
                (0, Err(_)) => rows.map(u64::from),
                (_, Err(_)) => None,
            };
            shape.iter().enumerate().map(dim).collect()
        };
        Self {
            model: model.to_owned(),
            outputs: outputs
                .iter()
                .map(|spec| Output {
                    name: spec.name.clone(),
                    dtype: spec.dtype,
                    dims: dims(&spec.shape),
                })
                .collect(),
        }
    }

    /// Elements of all outputs together; `None` where a dimension is free or elements have no fixed size.
    #[must_use]
    pub fn elements(&self) -> Option<u64> {
        let of = |output: &Output| {
            output.dtype.size()?;
            output.dims.iter().try_fold(1_u64, |all, dim| all.checked_mul((*dim)?))
        };
        let all = self
            .outputs
            .iter()
            .try_fold(0_u64, |all, output| all.checked_add(of(output)?));
        all.filter(|_| !self.outputs.is_empty())
    }

    /// Checks the body of an HTTP reply, with binary tensors behind `json_len` bytes of JSON where there are any.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_http(&self, body: &[u8], json_len: Option<usize>) -> Result<(), Wrong> {
        json::check(self, body, json_len)
    }

    /// Checks the message of a gRPC reply.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_grpc(&self, message: &[u8]) -> Result<(), Wrong> {
        grpc::check(self, message)
    }

    fn model_is(&self, name: &[u8]) -> Result<(), Wrong> {
        if name == self.model.as_bytes() {
            return Ok(());
        }
        Err(wrong(format_args!(
            "the reply is of model `{}`, asked was `{}`",
            quoted(name),
            self.model
        )))
    }

    /// Holds the next tensor against what is declared, and says its type and how many elements it must have.
    fn tensor(&self, found: &Found<'_>, seen: &mut Seen) -> Result<(DataType, u64), Wrong> {
        let name = || quoted(found.name);
        let read = std::str::from_utf8(found.dtype)
            .ok()
            .and_then(|text| text.parse::<DataType>().ok());
        let dtype = read.ok_or_else(|| {
            wrong(format_args!(
                "output `{}` has no data type: `{}`",
                name(),
                quoted(found.dtype)
            ))
        })?;
        let elements = found
            .shape
            .elements()
            .ok_or_else(|| wrong(format_args!("output `{}` has shape {:?}", name(), found.shape.dims())))?;
        if self.outputs.is_empty() {
            seen.count += 1;
            return Ok((dtype, elements));
        }
        let output = self.declared(found.name, seen)?;
        if output.dtype != dtype {
            return Err(wrong(format_args!(
                "output `{}` is {dtype}, declared is {}",
                name(),
                output.dtype
            )));
        }
        let dims = found.shape.dims();
        let fits = |(dim, declared): (&u64, &Option<u64>)| declared.is_none_or(|declared| declared == *dim);
        if dims.len() != output.dims.len() || !dims.iter().zip(&output.dims).all(fits) {
            let declared = output
                .dims
                .iter()
                .map(|dim| dim.map_or_else(|| "free".to_owned(), |dim| dim.to_string()));
            let declared = declared.collect::<Vec<_>>().join(", ");
            return Err(wrong(format_args!(
                "output `{}` has shape {dims:?}, not [{declared}]",
                name()
            )));
        }
        Ok((dtype, elements))
    }

    /// The declared output of a name; each comes once.
    fn declared(&self, name: &[u8], seen: &mut Seen) -> Result<&Output, Wrong> {
        let is = |output: &Output| output.name.as_bytes() == name;
        // They mostly come in the metadata's order.
        let at = if self.outputs.get(seen.count).is_some_and(is) {
            Some(seen.count)
        } else {
            self.outputs.iter().position(is)
        };
        let Some((at, output)) = at.and_then(|at| Some((at, self.outputs.get(at)?))) else {
            return Err(wrong(format_args!("output `{}` is none of the model's", quoted(name))));
        };
        if !seen.add(at) {
            return Err(wrong(format_args!("output `{}` came twice", quoted(name))));
        }
        Ok(output)
    }

    fn all_came(&self, seen: &Seen) -> Result<(), Wrong> {
        if seen.count == 0 {
            return Err(wrong("the reply has no outputs"));
        }
        if self.outputs.is_empty() || seen.count == self.outputs.len() {
            return Ok(());
        }
        let missing = self.outputs.iter().enumerate().find(|(at, _)| !seen.has(*at));
        Err(wrong(format_args!(
            "output `{}` is missing",
            missing.map_or("", |(_, output)| &output.name)
        )))
    }
}

/// Which declared outputs came, told apart up to the 128th.
#[derive(Debug, Default)]
struct Seen {
    count: usize,
    which: u128,
}

impl Seen {
    /// `false` where it came already.
    fn add(&mut self, at: usize) -> bool {
        let is_new = !self.has(at);
        self.which |= Self::bit(at);
        self.count += 1;
        is_new
    }

    fn has(&self, at: usize) -> bool {
        self.which & Self::bit(at) != 0
    }

    fn bit(at: usize) -> u128 {
        u32::try_from(at)
            .ok()
            .and_then(|at| 1_u128.checked_shl(at))
            .unwrap_or(0)
    }
}

fn wrong(what: impl Display) -> Wrong {
    Wrong(what.to_string())
}

/// The start of what a server says, fit for a line of text.
fn quoted(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(4 * QUOTED)];
    let text = String::from_utf8_lossy(start);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(QUOTED).collect()
}

/// Data of `elements` elements of a type, as raw bytes.
fn check_raw(name: &[u8], dtype: DataType, elements: u64, raw: &[u8]) -> Result<(), Wrong> {
    let bytes = raw.len() as u64;
    let fits = match dtype.size() {
        Some(size) => elements.checked_mul(size as u64) == Some(bytes),
        None => strings(raw) == Some(elements),
    };
    if fits {
        return Ok(());
    }
    Err(wrong(format_args!(
        "output `{}` has {bytes} bytes for {elements} elements of {dtype}",
        quoted(name)
    )))
}

/// How many strings, each behind its length; `None` where they do not end with the bytes.
fn strings(mut raw: &[u8]) -> Option<u64> {
    let mut count = 0;
    while let Some((len, rest)) = raw.split_first_chunk::<4>() {
        raw = rest.get(u32::from_le_bytes(*len) as usize..)?;
        count += 1;
    }
    raw.is_empty().then_some(count)
}

#[cfg(test)]
mod tests;
