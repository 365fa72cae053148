//! The two parts of a body: JSON, and the binary data after it.

use super::data::Data;
use super::json::WireTensor;
use super::tensor::Tensor;
use super::{BadRequest, MemoryBudget, OVER_BUDGET};
use crate::tensor::DataType;
use std::borrow::Cow;

/// Splits a body after `json_len` bytes into its JSON and its binary data; without `json_len`, all of it is JSON.
pub(super) fn split<'a>(
    body: &'a Data,
    json_len: Option<usize>,
    budget: &dyn MemoryBudget,
) -> Result<(Cow<'a, [u8]>, Option<Data>), BadRequest> {
    let total = body.len();
    let gather = |bytes| match budget.take(bytes) {
        true => Ok(()),
        false => Err(BadRequest(OVER_BUDGET.to_owned())),
    };
    let Some(len) = json_len else {
        if !body.is_whole() {
            gather(total)?;
        }
        return Ok((body.whole(), None));
    };
    if len > total {
        let what = format!("Inference-Header-Content-Length is {len}, but the body has {total} bytes");
        return Err(BadRequest(what));
    }
    let json = match body.pieces().next().and_then(|first| first.get(..len)) {
        Some(json) => Cow::Borrowed(json),
        None => {
            gather(len)?;
            Cow::Owned(body.slice(0..len).into_whole().into())
        }
    };
    Ok((json, Some(body.slice(len..total))))
}

/// Gives each tensor its data: from JSON, or the next bytes of `binary`. `role` is `input` or `output`.
pub(super) fn tensors(
    wire: Vec<WireTensor>,
    binary: Option<Data>,
    role: &str,
    budget: &dyn MemoryBudget,
) -> Result<Vec<Tensor>, BadRequest> {
    let is_split = binary.is_some();
    let mut tail = binary.unwrap_or_default();
    let mut tensors: Vec<Tensor> = Vec::with_capacity(wire.len());
    for tensor in wire {
        let bad = |what: &str| BadRequest(format!("{role} `{}`: {what}", tensor.name));
        let data = match (tensor.data, tensor.binary_data_size) {
            (Some(data), None) => Data::from(data),
            (None, Some(_)) if !is_split => {
                return Err(bad(
                    "`binary_data_size` requires the Inference-Header-Content-Length header with the start of the \
                     binary data",
                ));
            }
            (None, Some(size)) => {
                let left = tail.len();
                let len = usize::try_from(size).unwrap_or(usize::MAX);
                if len > left {
                    let what = format!("`binary_data_size` is {size}, but {left} bytes are left in the body");
                    return Err(bad(&what));
                }
                let data = tail.split_to(len);
                // Elements of any length are read one by one, from one piece.
                if tensor.dtype == DataType::Bytes && !data.is_whole() {
                    if !budget.take(data.len()) {
                        return Err(bad(OVER_BUDGET));
                    }
                    data.into_whole().into()
                } else {
                    data
                }
            }
            (Some(_), Some(_)) => return Err(bad("set either `data` or `binary_data_size`, not both")),
            (None, None) => return Err(bad("missing `data` or `parameters.binary_data_size`")),
        };
        if tensors.iter().any(|other| other.name == tensor.name) {
            return Err(bad("duplicate name"));
        }
        let tensor = Tensor {
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            data,
        };
        tensor.check(role)?;
        tensors.push(tensor);
    }
    if !tail.is_empty() {
        return Err(BadRequest(format!(
            "{} bytes follow the last binary {role}",
            tail.len()
        )));
    }
    Ok(tensors)
}
