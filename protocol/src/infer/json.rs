//! The JSON of tensors and their parameters, in requests and replies: objects to plain fields, with every error naming its field.
//!
//! In: a reader of JSON text. Out: tensors with their JSON data as bytes, or with the size of the binary data that
//! follows. Keys may come in any order; a `data` array before its `datatype` and `shape` is skipped until both are
//! known. Unknown keys are ignored, as the protocol asks. Lists and names are limited while they are read, so that
//! nothing is built and then refused.

use super::data::Data;
use super::element::Expected;
use super::tensor::Tensor;
use super::text::{Read, Reader, Scalar};
use super::{BadRequest, MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS, MemoryBudget, OVER_BUDGET};
use crate::tensor::DataType;
use std::borrow::Cow;

/// Tensor before its binary data is read.
#[derive(Debug, PartialEq)]
pub(super) struct WireTensor {
    pub(super) name: String,
    pub(super) dtype: DataType,
    pub(super) shape: Vec<i64>,
    pub(super) data: Option<Vec<u8>>,
    pub(super) binary_data_size: Option<u64>,
}

/// Supported parameters; clients may send any others.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) binary_data_output: Option<bool>,
    pub(super) timeout: Option<u64>,
    pub(super) priority: Option<u64>,
    binary_data_size: Option<u64>,
    pub(super) binary_data: Option<bool>,
    pub(super) classification: Option<u64>,
    shared_memory_region: Option<()>,
}

impl Parameters {
    /// Refuses the extensions that would change what is read or returned.
    pub(super) fn refuse_unsupported(&self, reader: &Reader<'_>) -> Read<()> {
        let unsupported = if self.classification.is_some() {
            "classification"
        } else if self.shared_memory_region.is_some() {
            "shared_memory_region"
        } else {
            return Ok(());
        };
        Err(reader.fault(&format!("`parameters.{unsupported}` is not supported here")))
    }
}

pub(super) fn parameters(reader: &mut Reader<'_>) -> Read<Parameters> {
    let mut parsed = Parameters::default();
    reader.object("an object", |reader, key| match key {
        "binary_data_output" => reader.once_or_null(&mut parsed.binary_data_output, key, boolean),
        "timeout" => reader.once_or_null(&mut parsed.timeout, key, count),
        "priority" => reader.once_or_null(&mut parsed.priority, key, count),
        "binary_data_size" => reader.once_or_null(&mut parsed.binary_data_size, key, count),
        "binary_data" => reader.once_or_null(&mut parsed.binary_data, key, boolean),
        "classification" => reader.once_or_null(&mut parsed.classification, key, count),
        "shared_memory_region" => reader.once_or_null(&mut parsed.shared_memory_region, key, Reader::skip),
        _ => reader.skip(),
    })?;
    Ok(parsed)
}

fn boolean(reader: &mut Reader<'_>) -> Read<bool> {
    match reader.scalar()? {
        Scalar::Bool(value) => Ok(value),
        other => Err(reader.fault(&format!("expected true or false, got {other}"))),
    }
}

fn count(reader: &mut Reader<'_>) -> Read<u64> {
    match reader.scalar()? {
        Scalar::Unsigned(count) => Ok(count),
        other => Err(reader.fault(&format!("expected a whole number of 0 or more, got {other}"))),
    }
}

/// A name or an id.
pub(super) fn name(reader: &mut Reader<'_>) -> Read<String> {
    reader.short_string(MAX_NAME_BYTES)
}

fn data_type(reader: &mut Reader<'_>) -> Read<DataType> {
    let name = reader.string()?;
    name.parse().map_err(|e| reader.fault(&format!("{e}")))
}

/// Reads dimensions, up to the maximum number.
fn shape(reader: &mut Reader<'_>) -> Read<Vec<i64>> {
    let mut shape = Vec::with_capacity(4);
    reader.array("an array of dimensions", |reader| {
        if shape.len() == MAX_RANK {
            return Err(reader.fault(&format!("more than {MAX_RANK} dimensions")));
        }
        let dimension = match reader.scalar()? {
            Scalar::Unsigned(dimension) => i64::try_from(dimension).ok(),
            Scalar::Signed(dimension) => Some(dimension),
            _ => None,
        };
        shape.push(dimension.ok_or_else(|| reader.fault("invalid dimension: use a whole number below 2^63"))?);
        Ok(())
    })?;
    Ok(shape)
}

