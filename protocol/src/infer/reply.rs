//! Infer reply: read from a body, or written as one.

use super::data::Data;
use super::json::{self, WireTensor};
use super::tensor::Tensor;
use super::text::{Read, Reader};
use super::writer::{Encoded, Writer};
use super::{BadRequest, MemoryBudget, Unlimited};
use bytes::Bytes;

/// Reply to an [`InferRequest`](super::InferRequest).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferReply {
    /// Name of the model that answered.
    pub model_name: String,
    /// Version of the model.
    pub model_version: String,
    /// The request's id.
    pub id: Option<String>,
    /// Outputs, in the requested order.
    pub outputs: Vec<Tensor>,
}

impl InferReply {
    /// Encodes the reply: the body and, if any output is binary, the length of its JSON part. `binary` is true for
    /// outputs to send as binary; an output without a JSON form ([`Tensor::has_json_form`]) is always binary.
    pub fn encode(&self, binary: &[bool]) -> (Bytes, Option<usize>) {
        let encoded = self.encode_within(binary, &Unlimited);
        let encoded = encoded.unwrap_or_else(|| unreachable!("an unlimited budget"));
        let json_len = encoded.json_len;
        (encoded.into_data().into_whole(), json_len)
    }

    /// Same as [`InferReply::encode`], in pieces if the body is large; memory not shared with the outputs is reserved
    /// as it grows. `None` if `budget` refuses.
    pub fn encode_within(&self, binary: &[bool], budget: &dyn MemoryBudget) -> Option<Encoded> {
        let asked = binary.iter().copied().chain(std::iter::repeat(false));
        let outputs = self.outputs.iter().zip(asked);
        let binary: Vec<bool> = outputs
            .map(|(output, binary)| binary || !output.has_json_form())
            .collect();
        let mut out = Writer::new(160, &self.outputs, &binary, budget);
        out.raw("{\"model_name\":").text(&self.model_name);
        out.raw(",\"model_version\":").text(&self.model_version);
        if let Some(id) = &self.id {
            out.raw(",\"id\":").text(id);
        }
        out.raw(",\"outputs\":").tensors(&self.outputs, &binary).raw("}");
        out.finish(&self.outputs, &binary)
    }

    /// Reads a reply's body, as [`InferRequest::decode`](super::InferRequest::decode) reads a request's.
    ///
    /// # Errors
    /// Same as [`InferRequest::decode`](super::InferRequest::decode).
    pub fn decode(body: &Bytes, json_len: Option<usize>) -> Result<Self, BadRequest> {
        let body = &Data::from(body.clone());
        let (json, binary) = json::split(body, json_len, &Unlimited)?;
        let mut reader = Reader::new(&json, &Unlimited);
        let parsed = read(&mut reader).and_then(|reply| reader.end().map(|()| reply));
        let (reply, wire) = parsed.map_err(|e| BadRequest(format!("malformed reply: {e}")))?;
        let outputs = json::with_data(wire, binary, "output", &Unlimited)?;
        Ok(Self { outputs, ..reply })
    }
}

/// Reads the JSON of a reply, and its outputs before their binary data.
fn read(reader: &mut Reader<'_>) -> Read<(InferReply, Vec<WireTensor>)> {
    let (mut model_name, mut model_version, mut id, mut outputs) = (None, None, None, None);
    let string = |reader: &mut Reader<'_>| reader.string().map(String::from);
    reader.object("an object with `model_name` and `outputs`", |reader, key| match key {
        "model_name" => reader.once(&mut model_name, key, string),
        "model_version" => reader.once_or_null(&mut model_version, key, string),
        "id" => reader.once_or_null(&mut id, key, string),
        "outputs" => reader.once(&mut outputs, key, |reader| json::tensors(reader, "output")),
        // A server that fails late may already have written outputs.
        "error" => Err(reader.fault("the reply is an error")),
        _ => reader.skip(),
    })?;
    let reply = InferReply {
        model_name: model_name.ok_or_else(|| reader.fault("`model_name` is missing"))?,
        model_version: model_version.unwrap_or_default(),
        id,
        outputs: Vec::new(),
    };
    Ok((reply, outputs.ok_or_else(|| reader.fault("`outputs` is missing"))?))
}
