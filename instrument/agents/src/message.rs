//! Messages between a run and its processes, over pipes on this host and over TCP to others. First comes a job
//! that sets up the run; then for each step a job, answered by [`ToRun::Ready`] once it is prepared, some pings, a start, and
//! replies. [`ToRun::Failed`] may replace any answer. Over TCP the handshake comes first. A message is one frame
//! in postcard's format, with variable-length integers. Each instrument defines its jobs and replies.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Error of a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The stream ended.
    #[error("the connection ended")]
    Ended,
    /// The stream failed.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// Length above the limit of received messages.
    #[error("message larger than {0} bytes: both sides must be of one build")]
    TooLong(usize),
    /// Length above the limit of sent messages.
    #[error("message of {bytes} bytes, limit {max}: shorten the plan")]
    PlanTooLong {
        /// Length of the message.
        bytes: usize,
        /// Maximum length.
        max: usize,
    },
    /// Bytes that are not a message.
    #[error("invalid message: {0}; both sides must be of one build")]
    Unreadable(String),
    /// Another message instead of this one.
    #[error("unexpected message instead of `{0}`")]
    Unexpected(&'static str),
    /// No message within the time.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer reports an error.
    #[error("{0}")]
    Reported(String),
}

impl LinkError {
    /// True if the peer is gone; false if it sent an invalid message.
    pub const fn is_unreachable(&self) -> bool {
        self.is_closed() || matches!(self, Self::Silent(_))
    }

    /// True if the link cannot deliver more messages.
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Ended | Self::Io(_))
    }
}

/// Version of these messages, raised with every change: both sides must be of one build.
pub const PROTOCOL: u32 = 6;
/// Maximum size of a message to a load process.
pub const MAX_TO_WORKER: usize = 4 << 20;
/// Maximum size of a message to a run.
pub const MAX_TO_RUN: usize = 1 << 20;
/// A number used once.
pub type Nonce = [u8; 16];
/// Proof of a token; the token is never sent.
pub type Proof = [u8; 32];

/// Message from a run, with jobs of its instrument.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker<J> {
    /// Response to the challenge.
    Hello {
        /// See [`PROTOCOL`].
        protocol: u32,
        /// Name of the run; its new connection replaces its lost one.
        run: String,
        /// Number used once by the run.
        nonce: Nonce,
        /// Proof of the token by the run.
        proof: Option<Proof>,
    },
    /// Request for the time.
    Ping,
    /// Start time of the step, in nanoseconds since 1970 on the receiver's clock.
    Start(i64),
    /// Job of the instrument.
    Job(J),
}

/// Message from a process, with replies of its instrument.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRun<R> {
    /// First message of an agent.
    Challenge {
        /// See [`PROTOCOL`].
        protocol: u32,
        /// Program whose runs the agent serves.
        program: String,
        /// Number used once by the agent.
        nonce: Nonce,
        /// True if the agent requires proof of a token.
        token: bool,
    },
    /// Acceptance of a run by an agent, with its own proof of the token.
    Welcome(Option<Proof>),
    /// The step is prepared.
    Ready,
    /// Nanoseconds since 1970 on the sender's clock.
    Pong(i64),
    /// Reason why a run is refused or a step cannot run.
    Failed(String),
    /// Reply of the instrument.
    Reply(R),
}

/// Escapes control characters, because a peer's text is shown in terminals: a line break could forge a line of this program.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Encodes a message.
///
/// # Errors
/// A path is not Unicode.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, LinkError> {
    let not_unicode = |_| LinkError::Reported("a path of the plan is not Unicode: rename it".to_owned());
    postcard::to_extend(message, Vec::new()).map_err(not_unicode)
}

/// Decodes a message from all of the bytes.
///
/// # Errors
/// The bytes are not such a message.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, LinkError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(LinkError::Unreadable("extra bytes at its end".to_owned())),
        Err(error) => Err(LinkError::Unreadable(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_unicode_is_the_plans_fault() {
        use std::os::unix::ffi::OsStrExt as _;
        let path = std::path::PathBuf::from(std::ffi::OsStr::from_bytes(b"\xff"));
        let error = encode(&ToWorker::Job(path)).unwrap_err().to_string();
        assert!(error.contains("not Unicode") && !error.contains("build"), "{error}");
    }

    #[test]
    fn what_a_peer_says_gives_no_orders_to_a_terminal() {
        assert_eq!(printable("failed at é, 7 °C"), "failed at é, 7 °C");
        assert_eq!(printable("failed\nsaved: r"), r"failed\nsaved: r");
        let shown = printable("\x1b]0;title\x07\x1b[2J\r\u{9b}31m\u{7f}\0");
        assert_eq!(shown, r"\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m\u{7f}\u{0}");
    }
}
