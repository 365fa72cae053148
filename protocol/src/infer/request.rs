//! Infer request and its reply: read from a body, or written as one.

use super::data::Data;
use super::json::{self, Parameters, WireTensor};
use super::tensor::{INPUT, Tensor};
use super::text::{Read, Reader};
use super::writer::{Encoded, Writer};
use super::{BadRequest, MAX_TENSORS, MemoryBudget, Unlimited};
use bytes::Bytes;

/// Requested output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedOutput {
    /// Name of the output.
    pub name: String,
    /// True if its data is sent as binary (`parameters.binary_data`; default: the request's setting).
    pub binary: bool,
    /// Classes per row to return instead of the output (`parameters.classification`); 0 returns the output.
    pub classes: u64,
}

/// A request for inference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InferRequest {
    /// Echoed in the reply.
    pub id: Option<String>,
    /// Inputs, in the order of the request.
    pub inputs: Vec<Tensor>,
    /// Requested outputs; empty means all.
    pub outputs: Vec<RequestedOutput>,
    /// `parameters.binary_data_output`: default for outputs without `parameters.binary_data`.
    pub binary_output: bool,
    /// `parameters.timeout`, in microseconds.
    pub timeout_us: Option<u64>,
    /// `parameters.priority`: 1 is the highest level, 0 the model's default.
    pub priority: u64,
}

impl InferRequest {
    /// Reads a body. `json_len` is the value of the [`HEADER_LENGTH`](super::HEADER_LENGTH) header; if `None`, all of
    /// the body is JSON. Binary inputs share the body's memory, in the pieces in which it arrived; `BYTES` inputs are
    /// copied into one piece.
    ///
    /// # Errors
    /// Malformed, missing, duplicate or excess fields, and data whose length differs from its shape's.
    pub fn decode(body: &Data, json_len: Option<usize>) -> Result<Self, BadRequest> {
        Self::decode_within(body, json_len, &Unlimited)
    }

    /// Same as [`InferRequest::decode`], but reserves memory that is not shared with the body before it is allocated.
    ///
    /// # Errors
    /// Same as [`InferRequest::decode`], and a refusal by `budget`.
    pub fn decode_within(body: &Data, json_len: Option<usize>, budget: &dyn MemoryBudget) -> Result<Self, BadRequest> {
        let (json, binary) = json::split(body, json_len, budget)?;
        let mut reader = Reader::new(&json, budget);
        let parsed = read_request(&mut reader).and_then(|request| reader.end().map(|()| request));
        let (request, wire) = parsed.map_err(|e| BadRequest(format!("malformed request: {e}")))?;
        let inputs = json::with_data(wire, binary, INPUT, budget)?;
        Ok(Self { inputs, ..request })
    }

    /// The request as JSON.
    ///
    /// # Panics
    /// When an input has no JSON form ([`Tensor::has_json_form`]).
    pub fn encode_json(&self) -> Vec<u8> {
        self.encode(false).into_data().into_whole().into()
    }

    /// The request with all inputs as binary: the body, and the length of its JSON part.
    pub fn encode_binary(&self) -> (Bytes, usize) {
        let encoded = self.encode(true);
        let json_len = encoded.json_len;
        let body = encoded.into_data().into_whole();
        let json_len = json_len.unwrap_or(body.len());
        (body, json_len)
    }

    fn encode(&self, binary: bool) -> Encoded {
        let binary = vec![binary; self.inputs.len()];
        let mut out = Writer::new(256, &self.inputs, &binary, &Unlimited);
        out.raw("{");
        if let Some(id) = &self.id {
            out.raw("\"id\":").text(id).raw(",");
        }
        let parameters = [
            self.binary_output.then(|| "\"binary_data_output\":true".to_owned()),
            self.timeout_us.map(|timeout| format!("\"timeout\":{timeout}")),
            (self.priority > 0).then(|| format!("\"priority\":{}", self.priority)),
        ];
        let parameters: Vec<String> = parameters.into_iter().flatten().collect();
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
                out.raw(",\"parameters\":{\"binary_data\":").raw(flag);
                if output.classes > 0 {
                    out.raw(&format!(",\"classification\":{}", output.classes));
                }
                out.raw("}}");
            }
            out.raw("]");
        }
        out.raw("}");
        let written = out.finish(&self.inputs, &binary);
        written.unwrap_or_else(|| unreachable!("an unlimited budget"))
    }
}

