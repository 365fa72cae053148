//! Infer requests and replies of the Open Inference Protocol v2, as JSON and with the binary tensor extension.
//!
//! In: a body and, for the extension, the length of its JSON part. Out: tensors as raw little-endian bytes, and back.
//! Knows nothing of models: whether a name, type or shape is what a model wants is decided by its user.
//!
//! Sources: KServe's Open Inference Protocol (`required_api.md`) and Triton's `extension_binary_data.md`. A request may
//! mix JSON and binary inputs; binary ones follow the JSON part in the order of the `inputs` array.

mod data;
mod element;
mod json;
mod quick;
mod room;
mod words;
mod writer;

use crate::tensor::{DataType, element_count};
use bytes::Bytes;
pub use data::Data;
use element::Reading;
pub(crate) use room::NO_ROOM;
pub use room::{NoBound, Room};
use std::borrow::Cow;
use writer::Writer;
pub use writer::{Encoded, Piece};

/// The HTTP header that gives the length of the JSON part when binary tensors follow it.
pub const HEADER_LENGTH: &str = "inference-header-content-length";
/// Inputs, and requested outputs, of one request at most.
pub const MAX_TENSORS: usize = 256;
/// Dimensions of one tensor at most.
pub const MAX_RANK: usize = 16;
/// Bytes of a tensor's name, and of a request's id, at most.
pub const MAX_NAME_BYTES: usize = 1024;

/// Why a body is no valid request or reply. The message names the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

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
    /// Whether the tensor can be written as JSON: `FP16` and `BF16` are binary only, and `BYTES` must be UTF-8.
    #[must_use]
    pub fn has_json_form(&self) -> bool {
        match self.dtype {
            DataType::Fp16 | DataType::Bf16 => false,
            DataType::Bytes => {
                bytes_elements(&self.data.whole()).all(|e| e.is_ok_and(|e| std::str::from_utf8(e).is_ok()))
            }
            _ => true,
        }
    }

    /// Checks that the data is exactly what type and shape say; `role` (`input`, `output`) goes into the message.
    pub(crate) fn check(&self, role: &str) -> Result<(), BadRequest> {
        let bad = |what: String| Err(BadRequest(format!("{role} `{}`: {what}", self.name)));
        let Some(count) = element_count(&self.shape) else {
            return bad(format!(
                "`shape` {:?} has a negative dimension or is too large",
                self.shape
            ));
        };
        let Some(size) = self.dtype.size() else {
            let mut found = 0_usize;
            for element in bytes_elements(&self.data.whole()) {
                if element.is_err() {
                    return bad(format!("BYTES element {found} ends past the tensor's data"));
                }
                found += 1;
            }
            if found == count {
                return Ok(());
            }
            return bad(format!(
                "{found} BYTES elements, `shape` {:?} wants {count}",
                self.shape
            ));
        };
        if count.checked_mul(size) != Some(self.data.len()) {
            return bad(format!(
                "{} bytes of data, `shape` {:?} of {} wants {count} elements of {size} bytes",
                self.data.len(),
                self.shape,
                self.dtype
            ));
        }
        if self.dtype == DataType::Bool && self.data.pieces().any(|piece| piece.iter().any(|&b| b > 1)) {
            return bad("a BOOL element is neither 0 nor 1".into());
        }
        Ok(())
    }
}

/// The elements of a `BYTES` tensor's data; an element that is cut off is an error and the last item.
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

/// An output that the client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedOutput {
    /// Its name.
    pub name: String,
    /// Whether its data shall come as binary (`parameters.binary_data`; the request's default where left out).
    pub binary: bool,
}

/// A request for inference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferRequest {
    /// Echoed in the reply.
    pub id: Option<String>,
    /// Inputs, in the order of the request.
    pub inputs: Vec<Tensor>,
    /// Outputs asked for; empty means all.
    pub outputs: Vec<RequestedOutput>,
    /// `parameters.binary_data_output`: binary by default where an output does not say.
    pub binary_output: bool,
    /// `parameters.timeout`, in microseconds.
    pub timeout_us: Option<u64>,
    /// `parameters.priority`: 1 is the highest level, 0 the model's default.
    pub priority: u64,
}

