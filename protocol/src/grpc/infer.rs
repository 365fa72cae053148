//! Converts infer requests and replies between messages and the types of HTTP.
//!
//! In: a [`ReceivedRequest`]. Out: an [`InferRequest`], whose raw inputs share the message's memory; and a reply's
//! message, whose outputs are raw, as Triton sends them. Source: KServe's `grpc_predict_v2.proto`.

use super::ReceivedRequest;
use super::messages::{
    InferRequestedOutputTensor, InferTensor, InferTensorContents, ModelInferRequest, ModelInferResponse,
    ParameterChoice, Parameters,
};
use crate::infer::{
    BadRequest, Data, INPUT, InferReply, InferRequest, MAX_NAME_BYTES, MAX_RANK, MAX_TENSORS, RequestedOutput, Tensor,
    push_bytes,
};
use crate::tensor::DataType;
use bytes::Bytes;

impl TryFrom<ModelInferRequest> for InferRequest {
    type Error = BadRequest;

    /// # Errors
    /// Same as for a [`ReceivedRequest`].
    fn try_from(message: ModelInferRequest) -> Result<Self, BadRequest> {
        ReceivedRequest::from(message).try_into()
    }
}

impl TryFrom<ReceivedRequest> for InferRequest {
    type Error = BadRequest;

    /// # Errors
    /// Missing, duplicate, excess or unsupported fields, and data whose length differs from its shape's; the message
    /// names the field.
    fn try_from(received: ReceivedRequest) -> Result<Self, BadRequest> {
        let ReceivedRequest { message, raw } = received;
        refuse_unsupported(&message.parameters, "request")?;
        if message.id.len() > MAX_NAME_BYTES {
            return bad(format!("`id` is longer than {MAX_NAME_BYTES} bytes"));
        }
        if message.inputs.is_empty() {
            return bad("`inputs` is empty");
        }
        for (field, count) in [("inputs", message.inputs.len()), ("outputs", message.outputs.len())] {
            if count > MAX_TENSORS {
                return bad(format!("`{field}`: more than {MAX_TENSORS}"));
            }
        }
        let timeout_us = number(&message.parameters, "timeout", "use microseconds")?;
        let priority = number(&message.parameters, "priority", "use a level")?.unwrap_or(0);
        let mut outputs: Vec<RequestedOutput> = Vec::with_capacity(message.outputs.len());
        for output in message.outputs {
            let output = requested(output)?;
            if outputs.iter().any(|other| other.name == output.name) {
                return bad(format!("output `{}`: duplicate name", output.name));
            }
            outputs.push(output);
        }
        Ok(Self {
            id: Some(message.id).filter(|id| !id.is_empty()),
            inputs: inputs(message.inputs, raw)?,
            outputs,
            // Outputs are always raw.
            binary_output: true,
            timeout_us,
            priority,
        })
    }
}

fn bad<T>(message: impl Into<String>) -> Result<T, BadRequest> {
    Err(BadRequest(message.into()))
}

/// Refuses the extensions that would change what is read or returned; other unknown parameters are ignored.
fn refuse_unsupported(parameters: &Parameters, label: &str) -> Result<(), BadRequest> {
    for unsupported in ["classification", "shared_memory_region"] {
        if parameters.contains_key(unsupported) {
            return bad(format!("{label}: `parameters.{unsupported}` is not supported here"));
        }
    }
    Ok(())
}

/// Reads a number parameter in the forms that clients use.
fn number(parameters: &Parameters, name: &str, detail: &str) -> Result<Option<u64>, BadRequest> {
    let Some(parameter) = parameters.get(name) else {
        return Ok(None);
    };
    let number = match &parameter.parameter_choice {
        Some(ParameterChoice::Int64Param(number)) => u64::try_from(*number).ok(),
        Some(ParameterChoice::Uint64Param(number)) => Some(*number),
        Some(ParameterChoice::StringParam(number)) => number.parse().ok(),
        _ => None,
    };
    number
        .map(Some)
        .ok_or_else(|| BadRequest(format!("`parameters.{name}` is not a number: {detail}")))
}

