//! Check of replies against the expected form.
//!
//! In: a model's metadata, and every complete reply of a step. Out: nothing, or the fault in words. The model's name,
//! each output's name, type and shape and the amount of its data are compared. The check runs after a request's last
//! time was read. Values are compared on a stated sample of the replies if expected values are known (`values`).
//! Independent of connections and of the handling of wrong replies.

mod checked;
mod expected;
mod received;
mod values;

pub use checked::{CheckedReply, NoReply, unrequested_coding};
pub use expected::{Expected, ShapeFit, WantedReply};
pub use received::{BodyError, Limit, METADATA_BYTES, METRICS_BYTES, Received, TooLarge, read, read_pieces};
pub use values::{OutputValues, ReplyValues};

pub(crate) use checked::{quoted, stages};

use bytes::Bytes;
use checked::wrong_reply;
use prost::Message;
use serde::Deserialize;
use serde_json::value::RawValue;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::infer::{BadRequest, InferReply, MAX_TENSORS};

/// Maximum length of a reply that is checked on the user's task; a longer one is checked on a blocking thread, so that
/// no other request waits.
pub const CHECKED_AT_ONCE_BYTES: usize = 64 << 10;

impl Expected {
    /// Decodes and checks the body of an HTTP reply, with binary tensors behind `json_len` bytes of JSON if there are
    /// any.
    ///
    /// # Errors
    /// The fault.
    pub fn check_http(&self, body: &Bytes, json_len: Option<usize>) -> Result<InferReply, NoReply> {
        self.check(decode_body(body, json_len)?)
    }

    /// Decodes and checks the message of a gRPC reply.
    ///
    /// # Errors
    /// The fault.
    pub fn check_grpc(&self, message: &Bytes) -> Result<InferReply, NoReply> {
        self.check(decode_message(message)?)
    }

    fn check(&self, reply: InferReply) -> Result<InferReply, NoReply> {
        self.check_structure(&reply)?;
        self.values.as_ref().map_or(Ok(()), |values| values.check(&reply))?;
        Ok(reply)
    }
}

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
fn decode_body(body: &Bytes, json_len: Option<usize>) -> Result<InferReply, NoReply> {
    InferReply::decode(body, json_len).map_err(|error| {
        let refusal: Result<Refusal<'_>, _> = serde_json::from_slice(body);
        match refusal {
            Ok(Refusal { error }) => {
                let text = quoted(error.get().as_bytes());
                wrong_reply(format_args!("the reply is an error: `{text}`"))
            }
            Err(_) if !body.trim_ascii_start().starts_with(b"{") => {
                wrong_reply(format_args!("the reply is not a JSON object: `{}`", quoted(body)))
            }
            Err(_) => wrong_reply(printable(&error)),
        }
    })
}

/// Decodes the message of a gRPC reply.
pub(crate) fn decode_message(message: &Bytes) -> Result<InferReply, NoReply> {
    let malformed = |error| wrong_reply(format_args!("invalid protobuf message: {error}"));
    // An empty output is two bytes on the wire and hundreds once it is decoded, so outputs are counted first.
    let entries = Entries::decode(message.clone()).map_err(malformed)?;
    if entries.outputs.len().max(entries.raw_contents.len()) > MAX_TENSORS {
        return Err(wrong_reply(format_args!("more than {MAX_TENSORS} outputs")));
    }
    let decoded = ModelInferResponse::decode(message.clone()).map_err(malformed)?;
    InferReply::try_from(decoded).map_err(|error| wrong_reply(printable(&error)))
}

/// Error about a server's text as a printable line.
fn printable(error: &BadRequest) -> String {
    quoted(error.0.as_bytes())
}

#[cfg(test)]
mod tests;
