//! Finished repeats of a run: an entry of `journal.jsonl` each, in a folder with their plan. The file survives an interrupt.

use crate::drive::{RepeatResult, Second, Sums};
use crate::machine::MachineUse;
use crate::peers::PeerFigures;
use crate::plan::Point;
use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tierlab_analysis::record::{AgentStart, Limits, samples_needed};
use tierlab_instrument::journal::{self as lines, FILE};

/// One repeat of a point.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) point: Point,
    pub(crate) repeat: u32,
    /// `None` if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<MeasuredRepeat>,
    /// Error of a failed repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    /// Figures of other tools, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) peers: BTreeMap<String, PeerFigures>,
    /// Errors of other tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) peer_faults: Vec<String>,
}

/// Figures of a repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MeasuredRepeat {
    /// Latencies of all calls in nanoseconds, in HdrHistogram's V2 encoding as base64.
    pub(crate) latency_hdr: String,
    /// Send lag of an open loop, p99 in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late_p99_us: Option<f64>,
    pub(crate) window_s: f64,
    /// Figures of each second, for windows of at least two seconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) seconds: Vec<SecondFigures>,
    #[serde(flatten)]
    pub(crate) sums: Sums,
    /// Path of the bytes, as reported by the tier.
    pub(crate) via: String,
    pub(crate) machine: MachineUse,
    /// Cause of a disturbance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disturbed: Option<String>,
    /// Agents that measured together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) agents: Vec<AgentShare>,
}

/// Figures of the calls that ended in one second.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SecondFigures {
    pub(crate) calls: u64,
    pub(crate) mb_per_s: f64,
    /// `None` with fewer than 10 calls beyond it.
    pub(crate) p99_us: Option<f64>,
}

impl SecondFigures {
    fn of(second: &Second) -> Self {
        let latency = &second.latency_ns;
        let has_p99 = latency.len() >= samples_needed(0.99);
        Self {
            calls: latency.len(),
            mb_per_s: second.bytes as f64 / 1e6,
            p99_us: has_p99.then(|| latency.value_at_quantile(0.99) as f64 / 1e3),
        }
    }
}

/// Part of an agent in a repeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AgentShare {
    #[serde(flatten)]
    pub(crate) start: AgentStart,
    pub(crate) mb_per_s: f64,
}

impl Entry {
    /// Creates a repeat without figures.
    pub(super) fn new(point: &Point, repeat: u32) -> Self {
        Self {
            point: point.clone(),
            repeat,
            ..Self::default()
        }
    }

    /// Sets the figures, or the error of a failed repeat.
    pub(super) fn record(&mut self, result: Result<MeasuredRepeat>) {
        match result {
            Ok(measured) => self.measured = Some(measured),
            Err(error) => self.failed = Some(format!("{error:#}")),
        }
    }
}

impl MeasuredRepeat {
    /// Creates the figures of a repeat, given the limits on CPU use by others.
    pub(crate) fn of(outcome: &RepeatResult, limits: &Limits) -> Result<Self> {
        let tally = &outcome.tally;
        let lag = &tally.lag_ns;
        Ok(Self {
            latency_hdr: encode(&tally.latency_ns)?,
            late_p99_us: (!lag.is_empty()).then(|| lag.value_at_quantile(0.99) as f64 / 1e3),
            window_s: outcome.window.as_secs_f64(),
            seconds: match outcome.seconds.as_slice() {
                [] | [_] => Vec::new(),
                seconds => seconds.iter().map(SecondFigures::of).collect(),
            },
            sums: tally.sums,
            via: tally.via.to_string(),
            machine: outcome.machine.clone(),
            disturbed: outcome.machine.disturbed(limits),
            agents: Vec::new(),
        })
    }

    pub(crate) fn latencies(&self) -> Result<Histogram<u64>> {
        let bytes = STANDARD.decode(&self.latency_hdr).context("not base64")?;
        let read = Deserializer::new().deserialize(&mut bytes.as_slice());
        read.map_err(|e| anyhow::anyhow!("not a histogram: {e}"))
    }
}

