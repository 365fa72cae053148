//! One of several hosts that do not see each other, and send one schedule together. In: which it is, and when the first step begins. Out:
//! its share of each step, and the time of day at which each step begins on all of them.
//!
//! The steps of a plan follow each other at a fixed distance, so that hosts with clocks that are set begin each of them together without a
//! word. Only `merge` finds out whether they did. Knows nothing of what is sent.

use crate::error::RunError;
use crate::plan::Plan;
use crate::store::time::{parse_rfc3339, rfc3339};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::HostShare;
use tierlab_load::workers::MOST;

/// What a host needs between the end of one step and the beginning of the next: counters read, samples kept, requests made.
const BETWEEN: Duration = Duration::from_secs(5);

/// `K/N` of the command line: host K, from 0, of N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostArgument(pub HostShare);

impl FromStr for HostArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse::<u32>().ok()?, of.parse::<u32>().ok()?)));
        match parsed {
            Some((number, of)) if number < of && (2..=MOST).contains(&of) => Ok(Self(HostShare { number, of })),
            _ => Err(format!(
                "give K/N: host K, from 0, of N hosts, of which there are 2 to {MOST}; the first of two is 0/2"
            )),
        }
    }
}

/// `TIME` of the command line.
///
/// # Errors
/// It is none, in UTC.
pub fn time_of_day(text: &str) -> Result<SystemTime, String> {
    parse_rfc3339(text).ok_or_else(|| {
        let soon = rfc3339(SystemTime::now() + Duration::from_secs(60));
        format!("give a time in UTC, the same to all hosts, such as {soon}")
    })
}

/// A host's place among the others, and when its steps begin.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Which it is.
    pub share: HostShare,
    /// When its next step begins, as on every other host.
    next: SystemTime,
    every: Duration,
}

impl Host {
    /// One whose first step begins at `first`, and the others each `every_s` after the one before, or as the plan's length asks.
    #[must_use]
    pub fn new(share: HostShare, first: SystemTime, every_s: Option<u32>, plan: &Plan) -> Self {
        let needed = (plan.step_limit() + BETWEEN).as_secs_f64().ceil();
        let every = every_s.map_or_else(
            || Duration::from_secs_f64(needed),
            |seconds| Duration::from_secs(seconds.into()),
        );
        Self {
            share,
            next: first,
            every,
        }
    }

    /// When the step that comes now begins; the one after it begins later.
    pub(super) fn begin(&mut self) -> Beginning {
        let at = self.next;
        self.next += self.every;
        Beginning { at, every: self.every }
    }
}

/// The time of day at which a step begins.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// It.
    pub at: SystemTime,
    every: Duration,
}

impl Beginning {
    /// How far it is ahead.
    pub(super) fn ahead(&self) -> Duration {
        self.at.duration_since(SystemTime::now()).unwrap_or_default()
    }

    /// The same on the monotonic clock.
    ///
    /// # Errors
    /// It is over: this host was not ready in time, and what it would send now belongs to no step of the others.
    pub(super) fn instant(&self) -> Result<Instant, RunError> {
        let now = SystemTime::now();
        match self.at.duration_since(now) {
            Ok(ahead) => Ok(Instant::now() + ahead),
            Err(late) => Err(RunError::Stopped(format!(
                "a step was to begin at {} on all hosts, and this one was ready {:.1} s later: start all hosts again, with a \
                 --start-at some seconds ahead and, where a later step was late, --start-every above {} s",
                rfc3339(self.at),
                late.duration().as_secs_f64(),
                self.every.as_secs()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_host_is_one_of_several() {
        let share = |text: &str| text.parse::<HostArgument>().map(|host| (host.0.number, host.0.of));
        assert_eq!(share("0/2"), Ok((0, 2)));
        assert_eq!(share("3/4"), Ok((3, 4)));
        for wrong in ["0", "2/2", "0/1", "-1/2", "a/b", "0/65", "", "1/2/3"] {
            assert!(share(wrong).unwrap_err().contains("K/N"), "{wrong}");
        }
        assert!(time_of_day("soon").unwrap_err().contains("UTC"));
    }

    #[test]
    fn steps_follow_each_other_by_the_clock_and_none_begins_late() {
        let text = "name = \"n\"\nmodel = \"m\"\nseed = 1\nrepeats = 1\nwarmup_s = 1\nstep_s = 2\ndrain_s = 0.5\n\
                    max_in_flight = 8\n[[load]]\nmode = \"realtime\"\nrates = [10]\n";
        let plan = Plan::parse(Path::new("plan.toml"), text).unwrap();
        let first = SystemTime::now() + Duration::from_secs(100);
        let mut host = Host::new(HostShare { number: 1, of: 2 }, first, None, &plan);
        let ahead = |beginning: Beginning| beginning.at.duration_since(first).unwrap().as_secs();
        assert_eq!(
            [ahead(host.begin()), ahead(host.begin()), ahead(host.begin())],
            [0, 9, 18]
        );
        let left = host
            .begin()
            .instant()
            .unwrap()
            .saturating_duration_since(Instant::now());
        assert!((120..=127).contains(&left.as_secs()), "{left:?}");
        let past = SystemTime::now() - Duration::from_secs(3);
        let late = Host::new(host.share, past, Some(20), &plan)
            .begin()
            .instant()
            .unwrap_err();
        let late = late.to_string();
        assert!(late.contains("--start-at") && late.contains("above 20 s"), "{late}");
    }
}
