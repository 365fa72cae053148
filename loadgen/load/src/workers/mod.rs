//! Several load processes, for rates that one cannot hold: on this host, or as agents on others. In: a step. Out: the
//! samples of all processes together, as from one process.
//!
//! Each process takes an interleaved share of the one schedule (of N, process k sends requests k, k + N, k + 2N …), and
//! all start their clocks at one moment, given to each on its own clock. Their samples are merged before anything is
//! calculated, so that a result does not depend on the number of processes. Knows nothing of statistics.
//!
//! - [`message`]: jobs and replies, in the messages of [`tierlab_agents`], which connects and starts the processes
//! - `share`: samples of one process, checked

pub mod message;
mod share;

pub use share::StepShare;

use crate::driver::Finished;
use crate::pacer::Observed;
use crate::schedule::Schedule;
use message::{FileHead, Job, Setup, StepOrder, ToWorker, WorkerReply};
use share::Share;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tierlab_agents::clock::WallClock;
use tierlab_agents::remote::Agents;
use tierlab_agents::worker::{Worker, WorkerError, start_together};
use tierlab_analysis::record::AgentStart;

/// Time limit for a process to prepare a step's requests and to start its users.
const PREPARE_LIMIT: Duration = Duration::from_secs(120);
/// Time limit for handing over samples, beyond the step itself.
pub const HAND_OVER_LIMIT: Duration = Duration::from_secs(60);

/// Bytes of a file per message.
const PIECE: usize = 1 << 20;

/// Plan of a run for its load processes.
#[derive(Debug, Clone)]
pub struct PlanText {
    /// Plan file: named in errors, and the base of its relative paths.
    pub file: PathBuf,
    /// Text of the plan: the file may change during the run.
    pub text: String,
    /// True if the text has headers or other values that may be secret.
    pub has_secrets: bool,
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
    /// A process cannot be started.
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
            clock: WallClock::with_offset_ms(0),
        };
        all.set_up().await?;
        Ok(all)
    }

    /// Reconnects to all agents after one was lost, and waits for each up to the configured time.
    ///
    /// # Errors
    /// An agent stays unreachable.
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
    pub const fn size(&self) -> usize {
        self.workers.len()
    }

    async fn set_up(&mut self) -> Result<(), WorkerError> {
        for worker in &self.workers {
            share::check_privacy(&worker.link, self.plan.has_secrets)?;
        }
        let files = self.plan.files.iter().filter(|_| self.agents.is_some());
        let heads: Result<Vec<FileHead>, _> = files.map(|file| file_head(file)).collect();
        let heads = heads?;
        let workers = self.workers.len() as u32;
        for (share, worker) in (0..).zip(&mut self.workers) {
            let setup = ToWorker::Job(Job::Setup(Setup {
                file: self.plan.file.clone(),
                plan: self.plan.text.clone(),
                files: heads.clone(),
                share,
                of: workers,
            }));
            worker.send(&setup).await?;
            for head in &heads {
                send_file(worker, head).await?;
            }
        }
        Ok(())
    }

    /// Runs one step with all processes, as soon as every one is ready.
    ///
    /// # Errors
    /// One of them failed, ended or timed out; the error names it.
    pub async fn run(&mut self, order: &StepOrder, schedule: &Schedule) -> Result<MergedResults, WorkerError> {
        for worker in &mut self.workers {
            share::check_privacy(&worker.link, !order.target.access.headers.is_empty())?;
            let message = worker.check(order.message()).await?;
            worker.send(&message).await?;
        }
        let start = start_together::<WorkerReply>(&mut self.workers, &self.clock, PREPARE_LIMIT).await?;
        let to_window = start.at.saturating_duration_since(Instant::now());
        let window_began = SystemTime::now() + to_window + Duration::from_micros(schedule.window_start_us);
        let of = self.workers.len();
        let limit = start.lead + self.step_limit + HAND_OVER_LIMIT;
        let shares = self.workers.iter_mut().enumerate();
        let steps = order.journey.as_ref().map_or(0, |journey| journey.steps);
        let shares = shares.map(|(number, worker)| share::finished(worker, schedule.share(number, of), steps, limit));
        let shares = futures::future::try_join_all(shares).await?;
        let starts = self.workers.iter().zip(&start.clocks).zip(&shares);
        let starts = starts.map(|((worker, estimate), share)| AgentStart {
            agent: worker.link.name.clone(),
            offset_us: estimate.offset.ns as f64 / 1e3,
            uncertainty_us: estimate.offset.uncertainty_ns as f64 / 1e3,
            late_us: share.late_us as f64,
            requests: share.whole.samples.len() as u64,
        });
        let starts = starts.filter(|_| self.agents.is_some()).collect();
        Ok(merge(shares, window_began, steps, starts))
    }
}

/// Returns the header of a file to send.
///
/// # Errors
/// A file that does not exist.
fn file_head(path: &Path) -> Result<FileHead, WorkerError> {
    let metadata = std::fs::metadata(path).map_err(WorkerError::io(path))?;
    Ok(FileHead {
        path: path.to_owned(),
        bytes: metadata.len(),
    })
}

/// Sends a file's bytes: as many as its header says, even if the file has changed since.
///
/// # Errors
/// A file that cannot be read or is shorter, or those of the link.
async fn send_file(worker: &mut Worker, head: &FileHead) -> Result<(), WorkerError> {
    let at = || WorkerError::io(&head.path);
    let mut file = File::open(&head.path).map_err(at())?;
    let mut left = head.bytes;
    let mut part = vec![0; PIECE];
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let read = file.read(&mut part[..len]).map_err(at())?;
        if read == 0 {
            return Err(at()(ErrorKind::UnexpectedEof.into()));
        }
        worker.send(&ToWorker::Job(Job::File(part[..read].to_vec()))).await?;
        left -= read as u64;
    }
    Ok(())
}

/// Results of a step from all processes.
#[derive(Debug)]
pub struct MergedResults {
    /// Samples of requests, or of whole journeys.
    pub finished: Finished,
    /// For journeys, the results of each step.
    pub steps: Vec<StepShare>,
    /// Uncertainty of each agent's start; empty for processes of this host.
    pub starts: Vec<AgentStart>,
}

/// Merged results of several processes.
fn merge(shares: Vec<Share>, window_began: SystemTime, steps: usize, starts: Vec<AgentStart>) -> MergedResults {
    let (mut whole, mut observed) = (StepShare::default(), Observed::default());
    let mut by_step: Vec<StepShare> = (0..steps).map(|_| StepShare::default()).collect();
    for share in shares {
        whole.add(share.whole);
        observed.limit_hit |= share.observed.limit_hit;
        observed.mean_in_flight += share.observed.mean_in_flight;
        for (of_step, own) in by_step.iter_mut().zip(share.steps) {
            of_step.add(own);
        }
    }
    MergedResults {
        finished: Finished {
            examples: whole.examples,
            ..Finished::of(whole.samples, observed, window_began)
        },
        steps: by_step,
        starts,
    }
}
