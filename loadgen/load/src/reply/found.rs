//! Contents found in a reply, tensor by tensor, and its faults in words.

use std::fmt::Display;
use tierlab_analysis::record::Failure;
use tierlab_protocol::tensor::DataType;

/// Maximum characters quoted from a reply.
const QUOTED: usize = 120;

/// Fault of a reply, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Wrong {
    what: String,
    /// True if the reply has the model's form but wrong values.
    is_value: bool,
}

impl Wrong {
    /// Returns the kind of failure.
    #[must_use]
    pub const fn failure(&self) -> Failure {
        if self.is_value {
            Failure::WrongValue
        } else {
            Failure::WrongReply
        }
    }
}

/// Tensor of a reply, as far as it has been read.
#[derive(Debug, Clone, Default)]
pub(super) struct Found<'a> {
    pub(super) name: &'a [u8],
    pub(super) dtype: &'a [u8],
    pub(super) shape: Shape,
}

/// Shape in place: tensors have few dimensions, so no allocation is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    dims: [u64; Self::MOST],
    rank: usize,
}

impl Shape {
    const MOST: usize = 16;

    pub(super) fn push(&mut self, dim: u64) -> Result<(), Wrong> {
        let place = self.dims.get_mut(self.rank);
        *place.ok_or_else(|| wrong(format_args!("a shape of more than {} dimensions", Self::MOST)))? = dim;
        self.rank += 1;
        Ok(())
    }

    pub(super) fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    /// Returns the number of elements; `None` on overflow.
    pub(super) fn elements(&self) -> Option<u64> {
        self.dims().iter().try_fold(1_u64, |all, &dim| all.checked_mul(dim))
    }
}

pub(super) fn wrong(what: impl Display) -> Wrong {
    Wrong {
        what: what.to_string(),
        is_value: false,
    }
}

pub(super) fn wrong_value(what: impl Display) -> Wrong {
    Wrong {
        what: what.to_string(),
        is_value: true,
    }
}

/// Returns the start of a server's message as a printable line.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let start = &bytes[..bytes.len().min(4 * QUOTED)];
    let text = String::from_utf8_lossy(start);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(QUOTED).collect()
}

/// Checks the data of `elements` elements of a type, as raw bytes.
pub(super) fn check_raw(name: &[u8], dtype: DataType, elements: u64, raw: &[u8]) -> Result<(), Wrong> {
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

/// Returns the number of length-prefixed strings; `None` if they do not end with the bytes.
fn strings(mut raw: &[u8]) -> Option<u64> {
    let mut count = 0;
    while let Some((len, rest)) = raw.split_first_chunk::<4>() {
        raw = rest.get(u32::from_le_bytes(*len) as usize..)?;
        count += 1;
    }
    raw.is_empty().then_some(count)
}