fn requested(mut output: InferRequestedOutputTensor) -> Result<RequestedOutput, BadRequest> {
    if output.name.len() > MAX_NAME_BYTES {
        return bad(format!("`outputs`: a name is longer than {MAX_NAME_BYTES} bytes"));
    }
    let label = format!("output `{}`", output.name);
    let classes = number(&output.parameters, "classification", "classes");
    let classes = classes.map_err(|e| BadRequest(format!("{label}: {e}")))?;
    output.parameters.remove("classification");
    refuse_unsupported(&output.parameters, &label)?;
    Ok(RequestedOutput {
        name: output.name,
        binary: true,
        classes: classes.unwrap_or(0),
    })
}

fn inputs(wire: Vec<InferTensor>, raw: Vec<Data>) -> Result<Vec<Tensor>, BadRequest> {
    if !raw.is_empty() && raw.len() != wire.len() {
        let (entries, inputs) = (raw.len(), wire.len());
        let detail = format!("`raw_input_contents` has {entries} entries for {inputs} inputs");
        return bad(detail);
    }
    let mut raw = raw.into_iter();
    let mut tensors: Vec<Tensor> = Vec::with_capacity(wire.len());
    for (index, input) in wire.into_iter().enumerate() {
        if input.name.is_empty() || input.name.len() > MAX_NAME_BYTES {
            let detail = format!("input {index}: `name` is empty or longer than {MAX_NAME_BYTES} bytes");
            return bad(detail);
        }
        let label = format!("input `{}`", input.name);
        refuse_unsupported(&input.parameters, &label)?;
        if input.shape.len() > MAX_RANK {
            return bad(format!("{label}: `shape` has more than {MAX_RANK} dimensions"));
        }
        let raw = raw.next();
        if raw.is_some() && input.contents.is_some() {
            let detail = format!("{label}: set either `contents` or `raw_input_contents`, not both");
            return bad(detail);
        }
        if tensors.iter().any(|other| other.name == input.name) {
            return bad(format!("{label}: duplicate name"));
        }
        tensors.push(tensor(INPUT, input, raw)?);
    }
    Ok(tensors)
}

/// Converts a message's tensor; `role` is `input` or `output`. Raw data takes precedence over typed contents.
pub(super) fn tensor(role: &str, wire: InferTensor, raw: Option<Data>) -> Result<Tensor, BadRequest> {
    let refused = |BadRequest(detail)| BadRequest(format!("{role} `{}`: {detail}", wire.name));
    let dtype = wire.datatype.parse::<DataType>();
    let dtype = dtype.map_err(|e| refused(BadRequest(format!("`datatype`: {e}"))))?;
    let data = match (raw, &wire.contents) {
        (Some(raw), _) => raw,
        (None, contents) => typed(dtype, contents.as_ref().unwrap_or(&InferTensorContents::default()))
            .map_err(refused)?
            .into(),
    };
    let tensor = Tensor {
        data,
        name: wire.name,
        dtype,
        shape: wire.shape,
    };
    tensor.check(role).map(|()| tensor)
}