impl InferRequest {
    /// Reads a body. `json_len` is the value of the [`HEADER_LENGTH`] header; without it all of the body is JSON.
    /// Binary inputs share the body's memory, in the pieces in which it came; those of `BYTES` are brought together.
    ///
    /// # Errors
    /// Whatever is malformed, missing, repeated, too many, or of another length than its shape says.
    pub fn decode(body: &Data, json_len: Option<usize>) -> Result<Self, BadRequest> {
        Self::decode_within(body, json_len, &NoBound)
    }

    /// Reads a body, as [`InferRequest::decode`], and asks for the memory of what is not shared with it before it is taken.
    ///
    /// # Errors
    /// As [`InferRequest::decode`], and where `room` refuses.
    pub fn decode_within(body: &Data, json_len: Option<usize>, room: &dyn Room) -> Result<Self, BadRequest> {
        let (json, tail) = split(body, json_len, room)?;
        let wire = json::parse_request(&json, room)?;
        let inputs = assemble(wire.inputs, tail, json_len.is_some(), ("input", room))?;
        Ok(Self {
            id: wire.id,
            inputs,
            outputs: wire
                .outputs
                .into_iter()
                .map(|(name, binary)| RequestedOutput {
                    name,
                    binary: binary.unwrap_or(wire.binary_output),
                })
                .collect(),
            binary_output: wire.binary_output,
            timeout_us: wire.timeout_us,
            priority: wire.priority,
        })
    }

    /// The request as JSON.
    ///
    /// # Panics
    /// When an input has no JSON form ([`Tensor::has_json_form`]).
    #[must_use]
    pub fn encode_json(&self) -> Vec<u8> {
        self.encode(false).into_data().into_whole().into()
    }

    /// The request with all inputs as binary: the body, and the length of its JSON part.
    #[must_use]
    pub fn encode_binary(&self) -> (Bytes, usize) {
        let encoded = self.encode(true);
        let json_len = encoded.json_len;
        let body = encoded.into_data().into_whole();
        let json_len = json_len.unwrap_or(body.len());
        (body, json_len)
    }

    fn encode(&self, binary: bool) -> Encoded {
        let binary = vec![binary; self.inputs.len()];
        let mut out = Writer::new(256, &self.inputs, &binary, &NoBound);
        out.raw("{");
        if let Some(id) = &self.id {
            out.raw("\"id\":").text(id).raw(",");
        }
        let mut parameters = Vec::new();
        if self.binary_output {
            parameters.push("\"binary_data_output\":true".to_owned());
        }
        if let Some(timeout) = self.timeout_us {
            parameters.push(format!("\"timeout\":{timeout}"));
        }
        if self.priority > 0 {
            parameters.push(format!("\"priority\":{}", self.priority));
        }
        if !parameters.is_empty() {
            out.raw("\"parameters\":{").raw(&parameters.join(",")).raw("},");
        }
        out.raw("\"inputs\":").tensors(&self.inputs, &binary);
        if !self.outputs.is_empty() {
            out.raw(",\"outputs\":[");
            for (i, output) in self.outputs.iter().enumerate() {
                out.raw(if i > 0 { "," } else { "" })
                    .raw("{\"name\":")
                    .text(&output.name);
                let flag = if output.binary { "true" } else { "false" };
                out.raw(",\"parameters\":{\"binary_data\":").raw(flag).raw("}}");
            }
            out.raw("]");
        }
        out.raw("}");
        let written = out.finish(&self.inputs, &binary);
        written.unwrap_or_else(|_| unreachable!("room without a bound"))
    }
}

/// The reply to an [`InferRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferReply {
    /// The model that answered.
    pub model_name: String,
    /// Its version.
    pub model_version: String,
    /// The request's id.
    pub id: Option<String>,
    /// Outputs, in the order asked for.
    pub outputs: Vec<Tensor>,
}

impl InferReply {
    /// The reply's body and, where any output is binary, the length of its JSON part. `binary` says of each output
    /// whether it is; one without a JSON form ([`Tensor::has_json_form`]) is binary whatever it says.
    #[must_use]
    pub fn encode(&self, binary: &[bool]) -> (Bytes, Option<usize>) {
        let encoded = self.encode_within(binary, &NoBound);
        let encoded = encoded.unwrap_or_else(|| unreachable!("room without a bound"));
        let json_len = encoded.json_len;
        (encoded.into_data().into_whole(), json_len)
    }

