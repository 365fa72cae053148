//! Agents of a run, from the run's view: each prepares and measures every repeat of every point, and all start together. In: a plan and
//! addresses. Out: repeats, as if one host had made all calls. `serve`: an agent.

mod serve;

pub(crate) use serve::{AgentFlags, run};

use super::record::{AgentShare, Entry, MeasuredRepeat, SecondFigures, encode};
use crate::drive::Sums;
use crate::machine::{MachineUse, Traffic};
use crate::plan::{Flags, Plan, Point, Share};
use crate::prepared_tier::runtime;
use crate::report::TierNotes;
use crate::stop::Stop;
use anyhow::{Context as _, Result, bail};
use hdrhistogram::Histogram;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use tierlab_agents::clock::WallClock;
use tierlab_agents::link::LinkError;
use tierlab_agents::message::{ToRun, ToWorker, printable};
use tierlab_agents::remote::Agents;
use tierlab_agents::worker::{Worker, WorkerError, start_together};
use tierlab_analysis::record::{AgentStart, Limits};
use tierlab_instrument::units::count_of;
use tokio::runtime::Runtime;

/// Program name in the handshake of runs and agents.
pub(super) const PROGRAM: &str = "tierlab-storage-bench";
/// Maximum wait for an agent that writes its data or makes its calls, which may take long on a slow tier. The connection of a vanished
/// host ends within a minute.
const LIMIT: Duration = Duration::from_hours(24);

/// Job of an agent, answered in JSON.
#[derive(Debug, Serialize, Deserialize)]
enum Job {
    /// Opens the tiers of a plan. Answer: an [`AgentHost`].
    Setup(Setup),
    /// Measures a point's repeat, once all agents have prepared it. Answer: an [`AgentRepeatResult`].
    Measure(Point, u32),
    /// Removes everything written. Answer: the notes of each tier, also about its calls.
    End,
}

/// Plan of a run.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    /// Name of the plan's file, for errors.
    file: String,
    text: String,
    /// Seconds of a repeat, instead of the plan's.
    seconds: Option<f64>,
    share: Share,
}

/// Host of an agent, in `run.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AgentHost {
    /// Address in the run's `--agents`.
    #[serde(default)]
    pub(super) agent: String,
    /// Machine and build.
    environment: serde_json::Value,
    /// Notes of each tier, as the agent reaches it.
    pub(super) tiers: TierNotes,
}

/// Result of an agent's repeat.
#[derive(Debug, Serialize, Deserialize)]
struct AgentRepeatResult {
    /// Delay of the start, in microseconds.
    late_us: f64,
    /// Figures, or the reason for their absence.
    measured: Result<MeasuredRepeat, String>,
}

/// Agents with the plan's tiers open.
pub(super) struct Fleet {
    runtime: Runtime,
    workers: Vec<Worker>,
    clock: WallClock,
    pub(super) hosts: Vec<AgentHost>,
}

impl Fleet {
    /// Connects to agents, which open the plan's tiers.
    ///
    /// # Errors
    /// An agent is unreachable, refuses, or cannot run the plan.
    pub(super) fn open(agents: &Agents, plan: &Plan, flags: &Flags, seconds: Option<f64>) -> Result<Self> {
        let runtime = runtime(1)?;
        let opened = runtime.block_on(async {
            let mut workers = agents.connect(agents.start_wait).await?;
            let of = workers.len() as u32;
            for (number, worker) in (0..).zip(&mut workers) {
                let setup = Setup {
                    file: flags.plan.display().to_string(),
                    text: plan.common.text.clone(),
                    seconds,
                    share: Share { number, of },
                };
                worker.send(&ToWorker::Job(Job::Setup(setup))).await?;
            }
            let hosts = workers.iter_mut().zip(&agents.addresses).map(async |(worker, agent)| {
                let mut host: AgentHost = receive_reply(worker).await?;
                host.agent.clone_from(agent);
                host.tiers = printable_notes(host.tiers);
                Ok::<_, WorkerError>(host)
            });
            let hosts = futures::future::try_join_all(hosts).await?;
            Ok((workers, hosts))
        });
        // No run had started, so there is nothing to resume.
        let (workers, hosts) = opened.map_err(|error: WorkerError| anyhow::Error::msg(error.to_string()))?;
        Ok(Self {
            runtime,
            workers,
            clock: WallClock::with_offset_ms(0),
            hosts,
        })
    }

    /// Distinct notes of each tier, from all agents.
    pub(super) fn tiers(&self) -> TierNotes {
        let mut all = TierNotes::new();
        for (tier, notes) in self.hosts.iter().flat_map(|host| &host.tiers) {
            let distinct = all.entry(tier.clone()).or_default();
            let new: Vec<String> = notes.iter().filter(|note| !distinct.contains(note)).cloned().collect();
            distinct.extend(new);
        }
        all
    }

