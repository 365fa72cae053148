//! Several load processes, for rates that one cannot hold: on this host, or as agents on others. In: a step. Out: its samples, all
//! processes' together, as one process would have left them.
//!
//! Each process takes an interleaved share of the one schedule (of N, process k sends requests k, k + N, k + 2N …), and
//! all start their clocks at one moment, told to each on its own clock. Their samples are put together before anything is calculated, so
//! that a result does not depend on how many processes sent it. Knows nothing of statistics.
//!
//! - [`message`]: messages and their bytes; [`link`]: a way to the other side
//! - [`clock`]: how far another clock is from this one, and the common start
//! - `worker`: one process from the run's view; `remote`: agents from the run's view; [`listen`]: the door of an agent;
//!   [`handshake`]: permission to give orders

pub mod clock;
pub mod handshake;
pub mod link;
pub mod listen;
pub mod message;
mod remote;
mod worker;

pub use remote::Agents;
pub use worker::{StepShare, WorkerError};

use crate::driver::Finished;
use crate::pacer::Observed;
use crate::schedule::Schedule;
use clock::{ASKED_AT_ONCE, WallClock};
use futures::{StreamExt as _, TryStreamExt as _};
use link::LinkError;
use message::{FileHead, Setup, StepOrder, ToRun, ToWorker};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::AgentStart;
use worker::{Known, Share, Worker};

/// Maximum load processes of one run.
pub const MOST: u32 = 64;
/// Time limit for a process to prepare a step's requests and to start its users.
const PREPARE_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for handing over samples, beyond the step itself.
pub const HAND_OVER_LIMIT: Duration = Duration::from_secs(60);

/// Plan of a run for its load processes.
#[derive(Debug, Clone)]
pub struct PlanText {
    /// Plan file: named in errors, and the base of its relative paths.
    pub file: PathBuf,
    /// Text of the plan: the file may change during the run.
    pub text: String,
    /// Files with the contents of requests, sent to agents; like `file` then, absolute paths without `..`.
    pub files: Vec<PathBuf>,
}

/// Load processes of a run. Those of this host end with it.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    plan: PlanText,
    step_limit: Duration,
    agents: Option<Agents>,
    clock: WallClock,
}

impl Workers {
    /// Starts `size` processes of this executable.
    ///
    /// # Errors
    /// One cannot be started.
    pub async fn start(size: u32, plan: PlanText, step_limit: Duration) -> Result<Self, WorkerError> {
        let workers: Result<_, _> = (0..size).map(|number| Worker::start(number, size)).collect();
        Self::of(workers?, None, plan, step_limit).await
    }

    /// Connects to agents.
    ///
    /// # Errors
    /// An agent is unreachable, refuses, or cannot receive the plan.
    pub async fn connect(agents: Agents, plan: PlanText, step_limit: Duration) -> Result<Self, WorkerError> {
        let workers = agents.connect(agents.start_wait).await?;
        Self::of(workers, Some(agents), plan, step_limit).await
    }

    async fn of(
        workers: Vec<Worker>,
        agents: Option<Agents>,
        plan: PlanText,
        step_limit: Duration,
    ) -> Result<Self, WorkerError> {
        let mut all = Self {
            workers,
            plan,
            step_limit,
            agents,
            clock: WallClock::off_by(0),
        };
        all.set_up().await?;
        Ok(all)
    }

    /// Reconnects to all agents after one was lost, and waits for each up to the configured time.
    ///
    /// # Errors
    /// An agent does not come back.
    pub async fn reconnect(&mut self) -> Result<(), WorkerError> {
        let Some(agents) = &self.agents else {
            return Err(WorkerError::Failed(
                "processes of this host are not started again".to_owned(),
            ));
        };
        // The other agents end their work with their connection.
        self.workers.clear();
        self.workers = agents.connect(agents.wait).await?;
        self.set_up().await
    }