    /// The reply's body, as [`InferReply::encode`], in pieces where it is large; the memory of what is not shared with the
    /// outputs is asked for as it grows. `None` where `room` refused.
    #[must_use]
    pub fn encode_within(&self, binary: &[bool], room: &dyn Room) -> Option<Encoded> {
        let asked = binary.iter().copied().chain(std::iter::repeat(false));
        let outputs = self.outputs.iter().zip(asked);
        let binary: Vec<bool> = outputs
            .map(|(output, binary)| binary || !output.has_json_form())
            .collect();
        let mut out = Writer::new(160, &self.outputs, &binary, room);
        out.raw("{\"model_name\":").text(&self.model_name);
        out.raw(",\"model_version\":").text(&self.model_version);
        if let Some(id) = &self.id {
            out.raw(",\"id\":").text(id);
        }
        out.raw(",\"outputs\":").tensors(&self.outputs, &binary).raw("}");
        out.finish(&self.outputs, &binary).ok()
    }

    /// Reads a reply's body, as [`InferRequest::decode`] does a request's. A `null` among floats is NaN, as servers write it
    /// that do not know the word.
    ///
    /// # Errors
    /// As [`InferRequest::decode`].
    pub fn decode(body: &Bytes, json_len: Option<usize>) -> Result<Self, BadRequest> {
        let body = &Data::from(body.clone());
        let (json, tail) = split(body, json_len, &NoBound)?;
        let wire = json::parse_reply(&json)?;
        let outputs = assemble(wire.outputs, tail, json_len.is_some(), ("output", &NoBound))?;
        Ok(Self {
            model_name: wire.model_name,
            model_version: wire.model_version,
            id: wire.id,
            outputs,
        })
    }
}

/// Parts a body into its JSON and what follows it.
fn split<'a>(body: &'a Data, json_len: Option<usize>, room: &dyn Room) -> Result<(Cow<'a, [u8]>, Data), BadRequest> {
    let total = body.len();
    let gather = |bytes| {
        room.take(bytes)
            .then_some(())
            .ok_or_else(|| BadRequest(NO_ROOM.to_owned()))
    };
    let Some(len) = json_len else {
        if !body.is_whole() {
            gather(total)?;
        }
        return Ok((body.whole(), Data::default()));
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
    Ok((json, body.slice(len..total)))
}

/// Gives each tensor its data: its own from JSON, or the next bytes of the tail.
fn assemble(
    wire: Vec<json::WireTensor>,
    mut tail: Data,
    has_tail: bool,
    (role, room): (&str, &dyn Room),
) -> Result<Vec<Tensor>, BadRequest> {
    let mut tensors: Vec<Tensor> = Vec::with_capacity(wire.len());
    for tensor in wire {
        let bad = |what: &str| BadRequest(format!("{role} `{}`: {what}", tensor.name));
        let data = match (tensor.data, tensor.binary_data_size) {
            (Some(data), None) => Data::from(data),
            (None, Some(_)) if !has_tail => {
                return Err(bad(
                    "`binary_data_size` without the Inference-Header-Content-Length header, which says where the \
                     binary data begins",
                ));
            }
            (None, Some(size)) => {
                let len = usize::try_from(size)
                    .ok()
                    .filter(|&len| len <= tail.len())
                    .ok_or_else(|| {
                        bad(&format!(
                            "`binary_data_size` is {size}, but {} bytes are left in the body",
                            tail.len()
                        ))
                    })?;
                let data = tail.split_to(len);
                // Its elements are of any length, and are looked for one by one.
                if tensor.dtype == DataType::Bytes && !data.is_whole() {
                    if !room.take(data.len()) {
                        return Err(bad(NO_ROOM));
                    }
                    data.into_whole().into()
                } else {
                    data
                }
            }
            (Some(_), Some(_)) => return Err(bad("both `data` and `binary_data_size`")),
            (None, None) => return Err(bad("neither `data` nor `parameters.binary_data_size`")),
        };
        if tensors.iter().any(|other| other.name == tensor.name) {
            return Err(bad("the name stands twice"));
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

#[cfg(test)]
mod tests;
