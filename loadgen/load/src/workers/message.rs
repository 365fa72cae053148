//! Messages between a run and its load processes, over pipes on this host and over TCP to others. First comes one
//! [`Setup`], followed by the plan's files; then for each step an order, answered by [`ToRun::Ready`] once every user is
//! up, some pings, a start, and [`Done`], followed by the samples. [`ToRun::Failed`] may replace any answer. Over TCP the
//! handshake comes first. A message is one frame in postcard's format, where numbers are short: a sample takes about
//! fifteen bytes, fifty with the server's stages.

use crate::endpoint::TargetSpec;
use crate::schedule::Load;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_analysis::record::{Failure, Outcome, Sample};
use tierlab_protocol::timing::{Stage, StageTimings, TierSplit};
use tierlab_protocol::via::Via;

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
    #[error("a message of more than {0} bytes, which no load generator of this build sends there")]
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
    #[error("a message that cannot be read: {0}; both sides must be of one build of the load generator")]
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
pub const PROTOCOL: u32 = 4;
/// Maximum bytes of a message to a load process.
pub const MOST_TO_WORKER: usize = 4 << 20;
/// Maximum bytes of a message to a run.
pub const MOST_TO_RUN: usize = 1 << 20;
/// Samples of one message, which is far below [`MOST_TO_RUN`] even if every number in them is long.
pub const SAMPLES_AT_ONCE: usize = 4_000;

/// A number used once.
pub type Nonce = [u8; 16];
/// Proof of a token, which itself is never sent.
pub type Proof = [u8; 32];

/// Sample as it is sent: due, sent and done, the outcome, and stages.
pub type SentSample = (u64, u64, u64, Outcome, Option<SentTimings>);
/// Microseconds of each stage and of the tier's three parts, four counts, and a bit for each way of reading. Their sum
/// fits a duration, whatever the other side says.
pub type SentTimings = ([u64; Stage::COUNT + 3], [u32; 4], u16);

/// Message of a run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
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
    /// Plan of the run.
    Setup(Setup),
    /// Piece of one of the plan's files.
    File(Vec<u8>),
    /// A [`StepOrder`] in JSON, because a reply's wanted value may be any JSON.
    Order(String),
    /// Request for the time.
    Ping,
    /// Start of the step's clock, in nanoseconds since 1970 on the receiver's clock.
    Start(i64),
}

/// Message of a load process.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRun {
    /// First message of an agent.
    Challenge {
        /// See [`PROTOCOL`].
        protocol: u32,
        /// Number used once by the agent.
        nonce: Nonce,
        /// True if the agent requires proof of a token.
        token: bool,
    },
    /// Acceptance of a run by an agent, with its own proof of the token.
    Welcome(Option<Proof>),
    /// Requests are prepared and users are up.
    Ready,
    /// Nanoseconds since 1970 on the sender's clock.
    Pong(i64),
    /// End of a step.
    Done(Done),
    /// Some of a step's samples.
    Samples(Vec<SentSample>),
    /// Reason for which a run is refused or a step cannot be run.
    Failed(String),
}

impl ToRun {
    /// Returns samples as a message.
    #[must_use]
    pub fn samples(samples: &[Sample]) -> Self {
        let sent = |sample: &Sample| {
            let timings = sample.timings.as_ref().map(sent_timings);
            (sample.due_us, sample.sent_us, sample.done_us, sample.outcome, timings)
        };
        Self::Samples(samples.iter().map(sent).collect())
    }
}

/// Reads a sample.
pub(super) fn sample((due_us, sent_us, done_us, outcome, timings): SentSample) -> Sample {
    Sample {
        due_us,
        sent_us,
        done_us,
        outcome,
        timings: timings.map(read_timings),
    }
}

fn sent_timings(timings: &StageTimings) -> SentTimings {
    let TierSplit { queue, device, copy } = timings.tier_split;
    let times = Stage::ALL.map(|stage| timings.get(stage)).into_iter();
    let mut sent_us = [0; Stage::COUNT + 3];
    for (us, time) in sent_us.iter_mut().zip(times.chain([queue, device, copy])) {
        *us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    }
    let counts = [
        timings.tier_requests,
        timings.cache_hits,
        timings.cache_misses,
        timings.batch_rows,
    ];
    let ways = (0..).zip(Via::ALL).filter(|(_, via)| timings.via.contains(*via));
    (sent_us, counts, ways.map(|(bit, _)| 1 << bit).sum())
}

fn read_timings((sent_us, counts, ways): SentTimings) -> StageTimings {
    let mut timings = StageTimings::default();
    let times = sent_us.map(Duration::from_micros);
    for (stage, time) in Stage::ALL.into_iter().zip(times) {
        timings.add(stage, time);
    }
    let [.., queue, device, copy] = times;
    timings.tier_split = TierSplit { queue, device, copy };
    [
        timings.tier_requests,
        timings.cache_hits,
        timings.cache_misses,
        timings.batch_rows,
    ] = counts;
    for (_, via) in (0..).zip(Via::ALL).filter(|(bit, _)| ways >> bit & 1 == 1) {
        timings.via.insert(via);
    }
    timings
}