/// Converts typed elements to raw data. The protocol widens types narrower than 32 bits; values that do not fit are
/// refused.
fn typed(dtype: DataType, contents: &InferTensorContents) -> Result<Bytes, BadRequest> {
    fn narrowed<W: Copy + std::fmt::Display, N: TryFrom<W>, const SIZE: usize>(
        dtype: DataType,
        wide: &[W],
        bytes: fn(N) -> [u8; SIZE],
    ) -> Result<Vec<u8>, BadRequest> {
        let mut out = Vec::with_capacity(wide.len() * SIZE);
        for &value in wide {
            let Ok(narrow) = N::try_from(value) else {
                return bad(format!("{value} in `contents` is not a valid {dtype}"));
            };
            out.extend_from_slice(&bytes(narrow));
        }
        Ok(out)
    }
    let list = match dtype {
        DataType::Bool => "bool_contents",
        DataType::Int8 | DataType::Int16 | DataType::Int32 => "int_contents",
        DataType::Int64 => "int64_contents",
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => "uint_contents",
        DataType::Uint64 => "uint64_contents",
        DataType::Fp32 => "fp32_contents",
        DataType::Fp64 => "fp64_contents",
        DataType::Bytes => "bytes_contents",
        DataType::Fp16 | DataType::Bf16 => {
            return bad(format!(
                "{dtype} has no typed contents: send it in `raw_input_contents`"
            ));
        }
    };
    let data = match dtype {
        DataType::Bool => contents.bool_contents.iter().map(|&b| u8::from(b)).collect(),
        DataType::Int8 => narrowed(dtype, &contents.int_contents, i8::to_le_bytes)?,
        DataType::Int16 => narrowed(dtype, &contents.int_contents, i16::to_le_bytes)?,
        DataType::Int32 => narrowed(dtype, &contents.int_contents, i32::to_le_bytes)?,
        DataType::Int64 => narrowed(dtype, &contents.int64_contents, i64::to_le_bytes)?,
        DataType::Uint8 => narrowed(dtype, &contents.uint_contents, u8::to_le_bytes)?,
        DataType::Uint16 => narrowed(dtype, &contents.uint_contents, u16::to_le_bytes)?,
        DataType::Uint32 => narrowed(dtype, &contents.uint_contents, u32::to_le_bytes)?,
        DataType::Uint64 => narrowed(dtype, &contents.uint64_contents, u64::to_le_bytes)?,
        DataType::Fp32 => narrowed(dtype, &contents.fp32_contents, f32::to_le_bytes)?,
        DataType::Fp64 => narrowed(dtype, &contents.fp64_contents, f64::to_le_bytes)?,
        // Types without typed contents were refused above.
        DataType::Bytes | DataType::Fp16 | DataType::Bf16 => length_prefixed(&contents.bytes_contents)?,
    };
    match filled(contents).iter().find(|&&other| other != list) {
        Some(other) => bad(format!("`{other}` is set, but {dtype} belongs in `{list}`")),
        None => Ok(data.into()),
    }
}

fn length_prefixed(elements: &[Bytes]) -> Result<Vec<u8>, BadRequest> {
    let mut out = Vec::with_capacity(elements.iter().map(|element| element.len() + 4).sum());
    for element in elements {
        if !push_bytes(element, &mut out) {
            return bad("an element is longer than 4 GiB");
        }
    }
    Ok(out)
}

/// Returns the names of the lists that are not empty.
fn filled(contents: &InferTensorContents) -> Vec<&'static str> {
    [
        ("bool_contents", contents.bool_contents.is_empty()),
        ("int_contents", contents.int_contents.is_empty()),
        ("int64_contents", contents.int64_contents.is_empty()),
        ("uint_contents", contents.uint_contents.is_empty()),
        ("uint64_contents", contents.uint64_contents.is_empty()),
        ("fp32_contents", contents.fp32_contents.is_empty()),
        ("fp64_contents", contents.fp64_contents.is_empty()),
        ("bytes_contents", contents.bytes_contents.is_empty()),
    ]
    .into_iter()
    .filter_map(|(name, empty)| (!empty).then_some(name))
    .collect()
}

/// Splits tensors into messages and their data, as in `raw_input_contents` and `raw_output_contents`.
pub(super) fn raw(tensors: Vec<Tensor>) -> (Vec<InferTensor>, Vec<Bytes>) {
    let message = |tensor: Tensor| {
        let message = InferTensor {
            name: tensor.name,
            datatype: tensor.dtype.to_string(),
            shape: tensor.shape,
            parameters: Parameters::new(),
            contents: None,
        };
        (message, tensor.data.into_whole())
    };
    tensors.into_iter().map(message).unzip()
}

impl From<InferReply> for ModelInferResponse {
    fn from(reply: InferReply) -> Self {
        let (outputs, raw_output_contents) = raw(reply.outputs);
        Self {
            model_name: reply.model_name,
            model_version: reply.model_version,
            id: reply.id.unwrap_or_default(),
            parameters: Parameters::new(),
            outputs,
            raw_output_contents,
        }
    }
}

#[cfg(test)]
mod tests;