    /// Measures one repeat by all agents. After an interrupt the entry is not part of the run.
    ///
    /// # Errors
    /// An agent is lost, or sends an invalid reply.
    pub(super) fn measure(&mut self, plan: &Plan, point: &Point, repeat: u32, stop: &Stop) -> Result<Entry> {
        let mut entry = Entry::new(point, repeat);
        let (workers, clock) = (&mut self.workers, &self.clock);
        let results = self.runtime.block_on(async {
            tokio::select! {
                results = measure(workers, clock, point, repeat) => results.map(Some),
                () = stop.requested() => Ok(None),
            }
        })?;
        let Some(results) = results else {
            // Agents stop and remove their data when their connections end.
            self.workers.clear();
            return Ok(entry);
        };
        let share = |(start, result): (AgentStart, AgentRepeatResult)| match result.measured {
            Ok(measured) => Ok((start, measured)),
            Err(why) => bail!("{}: {}", start.agent, printable(&why)),
        };
        let shares: Result<Vec<_>> = results.into_iter().map(share).collect();
        entry.record(shares.and_then(|shares| combined(&shares, &plan.limits)));
        Ok(entry)
    }

    /// Ends the run at all agents, after they have removed their data, and takes their last notes.
    ///
    /// # Errors
    /// Data cannot be removed.
    pub(super) fn close(&mut self) -> Result<()> {
        let workers = self.workers.iter_mut().zip(&mut self.hosts);
        let ended = workers.map(async |(worker, host)| {
            worker.send(&ToWorker::Job(Job::End)).await?;
            host.tiers = printable_notes(receive_reply(worker).await?);
            Ok::<_, WorkerError>(())
        });
        let ended = self.runtime.block_on(futures::future::try_join_all(ended));
        ended.map(drop).context("an agent cannot remove its data")
    }
}

/// Returns an agent's notes of each tier without control characters.
fn printable_notes(tiers: TierNotes) -> TierNotes {
    let of = |(tier, notes): (String, Vec<String>)| {
        let notes: Vec<String> = notes.iter().map(|note| printable(note)).collect();
        (printable(&tier), notes)
    };
    tiers.into_iter().map(of).collect()
}

async fn receive_reply<T: DeserializeOwned>(worker: &mut Worker) -> Result<T, WorkerError> {
    let answer = match worker.link.answer::<String>(LIMIT).await {
        Ok(ToRun::Reply(json)) => serde_json::from_str(&json).map_err(|e| LinkError::Unreadable(e.to_string())),
        Ok(_) => Err(LinkError::Unexpected("Reply")),
        Err(error) => Err(error),
    };
    worker.check(answer).await
}

/// Measures one repeat, and returns each agent's result.
async fn measure(
    workers: &mut [Worker],
    clock: &WallClock,
    point: &Point,
    repeat: u32,
) -> Result<Vec<(AgentStart, AgentRepeatResult)>, WorkerError> {
    for worker in &mut *workers {
        worker.send(&ToWorker::Job(Job::Measure(point.clone(), repeat))).await?;
    }
    let start = start_together::<String>(workers, clock, LIMIT).await?;
    let results = workers.iter_mut().zip(start.clocks).map(async |(worker, estimate)| {
        let result: AgentRepeatResult = receive_reply(worker).await?;
        let start = AgentStart {
            agent: worker.link.name.clone(),
            offset_us: estimate.offset.ns as f64 / 1e3,
            uncertainty_us: estimate.offset.uncertainty_ns as f64 / 1e3,
            late_us: result.late_us,
            requests: result.measured.as_ref().map_or(0, |measured| measured.sums.calls),
        };
        Ok((start, result))
    });
    futures::future::try_join_all(results).await
}

/// Combines the figures of agents: sums over the common window, and latencies of all calls.
///
/// # Errors
/// An agent's latencies cannot be read.
fn combined(shares: &[(AgentStart, MeasuredRepeat)], limits: &Limits) -> Result<MeasuredRepeat> {
    let mut latencies = Histogram::<u64>::new(3)?;
    latencies.auto(true);
    let (mut sums, mut disturbed, mut agents) = (Sums::default(), Vec::new(), Vec::new());
    for (start, measured) in shares {
        let own = measured.latencies().with_context(|| start.agent.clone())?;
        latencies.add(own).with_context(|| start.agent.clone())?;
        sums.add(&measured.sums);
        if let Some(why) = &measured.disturbed {
            disturbed.push(format!("{}: {why}", start.agent));
        }
        if start.skew_us() > limits.start_skew_us as f64 {
            let (skew, most) = (start.skew_us() / 1e3, limits.start_skew_us as f64 / 1e3);
            let agent = &start.agent;
            let why = format!("{agent}: start skew of up to {skew:.1} ms, more than {most} ms");
            disturbed.push(why);
        }
        agents.push(AgentShare {
            start: start.clone(),
            mb_per_s: measured.sums.ended_bytes as f64 / 1e6 / measured.window_s,
        });
    }
    let all = || shares.iter().map(|(_, measured)| measured);
    let via: BTreeSet<&str> = all().map(|one| one.via.as_str()).collect();
    Ok(MeasuredRepeat {
        latency_hdr: encode(&latencies)?,
        late_p99_us: all().filter_map(|one| one.late_p99_us).reduce(f64::max),
        // Agents start together: if data or calls run out, the last agent ends the repeat.
        window_s: all().map(|one| one.window_s).fold(0.0, f64::max),
        seconds: seconds(shares),
        sums,
        via: Vec::from_iter(via).join(", "),
        machine: MachineUse {
            own_cpu_s: all().map(|one| one.machine.own_cpu_s).sum(),
            foreign_cpu_share: all().filter_map(|one| one.machine.foreign_cpu_share).reduce(f64::max),
            steal_share: all().filter_map(|one| one.machine.steal_share).reduce(f64::max),
            fetched_bytes: all().map(|one| one.machine.fetched_bytes).sum(),
            disk: all().filter_map(|one| one.machine.disk).reduce(Traffic::plus),
            nfs: all().filter_map(|one| one.machine.nfs).reduce(Traffic::plus),
        },
        disturbed: (!disturbed.is_empty()).then(|| disturbed.join(", ")),
        agents,
    })
}

