//! Agents of a run, from the run's view: each prepares and measures every repeat of every point, and all start together. In: a plan and
//! addresses. Out: repeats, as if one host had made all calls. `serve`: an agent; `pool`: combined results of all agents.

mod pool;
mod serve;

pub(crate) use serve::{AgentFlags, call};

use super::record::{AgentShare, Entry, MeasuredRepeat};
use crate::plan::{Flags, Plan, Point, Share};
use crate::station::runtime;
use crate::stop::Stop;
use anyhow::{Context as _, Result};
use pool::pooled;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tierlab_agents::clock::WallClock;
use tierlab_agents::link::LinkError;
use tierlab_agents::message::{ToRun, ToWorker, printable};
use tierlab_agents::remote::Agents;
use tierlab_agents::worker::{Worker, WorkerError, start_together};
use tierlab_analysis::record::AgentStart;
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
    /// Measures a point's repeat, once all agents have prepared it. Answer: a [`Told`].
    Measure(Point, u32),
    /// Removes everything written. Answer: null.
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
    pub(super) tiers: BTreeMap<String, Vec<String>>,
}

/// Result of an agent's repeat.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
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
                order(worker, Job::Setup(setup)).await?;
            }
            let hosts = workers.iter_mut().zip(&agents.addresses).map(async |(worker, agent)| {
                let host: AgentHost = reply(worker).await?;
                let shown = |notes: Vec<String>| notes.iter().map(|note| printable(note)).collect();
                Ok::<_, WorkerError>(AgentHost {
                    agent: agent.clone(),
                    tiers: host
                        .tiers
                        .into_iter()
                        .map(|(tier, notes)| (printable(&tier), shown(notes)))
                        .collect(),
                    ..host
                })
            });
            let hosts = futures::future::try_join_all(hosts).await?;
            Ok((workers, hosts))
        });
        // No run had started, so there is nothing to resume.
        let (workers, hosts) = opened.map_err(|error: WorkerError| anyhow::Error::msg(error.to_string()))?;
        Ok(Self {
            runtime,
            workers,
            clock: WallClock::off_by(0),
            hosts,
        })
    }

    /// Distinct notes of each tier, from all agents.
    pub(super) fn tiers(&self) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tier, notes) in self.hosts.iter().flat_map(|host| &host.tiers) {
            let known = all.entry(tier.clone()).or_default();
            let new: Vec<String> = notes.iter().filter(|note| !known.contains(note)).cloned().collect();
            known.extend(new);
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
        let told = self.runtime.block_on(async {
            tokio::select! {
                told = measure(workers, clock, point, repeat) => told.map(Some),
                () = stop.asked() => Ok(None),
            }
        })?;
        let Some(told) = told else {
            // Agents stop and remove their data when their connections end.
            self.workers.clear();
            return Ok(entry);
        };
        let mut shares = Vec::new();
        for (start, Told { measured, .. }) in told {
            match measured {
                Ok(measured) => shares.push((start, measured)),
                Err(why) => {
                    entry
                        .failed
                        .get_or_insert(format!("{}: {}", start.agent, printable(&why)));
                }
            }
        }
        if entry.failed.is_none() {
            match pooled(&shares, &plan.limits) {
                Ok(measured) => entry.measured = Some(measured),
                Err(error) => entry.failed = Some(format!("{error:#}")),
            }
        }
        Ok(entry)
    }

    /// Ends the run at all agents, after they have removed their data.
    ///
    /// # Errors
    /// Data cannot be removed.
    pub(super) fn close(mut self) -> Result<()> {
        let workers = self.workers.iter_mut();
        let ended = workers.map(async |worker| {
            order(worker, Job::End).await?;
            reply::<()>(worker).await
        });
        let ended = self.runtime.block_on(futures::future::try_join_all(ended));
        ended.map(drop).context("an agent cannot remove its data")
    }
}

async fn order(worker: &mut Worker, job: Job) -> Result<(), WorkerError> {
    let said = worker.link.say(&ToWorker::Job(job)).await;
    worker.check(said).await
}

async fn reply<T: DeserializeOwned>(worker: &mut Worker) -> Result<T, WorkerError> {
    let heard = match worker.link.answer::<String>(LIMIT).await {
        Ok(ToRun::Reply(json)) => serde_json::from_str(&json).map_err(|e| LinkError::Unreadable(e.to_string())),
        Ok(_) => Err(LinkError::Unexpected("Reply")),
        Err(error) => Err(error),
    };
    worker.check(heard).await
}

/// Measures one repeat, and returns each agent's result.
async fn measure(
    workers: &mut [Worker],
    clock: &WallClock,
    point: &Point,
    repeat: u32,
) -> Result<Vec<(AgentStart, Told)>, WorkerError> {
    for worker in &mut *workers {
        order(worker, Job::Measure(point.clone(), repeat)).await?;
    }
    let start = start_together::<String>(workers, clock, LIMIT).await?;
    let told = workers.iter_mut().zip(start.known).map(async |(worker, known)| {
        let told: Told = reply(worker).await?;
        let start = AgentStart {
            agent: worker.link.name.clone(),
            offset_us: known.offset.ns as f64 / 1e3,
            uncertainty_us: known.offset.uncertainty_ns as f64 / 1e3,
            late_us: told.late_us,
            requests: told.measured.as_ref().map_or(0, |measured| measured.sums.calls),
        };
        Ok((start, told))
    });
    futures::future::try_join_all(told).await
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
        let starts = self.repeats.iter().flat_map(|repeat| &repeat.shares);
        let skew_us = starts.map(|share| share.start.skew_us()).fold(0.0, f64::max);
        format!(
            "{} agents ({}), started within {:.2} ms of the common start: calls/s and MB/s are sums, latencies are of all calls; each agent \
             uses the full depth, data and files of a point, and its share of an offered rate",
            agents.len(),
            agents.join(", "),
            skew_us / 1e3
        )
    }
}