pub(super) fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    let written = V2Serializer::new().serialize(histogram, &mut bytes);
    written.map_err(|e| anyhow::anyhow!("cannot encode a histogram: {e}"))?;
    Ok(STANDARD.encode(bytes))
}

const PLAN: &str = "plan.toml";

/// The journal of a run.
pub(super) struct Journal {
    lines: lines::Journal,
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Starts a journal in an existing folder, also after a run that ended before its first repeat.
    pub(super) fn begin(folder: &Path, plan: &str) -> Result<Self> {
        let (journal, shown) = (Self::open(folder)?, folder.display());
        ensure!(
            journal.entries.is_empty(),
            "{shown} contains a run: resume it with --resume, or choose another --out"
        );
        let written = std::fs::write(folder.join(PLAN), plan);
        written.map_err(|error| anyhow!("cannot write results to {shown}: {error}; choose another --out"))?;
        Ok(journal)
    }

    /// Resumes a journal of the same plan, tiers and scratch disk. Failed repeats are not among its entries, so that they are measured
    /// again.
    pub(super) fn resume(folder: &Path, plan: &str) -> Result<Self> {
        let why = || format!("no run to resume in {}", folder.display());
        let file = folder.join(PLAN);
        let is_same = std::fs::read_to_string(&file).with_context(why)? == plan;
        std::fs::metadata(folder.join(FILE)).with_context(why)?;
        let differ = "plan, tiers or scratch disk differ from the run's: restore them, or omit --resume";
        ensure!(is_same, "{}: {differ}", file.display());
        let mut journal = Self::open(folder)?;
        journal.entries.retain(|entry| entry.failed.is_none());
        Ok(journal)
    }

    fn open(folder: &Path) -> Result<Self> {
        let (lines, entries) = lines::Journal::open(folder)?;
        Ok(Self { lines, entries })
    }

    pub(super) fn append(&mut self, entry: Entry) -> Result<()> {
        self.lines.append(&entry)?;
        self.entries.push(entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_finished_repeats_takes_another_run() {
        let folder = tempfile::tempdir().unwrap();
        for plan in ["a", "b"] {
            let journal = Journal::begin(folder.path(), plan).unwrap();
            assert!(journal.entries.is_empty());
            assert!(Journal::begin(folder.path(), plan).is_err(), "the first has it open");
        }
        assert_eq!(std::fs::read_to_string(folder.path().join(PLAN)).unwrap(), "b");
        std::fs::write(folder.path().join(FILE), "{}\n").unwrap();
        assert!(Journal::begin(folder.path(), "c").is_err());
    }

    #[test]
    fn failed_repeats_are_not_among_those_of_a_resumed_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(folder.path(), "a").unwrap();
        for repeat in 0..3 {
            let mut entry = Entry::new(&Point::reads("t", 4096), repeat);
            if repeat == 1 {
                entry.record(Err(anyhow!("the tier refused")));
            }
            journal.append(entry).unwrap();
        }
        drop(journal);
        let resumed = Journal::resume(folder.path(), "a").unwrap();
        let repeats: Vec<u32> = resumed.entries.iter().map(|entry| entry.repeat).collect();
        assert_eq!(repeats, [0, 2]);
    }

    #[test]
    fn histograms_read_back() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        (1..10_000).for_each(|ns| histogram.record(ns * 7).unwrap());
        let measured = MeasuredRepeat {
            latency_hdr: encode(&histogram).unwrap(),
            ..serde_json::from_str(
                r#"{"latency_hdr":"","window_s":1,"calls":1,"ended":1,"writes":0,"asked_bytes":1,"ended_bytes":1,"wire_bytes":1,"requests":1,"retries":0,
                "unfinished":0,"via":"","machine":{"own_cpu_s":1,"foreign_cpu_share":null,"steal_share":null,"fetched_bytes":null,"disk":null,"nfs":null}}"#,
            )
            .unwrap()
        };
        let again = measured.latencies().unwrap();
        assert_eq!(again.value_at_quantile(0.99), histogram.value_at_quantile(0.99));
    }
}
