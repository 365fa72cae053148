//! Messages between a run and its load processes, over pipes on this host and over TCP to others. First comes one [`Setup`]
//! with the plan's files behind it; then for each step a [`StepOrder`], answered by [`Ready`] once every user is up, some
//! [`Ping`]s, a [`Start`], and [`Done`] with the samples behind it. [`Failed`] may replace any answer. Over TCP the handshake
//! comes first. Each message is one frame; except for samples and files its body is JSON.

use super::frame::{FrameError, Kind};
use crate::endpoint::TargetSpec;
use crate::load::Load;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tierlab_analysis::record::Failure;

/// Replaces control characters by their escapes: what a peer says is shown in terminals.
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

/// Changes with every change to these messages: the two sides must be of one build.
pub const PROTOCOL: u32 = 3;

/// A message, and the kind of its frame.
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

/// The first word of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Challenge {
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// A number used once, in hex.
    pub nonce: String,
    /// True if the agent requires proof of a token.
    pub token: bool,
}

/// The answer of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// See [`PROTOCOL`].
    pub protocol: u32,
    /// Which run it is: one that comes anew takes the place of its own lost connection.
    pub run: String,
    /// A number used once, in hex.
    pub nonce: String,
    /// Proof of the token, which itself is never sent.
    pub proof: Option<String>,
}

/// An agent is at a run's service.
#[derive(Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Proof of the token by the other side.
    pub proof: Option<String>,
}

/// An agent is not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Reason of the refusal.
    pub why: String,
}

/// Identity of the process, and the plan, whose file may change during the run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The plan's file, which errors name and which its paths are relative to.
    pub file: PathBuf,
    /// The plan's text.
    pub plan: String,
    /// Files that follow, which requests are made of; none to a process of this host, which reads them where they lie.
    pub files: Vec<FileHead>,
    /// Which of the processes this is, from 0.
    pub share: u32,
    /// Number of processes.
    pub of: u32,
}

/// A file whose bytes follow in [`Kind::File`] frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Path on the run's host, absolute and without `..`.
    pub path: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
}

/// A step: this load, against this server, with this seed.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepOrder {
    /// The server. Tokens and keys are named in it, not told: each process reads them itself.
    pub target: TargetSpec,
    /// Requests and their rate.
    pub load: Load,
    /// Seed of arrivals, entities and tensors.
    pub seed: u64,
    /// The journey of the plan that is begun so often; single requests of the plan's model where absent.
    pub journey: Option<JourneyOrder>,
}

/// A journey, as far as the two sides must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JourneyOrder {
    /// Its name in the plan.
    pub name: String,
    /// Number of steps.
    pub steps: usize,
}

/// Requests are made and users are up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {}

/// Asks for the time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ping {}

/// The time of who was asked.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pong {
    /// Nanoseconds since 1970, on its own clock.
    pub clock_ns: i64,
}

/// When the step's clock starts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Nanoseconds since 1970, on the clock of who is told.
    pub clock_ns: i64,
}

/// A step is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// True if every user was busy at some time.
    pub limit_hit: bool,
    /// Requests in flight on average.
    pub mean_in_flight: f64,
    /// By how many microseconds the pacer was late to begin.
    pub late_us: u64,
    /// Number of samples of requests, or of whole journeys, that follow.
    pub samples: usize,
    /// First example of each kind of failure that needs details.
    pub examples: Vec<(Failure, String)>,
    /// For journeys, the results that follow those samples, step by step.
    pub steps: Vec<StepDone>,
}

/// One step of all journeys.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepDone {
    /// Number of samples that follow, each due when its journey was.
    pub samples: usize,
    /// Example of its failures.
    pub example: Option<(Failure, String)>,
}

/// The step cannot be done.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Why, in words.
    pub what: String,
}

/// A message's body.
///
/// # Errors
/// Never for messages of this file: none has a key or a value that JSON cannot have.
pub fn body<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    serde_json::to_vec(message).map_err(|error| bad::<M>(error.to_string()))
}

/// A message of a body.
///
/// # Errors
/// Another body.
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
