//! Infer request: read from a body, or written as one.

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
        let parsed = read(&mut reader).and_then(|request| reader.end().map(|()| request));
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
fn read(reader: &mut Reader<'_>) -> Read<(InferRequest, Vec<WireTensor>)> {
    let (mut id, mut given, mut inputs, mut outputs) = (None, None, None, None);
    reader.object("an object with `inputs`", |reader, key| match key {
        "id" => reader.once_or_null(&mut id, key, json::name),
        "parameters" => reader.once_or_null(&mut given, key, json::parameters),
        "inputs" => reader.once(&mut inputs, key, |reader| json::tensors(reader, INPUT)),
        "outputs" => reader.once_or_null(&mut outputs, key, requested_outputs),
        _ => reader.skip(),
    })?;
    let given = given.unwrap_or_default();
    given.refuse_unsupported(reader)?;
    let inputs = inputs.ok_or_else(|| reader.fault("`inputs` is missing"))?;
    if inputs.is_empty() {
        return Err(reader.fault("`inputs` is empty"));
    }
    let binary_output = given.binary_data_output.unwrap_or(false);
    let output = |(output, binary): (RequestedOutput, Option<bool>)| RequestedOutput {
        binary: binary.unwrap_or(binary_output),
        ..output
    };
    let request = InferRequest {
        id,
        outputs: outputs.unwrap_or_default().into_iter().map(output).collect(),
        binary_output,
        timeout_us: given.timeout,
        priority: given.priority.unwrap_or(0),
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
        let (mut known, mut given) = (None, None);
        reader.object("an object with `name`", |reader, key| match key {
            "name" => reader.once(&mut known, key, json::name),
            "parameters" => reader.once_or_null(&mut given, key, json::parameters),
            _ => reader.skip(),
        })?;
        let name: String = known.ok_or_else(|| reader.fault("`name` is missing"))?;
        let in_output = |e: BadRequest| BadRequest(format!("output `{name}`: {e}"));
        let mut given: Parameters = given.unwrap_or_default();
        let classes = given.classification.take().unwrap_or(0);
        given.refuse_unsupported(reader).map_err(in_output)?;
        if outputs.iter().any(|(other, _)| other.name == name) {
            return Err(in_output(reader.fault("duplicate name")));
        }
        let binary = false;
        outputs.push((RequestedOutput { name, binary, classes }, given.binary_data));
        Ok(())
    })?;
    Ok(outputs)
}