/// Sums of each second, without a p99: it does not follow from the agents' p99s.
fn seconds(shares: &[(AgentStart, MeasuredRepeat)]) -> Vec<SecondFigures> {
    let longest = shares.iter().map(|(_, one)| one.seconds.len()).max().unwrap_or(0);
    let second = |number: usize| {
        let own = || shares.iter().filter_map(|(_, one)| one.seconds.get(number));
        SecondFigures {
            calls: own().map(|second| second.calls).sum(),
            mb_per_s: own().map(|second| second.mb_per_s).sum(),
            p99_us: None,
        }
    };
    (0..longest).map(second).collect()
}

/// Agents in `run.json`.
#[derive(Debug, Serialize)]
pub(super) struct AgentFigures {
    hosts: Vec<AgentHost>,
    repeats: Vec<AgentRepeat>,
}

/// Shares of a repeat.
#[derive(Debug, Serialize)]
struct AgentRepeat {
    point: Point,
    repeat: u32,
    shares: Vec<AgentShare>,
}

impl AgentFigures {
    pub(super) fn of(hosts: Vec<AgentHost>, entries: &[Entry]) -> Self {
        let repeat = |entry: &Entry| {
            Some(AgentRepeat {
                point: entry.point.clone(),
                repeat: entry.repeat,
                shares: entry.measured.as_ref()?.agents.clone(),
            })
        };
        Self {
            hosts,
            repeats: entries.iter().filter_map(repeat).collect(),
        }
    }

    /// Fact of the report.
    pub(super) fn text(&self) -> String {
        let agents: Vec<&str> = self.hosts.iter().map(|host| host.agent.as_str()).collect();
        let (count, agents) = (count_of(agents.len(), "agent"), agents.join(", "));
        let starts = self.repeats.iter().flat_map(|repeat| &repeat.shares);
        let skew_ms = starts.map(|share| share.start.skew_us()).fold(0.0, f64::max) / 1e3;
        format!(
            "{count} ({agents}), started within {skew_ms:.2} ms of the common start: calls/s and MB/s are sums, latencies \
             are of all calls; each agent uses the full depth, data and files of a point, and its share of an offered rate"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_agents_are_pooled_and_starts_apart_disturb_a_repeat() {
        let share = |agent: &str, us: u64, late_us: f64| {
            let mut latencies = Histogram::<u64>::new(3).unwrap();
            latencies.record_n(us * 1000, 100).unwrap();
            let measured = serde_json::json!({
                "latency_hdr": encode(&latencies).unwrap(), "window_s": 1.0, "calls": 100, "ended": 100, "writes": 0,
                "asked_bytes": 409_600, "ended_bytes": 409_600, "wire_bytes": 0, "requests": 0, "retries": 0, "unfinished": 0, "via": "",
                "machine": {"own_cpu_s": 0.1}
            });
            let start = AgentStart {
                agent: agent.to_owned(),
                offset_us: 0.0,
                uncertainty_us: 100.0,
                late_us,
                requests: 100,
            };
            (start, serde_json::from_value::<MeasuredRepeat>(measured).unwrap())
        };
        let both = |late_us| {
            let limits = Limits {
                start_skew_us: 1000,
                ..Limits::default()
            };
            combined(&[share("a:1", 10, 0.0), share("b:1", 1000, late_us)], &limits).unwrap()
        };
        let together = both(500.0);
        assert_eq!((together.disturbed.as_deref(), together.agents.len()), (None, 2));
        assert_eq!(together.sums.ended_bytes, 819_200);
        let latencies = together.latencies().unwrap();
        let [fast, slow] = [0.4, 0.6].map(|share| latencies.value_at_quantile(share));
        assert!(
            latencies.len() == 200 && fast < 11_000 && slow > 990_000,
            "{fast} {slow}"
        );
        let why = both(1400.0).disturbed.unwrap();
        assert_eq!(why, "b:1: start skew of up to 1.5 ms, more than 1 ms");
    }
}