/// Identity of the process, and the plan, whose file may change during the run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
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

/// File whose bytes follow in [`ToWorker::File`].
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

impl StepOrder {
    /// Returns the order as a message.
    ///
    /// # Errors
    /// Never for orders: JSON can represent all their keys and values.
    pub fn message(&self) -> Result<ToWorker, LinkError> {
        serde_json::to_string(self)
            .map(ToWorker::Order)
            .map_err(|error| LinkError::Unreadable(error.to_string()))
    }

    /// Reads the text of an order.
    ///
    /// # Errors
    /// Text that is no order.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        serde_json::from_str(text).map_err(|error| LinkError::Unreadable(error.to_string()))
    }
}

/// Description of a journey on which both sides must agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JourneyOrder {
    /// Name in the plan.
    pub name: String,
    /// Number of steps.
    pub steps: usize,
}

/// End of a step, with its counts.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct StepDone {
    /// Number of samples that follow, each due when its journey was.
    pub samples: usize,
    /// Example of its failures.
    pub example: Option<(Failure, String)>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timings() -> impl Strategy<Value = StageTimings> {
        (
            prop::array::uniform8(0_u64..1 << 40),
            any::<[u32; 4]>(),
            0_usize..11,
            0_u64..1 << 30,
        )
            .prop_map(|(stages, counts, via, split)| {
                let mut timings = StageTimings::default();
                for (stage, us) in Stage::ALL.into_iter().zip(stages) {
                    timings.add(stage, Duration::from_micros(us));
                }
                timings.tier_split.queue = Duration::from_micros(split);
                timings.tier_split.device = Duration::from_micros(split / 2);
                timings.tier_split.copy = Duration::from_micros(split / 3);
                [
                    timings.tier_requests,
                    timings.cache_hits,
                    timings.cache_misses,
                    timings.batch_rows,
                ] = counts;
                timings.via.insert(Via::ALL[via]);
                timings.via.insert(Via::ALL[0]);
                timings
            })
    }

    fn sample() -> impl Strategy<Value = Sample> {
        let times = (any::<u64>(), any::<u64>(), any::<u64>());
        let outcome = prop_oneof![
            Just(Outcome::Ok),
            any::<u16>().prop_map(|code| Outcome::Failed(Failure::Status(code))),
            any::<u16>().prop_map(|code| Outcome::Failed(Failure::Rpc(code))),
            Just(Outcome::Failed(Failure::DrainLimit)),
        ];
        (times, outcome, prop::option::of(timings())).prop_map(|((due_us, sent_us, done_us), outcome, timings)| {
            Sample {
                due_us,
                sent_us,
                done_us,
                outcome,
                timings,
            }
        })
    }

    proptest! {
        #[test]
        fn samples_come_over_as_they_are(samples in prop::collection::vec(sample(), 0..50)) {
            let Ok(ToRun::Samples(sent)) = decode(&encode(&ToRun::samples(&samples)).unwrap()) else {
                panic!("another message");
            };
            prop_assert_eq!(sent.into_iter().map(super::sample).collect::<Vec<_>>(), samples);
        }

        #[test]
        fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let refused = [decode::<ToRun>(&bytes).err(), decode::<ToWorker>(&bytes).err()];
            for refused in refused.into_iter().flatten() {
                let is_unreadable = matches!(refused, LinkError::Unreadable(_));
                prop_assert!(is_unreadable);
            }
        }

        #[test]
        fn what_is_cut_off_is_refused(sample in sample(), cut in 1_usize..8) {
            let bytes = encode(&ToRun::samples(&[sample])).unwrap();
            prop_assert!(decode::<ToRun>(&bytes[..bytes.len() - cut.min(bytes.len())]).is_err());
        }
    }

    #[test]
    fn a_message_of_the_longest_samples_is_short_enough_and_their_stages_have_a_sum() {
        let timings = ([u64::MAX; Stage::COUNT + 3], [u32::MAX; 4], u16::MAX);
        let failed = Outcome::Failed(Failure::Status(u16::MAX));
        let longest: SentSample = (u64::MAX, u64::MAX, u64::MAX, failed, Some(timings));
        let message = ToRun::Samples(vec![longest; SAMPLES_AT_ONCE]);
        assert!(encode(&message).unwrap().len() < MOST_TO_RUN);
        assert!(super::sample(longest).timings.unwrap().total() > Duration::from_micros(u64::MAX));
    }

    #[test]
    fn a_message_comes_over_as_it_is() {
        let done = ToRun::Done(Done {
            limit_hit: true,
            mean_in_flight: 3.25,
            late_us: 17,
            samples: 4,
            examples: vec![(Failure::WrongReply, "no output".into())],
            steps: Vec::new(),
        });
        assert_eq!(decode::<ToRun>(&encode(&done).unwrap()).unwrap(), done);
    }
}
