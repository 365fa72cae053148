//! Check of replies against the expected form.
//!
//! In: a model's metadata, and every complete reply of a step. Out: nothing, or the fault in words. The model's name,
//! each output's name, type and shape and the amount of its data are compared. The check runs after a request's last
//! time was read. Values are compared on a stated sample of the replies if expected values are known (`values`).
//! Independent of connections and of the handling of wrong replies.

mod decode;
mod expected;
mod judged;
mod received;
mod values;

pub use expected::{Expected, ShapeFit, WantedReply};
pub use judged::{CheckedReply, NoReply, Wrong};
pub use received::{BodyError, Limit, METADATA_BYTES, METRICS_BYTES, Received, TooLarge, read};
pub use values::{OutputValues, ReplyValues};

pub(crate) use decode::grpc as decode_message;
pub(crate) use judged::{quoted, stages};

use bytes::Bytes;
use tierlab_protocol::infer::InferReply;

/// Maximum length of a reply that is checked on the user's task; a longer one is checked on a blocking thread, so that
/// no other request waits.
pub const CHECKED_AT_ONCE_BYTES: usize = 64 << 10;

impl Expected {
    /// Decodes and checks the body of an HTTP reply, with binary tensors behind `json_len` bytes of JSON if there are
    /// any.
    ///
    /// # Errors
    /// The fault.
    pub fn check_http(&self, body: &Bytes, json_len: Option<usize>) -> Result<InferReply, Wrong> {
        self.check(decode::http(body, json_len)?)
    }

    /// Decodes and checks the message of a gRPC reply.
    ///
    /// # Errors
    /// The fault.
    pub fn check_grpc(&self, message: &Bytes) -> Result<InferReply, Wrong> {
        self.check(decode::grpc(message)?)
    }

    fn check(&self, reply: InferReply) -> Result<InferReply, Wrong> {
        self.check_structure(&reply)?;
        self.values().map_or(Ok(()), |values| values.check(&reply))?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests;
