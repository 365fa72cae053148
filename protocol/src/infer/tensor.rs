//! A tensor with its data.

use super::BadRequest;
use super::MAX_EMPTY_ELEMENTS;
use super::data::Data;
use crate::tensor::{DataType, element_count};

/// Role of a request's tensors in messages.
pub(crate) const INPUT: &str = "input";

/// A tensor with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name of the input or output.
    pub name: String,
    /// Element type.
    pub dtype: DataType,
    /// Dimensions, none of them negative.
    pub shape: Vec<i64>,
    /// Row-major little-endian elements; an element of `BYTES` is its length as u32 LE, then its bytes.
    pub data: Data,
}

impl Tensor {
    /// True if the tensor can be written as JSON: `FP16` and `BF16` are binary only, and `BYTES` must be UTF-8.
    pub fn has_json_form(&self) -> bool {
        match self.dtype {
            DataType::Fp16 | DataType::Bf16 => false,
            DataType::Bytes => {
                bytes_elements(&self.data.whole()).all(|e| e.is_ok_and(|e| std::str::from_utf8(e).is_ok()))
            }
            _ => true,
        }
    }

    /// Checks that the data fits type and shape; `role` (`input`, `output`) goes into the message.
    pub(crate) fn check(&self, role: &str) -> Result<(), BadRequest> {
        let bad = |detail: String| Err(BadRequest(format!("{role} `{}`: {detail}", self.name)));
        let (shape, dtype) = (&self.shape, self.dtype);
        let Some(count) = element_count(shape) else {
            return bad(format!("`shape` {shape:?} has a negative dimension or is too large"));
        };
        if role == INPUT && count == 0 && !self.is_small_beside_zeros() {
            return bad(format!(
                "`shape` {shape:?} has a 0, and its other dimensions exceed {MAX_EMPTY_ELEMENTS} elements"
            ));
        }
        let Some(size) = dtype.size() else {
            let mut found = 0_usize;
            for element in bytes_elements(&self.data.whole()) {
                if element.is_err() {
                    return bad(format!("BYTES element {found} ends past the tensor's data"));
                }
                found += 1;
            }
            return match found == count {
                true => Ok(()),
                false => bad(format!(
                    "{found} BYTES elements, but `shape` {shape:?} requires {count}"
                )),
            };
        };
        let len = self.data.len();
        if count.checked_mul(size) != Some(len) {
            return bad(format!(
                "{len} bytes of data, but `shape` {shape:?} of {dtype} requires {count} elements of {size} bytes"
            ));
        }
        if dtype == DataType::Bool && self.data.pieces().any(|piece| piece.iter().any(|&b| b > 1)) {
            return bad("invalid BOOL element: use 0 or 1".into());
        }
        Ok(())
    }

    /// True if the product of the non-zero dimensions is at most [`MAX_EMPTY_ELEMENTS`].
    fn is_small_beside_zeros(&self) -> bool {
        let others: Vec<i64> = self.shape.iter().copied().filter(|&dim| dim != 0).collect();
        element_count(&others).is_some_and(|count| count <= MAX_EMPTY_ELEMENTS)
    }
}

/// Appends an element of `BYTES`: its length, then its bytes; returns `false` if it is longer than the protocol allows.
pub fn push_bytes(element: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(len) = u32::try_from(element.len()) else {
        return false;
    };
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(element);
    true
}

/// Iterates over the elements of a `BYTES` tensor's data; a truncated element is an error and the last item.
pub fn bytes_elements(data: &[u8]) -> impl Iterator<Item = Result<&[u8], BadRequest>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let element = rest.split_first_chunk::<4>().and_then(|(len, tail)| {
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            tail.split_at_checked(len)
        });
        let Some((element, tail)) = element else {
            rest = &[];
            return Some(Err(BadRequest("a BYTES element is cut off".into())));
        };
        rest = tail;
        Some(Ok(element))
    })
}
