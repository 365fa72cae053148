//! Messages between a run and its load processes, over pipes on this host and over TCP to others. First comes one
//! [`Setup`], followed by the plan's files; then for each step a [`StepOrder`], answered by [`Ready`] once every user
//! is up, some [`Ping`]s, a [`Start`], and [`Done`], followed by the samples. [`Failed`] may replace any answer. Over
//! TCP the handshake comes first. Each message is one frame; except for samples and files its body is JSON.

use super::frame::{FrameError, Kind};
use crate::endpoint::TargetSpec;
use crate::load::Load;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tierlab_analysis::record::Failure;

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

/// Version of these messages, raised with every change: the two sides must be of one build.
pub const PROTOCOL: u32 = 3;

/// Message with the kind of its frame.
pub trait Message: Serialize + DeserializeOwned {
    /// Kind of its frame.
    const KIND: Kind;
}

macro_rules! messages {
    ($($name:ident),*) => { $(impl Message for $name { const KIND: Kind = Kind::$name; })* };
}
messages!(
    Challenge, Hello, Welcome, Refused, Setup, Ready, Ping, Pong, Start, Done, Failed
);

impl Message for StepOrder {
    const KIND: Kind = Kind::Order;
}

/// First message of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// A number used once, in hex.
    pub nonce: String,
    /// True if the agent requires proof of a token.
    pub token: bool,
}

/// Response of a run to the challenge.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// Name of the run; a new connection of it replaces its own lost one.
    pub run: String,
    /// A number used once, in hex.
    pub nonce: String,
    /// Proof of the token, which itself is never sent.
    pub proof: Option<String>,
}

/// Acceptance of a run by an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Proof of the token by the other side.
    pub proof: Option<String>,
}

/// Refusal of a run by an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Reason of the refusal.
    pub why: String,
}

/// Identity of the process, and the plan, whose file may change during the run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Path of the plan, for errors and as the base of its relative paths.
    pub file: PathBuf,
    /// Text of the plan.
    pub plan: String,
    /// Files with the contents of requests that follow; none for a process of this host, which reads them itself.
    pub files: Vec<FileHead>,
    /// Number of this process, from 0.
    pub share: u32,
    /// Number of processes.
    pub of: u32,
}

/// File whose bytes follow in [`Kind::File`] frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Path on the run's host, absolute and without `..`.
    pub path: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
}

/// Step to prepare: load, server and seed.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepOrder {
    /// Server. It names tokens and keys without their values, which each process reads itself.
    pub target: TargetSpec,
    /// Requests and their rate.
    pub load: Load,
    /// Seed of arrivals, entities and tensors.
    pub seed: u64,
    /// Journey of the plan that the load starts; default: single requests of the plan's model.
    pub journey: Option<JourneyOrder>,
}

/// Description of a journey on which both sides must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JourneyOrder {
    /// Name in the plan.
    pub name: String,
    /// Number of steps.
    pub steps: usize,
}

/// Readiness: requests are prepared and users are up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {}

/// Request for the time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ping {}

/// Time of the other side.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Nanoseconds since 1970, on the sender's clock.
    pub clock_ns: i64,
}

/// Start of the step's clock.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Nanoseconds since 1970, on the receiver's clock.
    pub clock_ns: i64,
}

/// End of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// True if every user was busy at some time.
    pub limit_hit: bool,
    /// Mean requests in flight.
    pub mean_in_flight: f64,
    /// Delay of the pacer's start, in microseconds.
    pub late_us: u64,
    /// Number of samples of requests, or of whole journeys, that follow.
    pub samples: usize,
    /// First example of each kind of failure that needs details.
    pub examples: Vec<(Failure, String)>,
    /// For journeys, the results that follow those samples, step by step.
    pub steps: Vec<StepDone>,
}

/// Results of one step of all journeys.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepDone {
    /// Number of samples that follow, each due when its journey was.
    pub samples: usize,
    /// Example of its failures.
    pub example: Option<(Failure, String)>,
}

/// Failure of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Reason in words.
    pub what: String,
}

/// Encodes a message's body.
///
/// # Errors
/// Never for the messages of this file: JSON can represent all their keys and values.
pub fn body<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    serde_json::to_vec(message).map_err(|error| bad::<M>(error.to_string()))
}

/// Decodes a message from its body.
///
/// # Errors
/// A body of another message.
pub fn parse<M: Message>(body: &[u8]) -> Result<M, FrameError> {
    serde_json::from_slice(body).map_err(|error| bad::<M>(error.to_string()))
}

fn bad<M: Message>(what: String) -> FrameError {
    FrameError::Bad { kind: M::KIND, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_body_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for refused in [parse::<Done>(&bytes).err(), parse::<Hello>(&bytes).err()].into_iter().flatten() {
                let is_bad = matches!(refused, FrameError::Bad { .. });
                prop_assert!(is_bad);
            }
        }
    }

    #[test]
    fn a_message_comes_over_as_it_is() {
        let done = Done {
            limit_hit: true,
            mean_in_flight: 3.25,
            late_us: 17,
            samples: 4,
            examples: vec![(Failure::WrongReply, "no output".into())],
            steps: Vec::new(),
        };
        let found: Done = parse(&body(&done).unwrap()).unwrap();
        assert_eq!(
            (found.limit_hit, found.mean_in_flight, found.late_us, found.samples),
            (true, 3.25, 17, 4)
        );
        assert_eq!(found.examples, done.examples);
    }
}