/// An array of tensors; `role` is `input` or `output`.
pub(super) fn tensors(reader: &mut Reader<'_>, role: &str) -> Read<Vec<WireTensor>> {
    let mut tensors = Vec::new();
    reader.array("an array of tensors", |reader| {
        if tensors.len() == MAX_TENSORS {
            return Err(reader.fault(&format!("more than {MAX_TENSORS} tensors")));
        }
        tensors.push(tensor(reader, role, tensors.len())?);
        Ok(())
    })?;
    Ok(tensors)
}

/// Reads a tensor; `index` identifies it in messages until its name is known.
fn tensor(reader: &mut Reader<'_>, role: &str, index: usize) -> Read<WireTensor> {
    let mut parsed_name = None;
    let tensor = tensor_fields(reader, &mut parsed_name);
    tensor.map_err(|e| match parsed_name {
        Some(name) => BadRequest(format!("{role} `{name}`: {e}")),
        None => BadRequest(format!("{role} {index}: {e}")),
    })
}

/// Reads the fields of a tensor and sets `parsed_name` to its name, even if a later field is invalid.
fn tensor_fields(reader: &mut Reader<'_>, parsed_name: &mut Option<String>) -> Read<WireTensor> {
    let (mut dtype, mut dimensions, mut parsed) = (None, None, None);
    let (mut data, mut deferred) = (None, None);
    reader.object("an object with `name`, `datatype`, `shape`", |reader, key| match key {
        "name" => reader.once(parsed_name, key, name),
        "datatype" => reader.once(&mut dtype, key, data_type),
        "shape" => reader.once(&mut dimensions, key, shape),
        "parameters" => reader.once_or_null(&mut parsed, key, parameters),
        "data" if data.is_some() || deferred.is_some() => Err(reader.fault("duplicate `data`")),
        "data" => {
            match (dtype, &dimensions) {
                (Some(dtype), Some(shape)) => data = Some(Expected { dtype, shape }.read(reader)?),
                _ => {
                    deferred = Some(*reader);
                    reader.skip()?;
                }
            }
            Ok(())
        }
        _ => reader.skip(),
    })?;
    let missing = |key: &str| reader.fault(&format!("`{key}` is missing"));
    let dtype = dtype.ok_or_else(|| missing("datatype"))?;
    let shape: Vec<i64> = dimensions.ok_or_else(|| missing("shape"))?;
    if let Some(mut deferred) = deferred {
        let shape = &shape;
        data = Some(Expected { dtype, shape }.read(&mut deferred)?);
    }
    let parsed = parsed.unwrap_or_default();
    parsed.refuse_unsupported(reader)?;
    Ok(WireTensor {
        name: parsed_name.take().ok_or_else(|| missing("name"))?,
        dtype,
        shape,
        data,
        binary_data_size: parsed.binary_data_size,
    })
}

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
        let detail = format!("Inference-Header-Content-Length is {len}, but the body has {total} bytes");
        return Err(BadRequest(detail));
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
pub(super) fn with_data(
    wire: Vec<WireTensor>,
    binary: Option<Data>,
    role: &str,
    budget: &dyn MemoryBudget,
) -> Result<Vec<Tensor>, BadRequest> {
    let is_split = binary.is_some();
    let mut tail = binary.unwrap_or_default();
    let mut tensors: Vec<Tensor> = Vec::with_capacity(wire.len());
    for tensor in wire {
        let bad = |detail: &str| BadRequest(format!("{role} `{}`: {detail}", tensor.name));
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
                    let detail = format!("`binary_data_size` is {size}, but {left} bytes are left in the body");
                    return Err(bad(&detail));
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
        let left = tail.len();
        return Err(BadRequest(format!("{left} bytes follow the last binary {role}")));
    }
    Ok(tensors)
}
