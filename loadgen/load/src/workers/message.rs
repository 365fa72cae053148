//! What a run and its load processes say to each other: one line of JSON each, over the processes' stdin and stdout.
//! First comes one [`Hello`]; then for each step an [`Order`], answered by [`Up`] once every user is up, a [`Start`],
//! and [`Done`] with as many [`Sent`] as it says.

use crate::plan::Load;
use crate::record::{Failure, Mode, Outcome, Sample};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tierlab_protocol::timing::StageTimings;

/// Who the process is, and the plan, whose file may be changed while the run goes on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) file: PathBuf,
    pub(super) plan: String,
    pub(super) share: u32,
    pub(super) of: u32,
}

/// A step: this load, against this server, with this seed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) url: String,
    pub(super) grpc: Option<String>,
    pub(super) load: Loaded,
    pub(super) seed: u64,
}

/// A [`Load`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Loaded {
    mode: Mode,
    batch_size: u32,
    rate: f64,
}

impl From<Load> for Loaded {
    fn from(load: Load) -> Self {
        let Load { mode, batch_size, rate } = load;
        Self { mode, batch_size, rate }
    }
}

impl From<Loaded> for Load {
    fn from(loaded: Loaded) -> Self {
        let Loaded { mode, batch_size, rate } = loaded;
        Self { mode, batch_size, rate }
    }
}

/// Requests are made and users are up.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Up {}

/// When the step's clock starts, on the clock that the processes of one host share.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Start {
    unix_ns: u64,
}

impl Start {
    pub(super) fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// The same moment on the monotonic clock.
    pub(super) fn instant(self) -> Instant {
        let at = UNIX_EPOCH + Duration::from_nanos(self.unix_ns);
        Instant::now() + at.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// A step is over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) limit_hit: bool,
    pub(super) mean_in_flight: f64,
    pub(super) window_began_unix_us: u64,
    pub(super) samples: usize,
    pub(super) examples: Vec<(Failure, String)>,
}

/// A [`Sample`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sent(u64, u64, u64, Outcome, Option<String>);

impl From<&Sample> for Sent {
    fn from(sample: &Sample) -> Self {
        let timings = sample.timings.as_ref().map(StageTimings::to_header);
        Self(sample.due_us, sample.sent_us, sample.done_us, sample.outcome, timings)
    }
}

impl From<Sent> for Sample {
    fn from(Sent(due_us, sent_us, done_us, outcome, timings): Sent) -> Self {
        Self {
            due_us,
            sent_us,
            done_us,
            outcome,
            timings: timings.and_then(|header| StageTimings::parse_header(&header).ok()),
        }
    }
}

pub(super) fn line(message: &impl Serialize) -> String {
    // Of these types none has a key that JSON cannot have, nor a value.
    serde_json::to_string(message).unwrap_or_default()
}

pub(super) fn parse<M: DeserializeOwned>(line: &str) -> Result<M, String> {
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
            let sent: Sent = parse(&line(&Sent::from(&sample))).unwrap();
            prop_assert_eq!(Sample::from(sent), sample);
        }

        #[test]
        fn any_line_is_taken_or_refused(text: String) {
            let _ = parse::<Sent>(&text);
            let _ = parse::<Done>(&text);
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
