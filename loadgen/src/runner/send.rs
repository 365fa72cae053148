//! Sends one step, by this process or several, and reads the server's counters around it.
//!
//! In: prepared requests. Out: samples by point. Knows nothing of repeats, or of the use of samples.

use super::recorder::NamedFailures;
use super::requests::Requests;
use super::target::Target;
use crate::error::RunError;
use crate::plan::Plan;
use crate::server::delta::{self, Reading};
use crate::store::requests::RequestFacts;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tierlab_agents::remote::Agents;
use tierlab_agents::worker::WorkerError;
use tierlab_analysis::record::{AgentStart, DriverFigures, Sample, SentRequests, ServerDelta, SlowRequest};
use tierlab_instrument::machine::watch::{MachineWatch, Watched};
use tierlab_load::driver::{self, Finished};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::live::Watch;
use tierlab_load::schedule::{Load, Schedule};
use tierlab_load::workers::Workers;
use tierlab_load::workers::message::StepOrder;

/// Maximum requests built to describe those of several processes.
const DESCRIBED_REQUESTS: usize = 10_000;

/// Senders of a run's requests.
#[derive(Debug)]
pub struct Senders {
    /// Several processes on this host, or agents.
    pub workers: Option<Workers>,
}

impl Senders {
    /// Connects to the agents, or starts `workers` processes if there is more than one.
    ///
    /// # Errors
    /// A process cannot be started, or an agent is not reached.
    pub async fn new(plan: &Plan, workers: u32, agents: Option<Agents>) -> Result<Self, RunError> {
        let workers = match (agents, workers) {
            (Some(agents), _) => {
                let text = plan.remote_text().map_err(RunError::io(&plan.file))?;
                Some(Workers::connect(agents, text, plan.step_limit()).await?)
            }
            (None, 0 | 1) => None,
            (None, more) => Some(Workers::start(more, plan.local_text(), plan.step_limit()).await?),
        };
        Ok(Self { workers })
    }

    /// Describes the senders for the result.
    pub fn note(workers: u32, agents: usize) -> String {
        match workers {
            _ if agents > 0 => format!("load generator (it conducts; {agents} agents send)"),
            0 | 1 => "load generator".into(),
            more => format!("load generator ({more} processes)"),
        }
    }
}

/// Results of a step for one of its points.
#[derive(Debug)]
pub struct PartResults {
    /// Samples, and the pacer's observations.
    pub finished: Finished,
    /// Schedule that the samples belong to.
    pub schedule: Arc<Schedule>,
    /// Seed of its arrivals, entities and tensors.
    pub(super) seed: u64,
    /// Statistics of its requests; absent for journeys.
    pub(super) sent: Option<SentRequests>,
    /// Facts for the record of its requests.
    pub(super) facts: Option<RequestFacts>,
    /// File of its requests, once they are written.
    pub(super) requests_file: Option<String>,
    /// Slowest of these requests.
    pub(super) slowest: Vec<SlowRequest>,
    /// Figures that only its kind of driver has.
    pub(super) driver: DriverFigures,
    /// Failures of whole journeys by the step that failed, instead of those in the samples.
    pub(super) failures: Option<NamedFailures>,
}

impl PartResults {
    /// Creates the part of an open loop.
    pub(super) fn new(finished: Finished, schedule: Arc<Schedule>, seed: u64) -> Self {
        Self {
            finished,
            schedule,
            seed,
            sent: None,
            facts: None,
            requests_file: None,
            slowest: Vec::new(),
            driver: DriverFigures::default(),
            failures: None,
        }
    }
}

/// Results of a step.
#[derive(Debug)]
pub(super) struct Results {
    /// Results by point, in the order of the points.
    pub(super) parts: Vec<PartResults>,
    /// Requests that the server counts.
    pub(super) counted: delta::RequestCounts,
    /// Start uncertainty of its agents; empty without agents.
    pub(super) agents: Vec<AgentStart>,
}

impl Results {
    /// Creates the results of a step whose samples are all of requests, sent by this process.
    pub(super) fn new(parts: Vec<PartResults>) -> Self {
        let samples = parts.iter().flat_map(|part| &part.finished.samples);
        Self {
            counted: delta::RequestCounts::new(samples),
            parts,
            agents: Vec::new(),
        }
    }
}

/// Reports of the server and of the machine around a step.
#[derive(Debug)]
pub struct Reports {
    /// Server counters; absent if the server reports none, or did not answer before and after.
    pub server: Option<ServerDelta>,
    /// True if the server should have reported its counters and did not.
    pub(super) lacks_counters: bool,
    /// True if there was no good reply.
    pub(super) lacks_replies: bool,
    /// Activity of the machine.
    pub(super) watched: Option<Watched>,
}

/// One step on its way: its target, and the observation of the server and of the machine around it.
pub(super) struct StepContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) target: &'a Target,
    pub(super) watch: &'a Watch,
    pub(super) interrupt: &'a Interrupt,
    /// Distinct models of its requests.
    models: Vec<&'a str>,
    machine: Option<MachineWatch>,
    before: Option<(Instant, Reading)>,
}

impl<'a> StepContext<'a> {
    /// Watches the machine, from before the step's requests are prepared on.
    pub(super) fn watch(
        plan: &'a Plan,
        target: &'a Target,
        models: Vec<&'a str>,
        (watch, interrupt): (&'a Watch, &'a Interrupt),
    ) -> Self {
        Self {
            plan,
            target,
            watch,
            interrupt,
            models,
            machine: MachineWatch::begin(target.control.addresses(), plan.step_limit()),
            before: None,
        }
    }