/// Reads the JSON of a request, and its inputs before their binary data.
fn read_request(reader: &mut Reader<'_>) -> Read<(InferRequest, Vec<WireTensor>)> {
    let (mut id, mut parsed, mut inputs, mut outputs) = (None, None, None, None);
    reader.object("an object with `inputs`", |reader, key| match key {
        "id" => reader.once_or_null(&mut id, key, json::name),
        "parameters" => reader.once_or_null(&mut parsed, key, json::parameters),
        "inputs" => reader.once(&mut inputs, key, |reader| json::tensors(reader, INPUT)),
        "outputs" => reader.once_or_null(&mut outputs, key, requested_outputs),
        _ => reader.skip(),
    })?;
    let parsed = parsed.unwrap_or_default();
    parsed.refuse_unsupported(reader)?;
    let inputs = inputs.ok_or_else(|| reader.fault("`inputs` is missing"))?;
    if inputs.is_empty() {
        return Err(reader.fault("`inputs` is empty"));
    }
    let binary_output = parsed.binary_data_output.unwrap_or(false);
    let output = |(output, binary): (RequestedOutput, Option<bool>)| RequestedOutput {
        binary: binary.unwrap_or(binary_output),
        ..output
    };
    let request = InferRequest {
        id,
        outputs: outputs.unwrap_or_default().into_iter().map(output).collect(),
        binary_output,
        timeout_us: parsed.timeout,
        priority: parsed.priority.unwrap_or(0),
        ..InferRequest::default()
    };
    Ok((request, inputs))
}

/// Reads the `outputs` of a request, each with its `parameters.binary_data` if given.
fn requested_outputs(reader: &mut Reader<'_>) -> Read<Vec<(RequestedOutput, Option<bool>)>> {
    let mut outputs: Vec<(RequestedOutput, Option<bool>)> = Vec::new();
    reader.array("an array of outputs", |reader| {
        if outputs.len() == MAX_TENSORS {
            return Err(reader.fault(&format!("more than {MAX_TENSORS} outputs")));
        }
        let (mut parsed_name, mut parsed) = (None, None);
        reader.object("an object with `name`", |reader, key| match key {
            "name" => reader.once(&mut parsed_name, key, json::name),
            "parameters" => reader.once_or_null(&mut parsed, key, json::parameters),
            _ => reader.skip(),
        })?;
        let name: String = parsed_name.ok_or_else(|| reader.fault("`name` is missing"))?;
        let in_output = |e: BadRequest| BadRequest(format!("output `{name}`: {e}"));
        let mut parsed: Parameters = parsed.unwrap_or_default();
        let classes = parsed.classification.take().unwrap_or(0);
        parsed.refuse_unsupported(reader).map_err(in_output)?;
        if outputs.iter().any(|(other, _)| other.name == name) {
            return Err(in_output(reader.fault("duplicate name")));
        }
        let binary = false;
        outputs.push((RequestedOutput { name, binary, classes }, parsed.binary_data));
        Ok(())
    })?;
    Ok(outputs)
}

/// Reply to an [`InferRequest`].
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
        let flags = binary.iter().copied().chain(std::iter::repeat(false));
        let outputs = self.outputs.iter().zip(flags);
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

    /// Reads a reply's body, as [`InferRequest::decode`] reads a request's.
    ///
    /// # Errors
    /// Same as [`InferRequest::decode`].
    pub fn decode(body: &Bytes, json_len: Option<usize>) -> Result<Self, BadRequest> {
        let body = &Data::from(body.clone());
        let (json, binary) = json::split(body, json_len, &Unlimited)?;
        let mut reader = Reader::new(&json, &Unlimited);
        let parsed = read_reply(&mut reader).and_then(|reply| reader.end().map(|()| reply));
        let (reply, wire) = parsed.map_err(|e| BadRequest(format!("malformed reply: {e}")))?;
        let outputs = json::with_data(wire, binary, "output", &Unlimited)?;
        Ok(Self { outputs, ..reply })
    }
}

/// Reads the JSON of a reply, and its outputs before their binary data.
fn read_reply(reader: &mut Reader<'_>) -> Read<(InferReply, Vec<WireTensor>)> {
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