    /// Number of processes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.workers.len()
    }

    /// True if they are agents.
    #[must_use]
    pub const fn are_agents(&self) -> bool {
        self.agents.is_some()
    }

    async fn set_up(&mut self) -> Result<(), WorkerError> {
        let heads: Vec<FileHead> = match &self.agents {
            None => Vec::new(),
            Some(_) => self
                .plan
                .files
                .iter()
                .map(|file| remote::head_of(file))
                .collect::<Result<_, _>>()?,
        };
        let workers = self.workers.len() as u32;
        for (share, worker) in (0..).zip(&mut self.workers) {
            let setup = ToWorker::Setup(Setup {
                file: self.plan.file.clone(),
                plan: self.plan.text.clone(),
                files: heads.clone(),
                share,
                of: workers,
            });
            let said = worker.link.say(&setup).await;
            worker.check(said).await?;
            for head in &heads {
                remote::send_file(worker, head).await?;
            }
        }
        Ok(())
    }

    /// Runs one step with all processes, as soon as every one is ready.
    ///
    /// # Errors
    /// One of them failed, ended or timed out; the error names it.
    pub async fn run(&mut self, order: &StepOrder, schedule: &Schedule) -> Result<Sent, WorkerError> {
        for worker in &mut self.workers {
            worker.may_be_told(order)?;
            let said = match order.message() {
                Ok(message) => worker.link.say(&message).await,
                Err(error) => Err(error),
            };
            worker.check(said).await?;
        }
        let ready = self.workers.iter_mut().map(async |worker| {
            let ready = match worker.link.answer(PREPARE_LIMIT).await {
                Ok(ToRun::Ready) => Ok(()),
                Ok(_) => Err(LinkError::Unexpected("Ready")),
                Err(error) => Err(error),
            };
            worker.check(ready).await
        });
        futures::future::try_join_all(ready).await?;
        let clock = self.clock;
        let known = self.workers.iter_mut().map(|worker| worker.ask_the_time(&clock));
        let known: Vec<Known> = futures::stream::iter(known)
            .buffered(ASKED_AT_ONCE)
            .try_collect()
            .await?;
        let slowest = known.iter().map(|known| known.slowest).max().unwrap_or_default();
        let lead = clock::lead(self.workers.len(), slowest);
        let start_ns = clock
            .now_ns()
            .saturating_add(i64::try_from(lead.as_nanos()).unwrap_or(i64::MAX));
        for (worker, known) in self.workers.iter_mut().zip(&known) {
            let clock_ns = start_ns.saturating_add(known.offset.ns);
            let said = worker.link.say(&ToWorker::Start(clock_ns)).await;
            worker.check(said).await?;
        }
        let to_window = clock.instant(start_ns).saturating_duration_since(Instant::now());
        let window_began = SystemTime::now() + to_window + Duration::from_micros(schedule.window_start_us);
        let of = self.workers.len();
        let limit = lead + self.step_limit + HAND_OVER_LIMIT;
        let shares = self.workers.iter_mut().enumerate();
        let steps = order.journey.as_ref().map_or(0, |journey| journey.steps);
        let shares = shares.map(|(number, worker)| worker.finished(schedule.share(number, of), steps, limit));
        let shares = futures::future::try_join_all(shares).await?;
        let starts = self.workers.iter().zip(&known).zip(&shares);
        let starts = starts.map(|((worker, known), share)| AgentStart {
            agent: worker.link.name.clone(),
            offset_us: known.offset.ns as f64 / 1e3,
            uncertainty_us: known.offset.uncertainty_ns as f64 / 1e3,
            late_us: share.late_us as f64,
            requests: share.samples.len() as u64,
        });
        let starts = if self.agents.is_some() {
            starts.collect()
        } else {
            Vec::new()
        };
        Ok(together(shares, window_began, steps, starts))
    }
}

/// Results of a step from all processes.
#[derive(Debug)]
pub struct Sent {
    /// Samples of requests, or of whole journeys.
    pub finished: Finished,
    /// For journeys, the results of each step.
    pub steps: Vec<StepShare>,
    /// Uncertainty of each agent's start; empty for processes of this host.
    pub starts: Vec<AgentStart>,
}

/// Merged results of several processes.
fn together(shares: Vec<Share>, window_began: SystemTime, steps: usize, starts: Vec<AgentStart>) -> Sent {
    let mut of_steps: Vec<StepShare> = (0..steps).map(|_| StepShare::default()).collect();
    let mut all = Finished {
        streams: Vec::new(),
        kept: Vec::new(),
        samples: Vec::new(),
        observed: Observed {
            limit_hit: false,
            mean_in_flight: 0.0,
            stopped_us: None,
        },
        window_began,
        examples: BTreeMap::new(),
    };
    for mut share in shares {
        all.samples.append(&mut share.samples);
        all.observed.limit_hit |= share.observed.limit_hit;
        all.observed.mean_in_flight += share.observed.mean_in_flight;
        for (failure, says) in share.examples {
            all.examples.entry(failure).or_insert(says);
        }
        for (of_step, mut own) in of_steps.iter_mut().zip(share.steps) {
            of_step.samples.append(&mut own.samples);
            for (failure, says) in own.examples {
                of_step.examples.entry(failure).or_insert(says);
            }
        }
    }
    Sent {
        finished: all,
        steps: of_steps,
        starts,
    }
}
