//! Check of replies against the expected form.
//!
//! In: a model's metadata, and every complete reply of a step. Out: nothing, or the fault in words. The model's name,
//! each output's name, type and shape and the amount of its data are compared. Bytes are read once and nothing is
//! built, so that a small reply costs well below a microsecond; the check runs after a request's last time was read.
//! Values are compared on a stated sample of the replies if expected values are known (`values`). Independent of
//! connections and of the handling of wrong replies.

mod expected;
mod found;
mod grpc;
mod json;
mod judged;
mod received;
mod values;
mod wanted;

pub use expected::{Expected, ShapeFit};
pub use found::Wrong;
pub(crate) use found::quoted;
pub(crate) use judged::stages;
pub use judged::{CheckedReply, NoReply};
pub use received::{BodyError, Limit, METADATA_BYTES, METRICS_BYTES, Received, TooLarge, read};
pub use values::{OutputValues, ReplyValues};
pub use wanted::WantedReply;

/// Maximum length of a reply that is checked on the user's task; a longer one is checked on a blocking thread, so that
/// no other request waits.
pub const CHECKED_AT_ONCE_BYTES: usize = 64 << 10;

impl Expected {
    /// Checks the body of an HTTP reply, with binary tensors behind `json_len` bytes of JSON if there are any.
    ///
    /// # Errors
    /// The fault.
    pub fn check_http(&self, body: &[u8], json_len: Option<usize>) -> Result<(), Wrong> {
        json::check(self, body, json_len)?;
        self.values().map_or(Ok(()), |values| values.check_http(body, json_len))
    }

    /// Checks the message of a gRPC reply.
    ///
    /// # Errors
    /// The fault.
    pub fn check_grpc(&self, message: &[u8]) -> Result<(), Wrong> {
        grpc::check(self, message)?;
        self.values().map_or(Ok(()), |values| values.check_grpc(message))
    }
}

#[cfg(test)]
mod tests;