    /// Requests of a load of a model against its target.
    pub(super) fn requests(&self, load: Load, model: &'a str, seed: u64) -> Requests<'a> {
        Requests {
            plan: self.plan,
            target: self.target,
            load,
            model,
            seed,
        }
    }

    /// Reads the server's reports just before the step.
    pub(super) async fn begin(&mut self) {
        let before = self.target.control.read(&self.models).await.ok();
        self.before = before.map(|before| (Instant::now(), before));
    }

    /// Reads the server's reports after the step.
    pub(super) async fn end(self, sent: &Results) -> Reports {
        let control = &self.target.control;
        let after = control.read(&self.models).await.ok();
        let (server, lacks_counters) = match (&self.before, &after) {
            (Some((read_at, before)), Some(after)) => {
                let timed = |delta| ServerDelta {
                    between_s: Some(read_at.elapsed().as_secs_f64()),
                    ..delta
                };
                (after.since(before, &self.models, sent.counted).map(timed), false)
            }
            _ => (None, control.has_reports()),
        };
        let mut samples = sent.parts.iter().flat_map(|part| &part.finished.samples);
        // All parts begin together.
        let began = sent.parts[0].finished.window_began;
        Reports {
            server,
            lacks_counters,
            lacks_replies: !samples.any(Sample::is_ok),
            watched: self.machine.and_then(|machine| machine.end(began, self.plan.window)),
        }
    }
}

/// Measures requests against one target, sent by this process; `None` if interrupted.
///
/// # Errors
/// The step could not be driven.
pub async fn measure(
    requests: &Requests<'_>,
    interrupt: &Interrupt,
) -> Result<Option<(PartResults, Reports)>, RunError> {
    let watch = Watch::default();
    let models = vec![requests.model];
    let mut context = StepContext::watch(requests.plan, requests.target, models, (&watch, interrupt));
    let Some(mut sent) = send(requests, &mut context, None).await? else {
        return Ok(None);
    };
    let reports = context.end(&sent).await;
    Ok(Some((sent.parts.swap_remove(0), reports)))
}

/// Sends the requests of a load, by `workers` if there are any; `None` if interrupted.
pub(super) async fn send(
    requests: &Requests<'_>,
    context: &mut StepContext<'_>,
    workers: Option<&mut Workers>,
) -> Result<Option<Results>, RunError> {
    let schedule = requests.schedule();
    let part = |finished, sent| PartResults {
        sent: Some(sent),
        ..PartResults::new(finished, Arc::clone(&schedule), requests.seed)
    };
    let Some(workers) = workers else {
        let (step, sent) = requests.step(&schedule, context.watch)?;
        let facts = requests.described(&step);
        context.begin().await;
        let finished = driver::run(step, context.interrupt).await?;
        return Ok(finished.map(|finished| {
            Results::new(vec![PartResults {
                facts,
                ..part(finished, sent)
            }])
        }));
    };
    // Each process builds its own requests; their statistics are the same.
    let described = requests.prepare(schedule.due_us.len().min(DESCRIBED_REQUESTS))?;
    context.begin().await;
    context.watch.sent_by(workers.size());
    let order = StepOrder {
        target: requests.target.control.spec.as_ref().clone(),
        load: requests.load,
        seed: requests.seed,
        journey: None,
    };
    let sent = tokio::select! {
        sent = workers.run(&order, &schedule) => sent?,
        () = context.interrupt.raised() => return Ok(None),
    };
    Ok(Some(Results {
        agents: sent.starts,
        ..Results::new(vec![part(sent.finished, described.sent)])
    }))
}

/// Maximum restarts of one step after an agent was lost.
const MAX_RESTARTS: usize = 3;

impl Senders {
    /// Returns the result of a step; `None` if an agent was lost during it and is back, so that the step must be
    /// restarted. `lost_before` records the losses.
    ///
    /// # Errors
    /// The step's own, an interrupt, and the loss of an agent that does not come back or is lost repeatedly.
    pub(super) async fn result<T>(
        &mut self,
        sent: Result<Option<T>, RunError>,
        lost_before: &mut Vec<String>,
        interrupt: &Interrupt,
        folder: &Path,
    ) -> Result<Option<T>, RunError> {
        let interrupted = || RunError::Interrupted(folder.to_owned());
        let lost = match sent {
            Err(RunError::Workers(WorkerError::Lost(problem))) => problem,
            Ok(None) => return Err(interrupted()),
            sent => return sent,
        };
        let end = |why: String| {
            RunError::AgentLost(format!(
                "{why}\nThat step is dropped; finished steps are in {}; start the agent again and resume with --resume {0}",
                folder.display()
            ))
        };
        let Some(workers) = &mut self.workers else {
            return Err(end(lost));
        };
        lost_before.push(lost.clone());
        if lost_before.len() > MAX_RESTARTS {
            return Err(end(format!("{lost}, for the {}th time in one step", lost_before.len())));
        }
        eprintln!("{lost}; the current step is dropped, and restarted once the agent is back");
        tokio::select! {
            back = workers.reconnect() => back.map_err(|error| end(format!("{lost}, and did not come back: {error}")))?,
            () = interrupt.raised() => return Err(interrupted()),
        }
        Ok(None)
    }
}
