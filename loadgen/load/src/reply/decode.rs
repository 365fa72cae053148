//! Decoding of replies. In: a body, or a message. Out: the reply, or the fault of what is none.

use super::judged::{Wrong, quoted, wrong};
use bytes::Bytes;
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::infer::{BadRequest, InferReply, MAX_TENSORS};

/// Body of a refusal.
#[derive(Deserialize)]
struct Refusal<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

/// Entries of a `ModelInferResponse`, without their contents.
#[derive(Message)]
struct Entries {
    #[prost(bytes = "bytes", repeated, tag = "5")]
    outputs: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    raw_contents: Vec<Bytes>,
}

/// Decodes the body of an HTTP reply, with binary tensors behind `json_len` bytes of JSON if there are any.
pub(super) fn http(body: &Bytes, json_len: Option<usize>) -> Result<InferReply, Wrong> {
    InferReply::decode(body, json_len).map_err(|error| {
        let refusal: Result<Refusal<'_>, _> = serde_json::from_slice(body);
        match refusal {
            Ok(Refusal { error }) => {
                let said = quoted(error.get().as_bytes());
                wrong(format_args!("the reply is an error: `{said}`"))
            }
            Err(_) if !body.trim_ascii_start().starts_with(b"{") => {
                wrong(format_args!("the reply is no JSON object: `{}`", quoted(body)))
            }
            Err(_) => wrong(printable(&error)),
        }
    })
}

/// Decodes the message of a gRPC reply.
pub(crate) fn grpc(message: &Bytes) -> Result<InferReply, Wrong> {
    let malformed = |error| wrong(format_args!("no protobuf message: {error}"));
    // An empty output is two bytes on the wire and hundreds once it is decoded, so outputs are counted first.
    let entries = Entries::decode(message.clone()).map_err(malformed)?;
    if entries.outputs.len().max(entries.raw_contents.len()) > MAX_TENSORS {
        return Err(wrong(format_args!("more than {MAX_TENSORS} outputs")));
    }
    let decoded = ModelInferResponse::decode(message.clone()).map_err(malformed)?;
    InferReply::try_from(decoded).map_err(|error| wrong(printable(&error)))
}

/// Error about a server's text as a printable line.
fn printable(error: &BadRequest) -> String {
    quoted(error.0.as_bytes())
}
