//! Jobs of load processes and their replies, in the messages of [`tierlab_agents`]. First comes one [`Setup`], followed by
//! the plan's files; then for each step an order, answered by [`ToRun::Ready`] once every user is up, and after the start
//! [`Done`], followed by the samples. A sample takes about fifteen bytes, fifty with the server's stages.

use crate::endpoint::TargetSpec;
use crate::pacer::Observed;
use crate::schedule::Load;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tierlab_agents::link::LinkError;
use tierlab_agents::message as shared;
use tierlab_analysis::record::{Failure, Sample};

/// Samples of one message, which is far below [`MAX_TO_RUN`](shared::MAX_TO_RUN) even if every number in them is long.
pub const SAMPLES_AT_ONCE: usize = 4_000;

/// Message of a run.
pub type ToWorker = shared::ToWorker<Job>;
/// Message of a load process.
pub type ToRun = shared::ToRun<WorkerReply>;

/// Job of a load process.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Job {
    /// Plan of the run.
    Setup(Setup),
    /// Piece of one of the plan's files.
    File(Vec<u8>),
    /// A [`StepOrder`] in JSON, because a reply's wanted value may be any JSON.
    Order(String),
}

/// Reply of a load process.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerReply {
    /// End of a step.
    Done(Done),
    /// Some of a step's samples.
    Samples(Vec<Sample>),
}

/// Identity of the process, and the plan, whose file may change during the run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Path of the plan, for errors and as the base of its relative paths.
    pub file: PathBuf,
    /// Text of the plan.
    pub plan: String,
    /// Files with the contents of requests that follow; empty for a process of this host, which reads them itself.
    pub files: Vec<FileHead>,
    /// Number of this process, from 0.
    pub share: u32,
    /// Number of processes.
    pub of: u32,
}

/// File whose bytes follow in [`Job::File`].
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
        let text = serde_json::to_string(self).map_err(|error| LinkError::Unreadable(error.to_string()));
        text.map(|text| ToWorker::Job(Job::Order(text)))
    }

    /// Reads the text of an order.
    ///
    /// # Errors
    /// Text that is not an order.
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
    /// The pacer's observations.
    pub observed: Observed,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;
    use tierlab_agents::message::{MAX_TO_RUN, decode, encode};
    use tierlab_analysis::record::Outcome;
    use tierlab_protocol::timing::{Stage, StageTimings};
    use tierlab_protocol::via::Via;

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
            let message = ToRun::Reply(WorkerReply::Samples(samples));
            prop_assert_eq!(decode::<ToRun>(&encode(&message).unwrap()).unwrap(), message);
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
            let bytes = encode(&ToRun::Reply(WorkerReply::Samples(vec![sample]))).unwrap();
            prop_assert!(decode::<ToRun>(&bytes[..bytes.len() - cut.min(bytes.len())]).is_err());
        }
    }

    #[test]
    fn a_message_of_the_longest_samples_is_short_enough_and_their_stages_have_a_sum() {
        let time = Duration::from_micros(u64::MAX);
        let mut timings = StageTimings::default();
        Stage::ALL.into_iter().for_each(|stage| timings.add(stage, time));
        (
            timings.tier_split.queue,
            timings.tier_split.device,
            timings.tier_split.copy,
        ) = (time, time, time);
        (timings.tier_requests, timings.cache_hits) = (u32::MAX, u32::MAX);
        (timings.cache_misses, timings.batch_rows) = (u32::MAX, u32::MAX);
        Via::ALL.into_iter().for_each(|via| timings.via.insert(via));
        let longest = Sample {
            due_us: u64::MAX,
            sent_us: u64::MAX,
            done_us: u64::MAX,
            outcome: Outcome::Failed(Failure::Status(u16::MAX)),
            timings: Some(timings),
        };
        let message = ToRun::Reply(WorkerReply::Samples(vec![longest; SAMPLES_AT_ONCE]));
        let message = encode(&message).unwrap();
        assert!(message.len() < MAX_TO_RUN);
        let Ok(ToRun::Reply(WorkerReply::Samples(read))) = decode(&message) else {
            panic!("another message");
        };
        assert!(read[0].timings.unwrap().total() > time);
    }

    #[test]
    fn a_message_comes_over_as_it_is() {
        let done = ToRun::Reply(WorkerReply::Done(Done {
            observed: Observed {
                limit_hit: true,
                mean_in_flight: 3.25,
                stopped_us: None,
            },
            late_us: 17,
            samples: 4,
            examples: vec![(Failure::WrongReply, "no output".into())],
            steps: Vec::new(),
        }));
        assert_eq!(decode::<ToRun>(&encode(&done).unwrap()).unwrap(), done);
    }
}
