//! What a run and its load processes say to each other: one line of JSON each, over the processes' stdin and stdout.
//! First comes one [`Setup`]; then for each step a [`StepOrder`], answered by [`Ready`] once every user is up, a [`Start`],
//! and [`StepDone`] with as many [`SentSample`] as it says.

use crate::endpoint::TargetSpec;
use crate::load::Load;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tierlab_analysis::record::{Failure, Outcome, Sample};
use tierlab_protocol::timing::StageTimings;

/// Who the process is, and the plan, whose file may be changed while the run goes on.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The plan's file, which errors name and which its paths are relative to.
    pub file: PathBuf,
    /// The plan's text.
    pub plan: String,
    /// Which of the processes this is, from 0.
    pub share: u32,
    /// How many there are.
    pub of: u32,
}

/// A step: this load, against this server, with this seed.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepOrder {
    /// The server. Tokens and keys are named in it, not told: each process reads them itself.
    pub target: TargetSpec,
    /// What is sent, and how often.
    pub load: Load,
    /// What arrivals, entities and tensors derive from.
    pub seed: u64,
}

/// Requests are made and users are up.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {}

/// When the step's clock starts, on the clock that the processes of one host share.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Start {
    unix_ns: u64,
}

impl Start {
    /// A moment of the system's clock.
    #[must_use]
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The same moment on the monotonic clock.
    #[must_use]
    pub fn instant(self) -> Instant {
        let at = UNIX_EPOCH + Duration::from_nanos(self.unix_ns);
        Instant::now() + at.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// A step is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepDone {
    /// Whether every user was busy at some time.
    pub limit_hit: bool,
    /// Requests in flight on average.
    pub mean_in_flight: f64,
    /// When the measured window began, in microseconds since 1970.
    pub window_began_unix_us: u64,
    /// How many samples follow.
    pub samples: usize,
    /// Of failures whose kind does not say all, the first one in words.
    pub examples: Vec<(Failure, String)>,
}

/// A [`Sample`].
#[derive(Debug, Serialize, Deserialize)]
pub struct SentSample(u64, u64, u64, Outcome, Option<String>);

impl From<&Sample> for SentSample {
    fn from(sample: &Sample) -> Self {
        let timings = sample.timings.as_ref().map(StageTimings::to_header);
        Self(sample.due_us, sample.sent_us, sample.done_us, sample.outcome, timings)
    }
}

impl From<SentSample> for Sample {
    fn from(SentSample(due_us, sent_us, done_us, outcome, timings): SentSample) -> Self {
        Self {
            due_us,
            sent_us,
            done_us,
            outcome,
            timings: timings.and_then(|header| StageTimings::parse_header(&header).ok()),
        }
    }
}

/// A message as its line.
pub fn line(message: &impl Serialize) -> String {
    // Of these types none has a key that JSON cannot have, nor a value.
    serde_json::to_string(message).unwrap_or_default()
}

/// A message of a line.
///
/// # Errors
/// The line is no such message; quotes its start.
pub fn parse<M: DeserializeOwned>(line: &str) -> Result<M, String> {
    serde_json::from_str(line).map_err(|error| {
        let start: String = line.chars().take(80).collect();
        format!("`{start}` was not expected ({error})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_protocol::timing::Stage;

    proptest! {
        #[test]
        fn a_sample_comes_over_as_it_is(due in 0_u64..1 << 40, lag in 0_u64..1 << 30, service in 0_u64..1 << 30,
                                        infer_us in 0_u64..1 << 30, timed: bool, outcome in 0_usize..4) {
            let mut timings = StageTimings::default();
            timings.add(Stage::Infer, Duration::from_micros(infer_us));
            let sample = Sample {
                due_us: due,
                sent_us: due + lag,
                done_us: due + lag + service,
                outcome: [
                    Outcome::Ok,
                    Outcome::Failed(Failure::Status(503)),
                    Outcome::Failed(Failure::DrainLimit),
                    Outcome::Failed(Failure::Connect),
                ][outcome],
                timings: timed.then_some(timings),
            };
            let sent: SentSample = parse(&line(&SentSample::from(&sample))).unwrap();
            prop_assert_eq!(Sample::from(sent), sample);
        }

        #[test]
        fn any_line_is_taken_or_refused(text: String) {
            let _ = parse::<SentSample>(&text);
            let _ = parse::<StepDone>(&text);
        }
    }

    #[test]
    fn a_start_is_the_same_moment_on_both_clocks() {
        let ahead = Duration::from_secs(3);
        let start: Start = parse(&line(&Start::at(SystemTime::now() + ahead))).unwrap();
        let left = start.instant().saturating_duration_since(Instant::now());
        assert!(left <= ahead && left > ahead / 2, "{left:?}");
    }
}
