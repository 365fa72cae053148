//! Messages between a run and its processes, over pipes on this host and over TCP to others. First comes a job with
//! what the instrument's runs need; then for each step a job, answered by [`ToRun::Ready`] once all is prepared, some pings,
//! a start, and replies. [`ToRun::Failed`] may replace any answer. Over TCP the handshake comes first. A message is one frame
//! in postcard's format, where numbers are short. Jobs and replies are each instrument's own.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Error of the other side.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// End of the stream.
    #[error("the connection ended")]
    Ended,
    /// Broken stream.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// Length above the limit of received messages.
    #[error("a message of more than {0} bytes, which no program of this build sends there")]
    TooLong(usize),
    /// Length above the limit of sent messages.
    #[error("a message of {bytes} bytes, where {most} is the most: shorten the plan")]
    PlanTooLong {
        /// Length of the message.
        bytes: usize,
        /// Maximum length.
        most: usize,
    },
    /// Bytes that are no message.
    #[error("a message that cannot be read: {0}; both sides must be of one build")]
    Unreadable(String),
    /// A message in the place of this one.
    #[error("another message where `{0}` was expected")]
    Unexpected(&'static str),
    /// No message within the time.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer reports an error.
    #[error("{0}")]
    Says(String),
}

impl LinkError {
    /// True if the peer has gone, rather than sent something wrong.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_closed() || matches!(self, Self::Silent(_))
    }

    /// True if nothing more can come over the link.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self, Self::Ended | Self::Io(_))
    }
}

/// Version of these messages, raised with every change: the two sides must be of one build.
pub const PROTOCOL: u32 = 6;
/// Maximum bytes of a message to a load process.
pub const MOST_TO_WORKER: usize = 4 << 20;
/// Maximum bytes of a message to a run.
pub const MOST_TO_RUN: usize = 1 << 20;
/// A number used once.
pub type Nonce = [u8; 16];
/// Proof of a token, which itself is never sent.
pub type Proof = [u8; 32];

/// Message of a run, with jobs of its instrument.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker<J> {
    /// Response to the challenge.
    Hello {
        /// See [`PROTOCOL`].
        protocol: u32,
        /// Name of the run; a new connection of it replaces its own lost one.
        run: String,
        /// Number used once by the run.
        nonce: Nonce,
        /// Proof of the token by the run.
        proof: Option<Proof>,
    },
    /// Request for the time.
    Ping,
    /// Start of the step's clock, in nanoseconds since 1970 on the receiver's clock.
    Start(i64),
    /// Job of the instrument.
    Job(J),
}

/// Message of a process, with replies of its instrument.
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
    /// Reason for which a run is refused or a step cannot be run.
    Failed(String),
    /// Reply of the instrument.
    Reply(R),
}

/// Replaces control characters by their escapes, because a peer's words are shown in terminals.
#[must_use]
pub fn printable(text: &str) -> String {
    let escaped = |c: char| {
        if c.is_control() && c != '\n' {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    text.chars().map(escaped).collect()
}

/// Encodes a message.
///
/// # Errors
/// A path that is no Unicode text.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, LinkError> {
    postcard::to_extend(message, Vec::new()).map_err(|error| LinkError::Unreadable(error.to_string()))
}

/// Decodes a message, which takes all the bytes.
///
/// # Errors
/// Bytes that are no such message.
pub fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, LinkError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(LinkError::Unreadable("bytes behind its end".to_owned())),
        Err(error) => Err(LinkError::Unreadable(error.to_string())),
    }
}
