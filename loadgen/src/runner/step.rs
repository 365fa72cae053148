//! Run in progress, and one step of it.
//!
//! In: a plan and its targets. Out: a step, stored in its folder's journal as soon as it is finished, so that a kill
//! loses only the current step.

use super::check_reply::check_reply;
use super::ledger::{Attempt, Ledger, PlannedStep, Work, annotate};
use super::naming::{factors, line, name};
use super::recorder;
use super::send::{self, PartResults, Reports, Results, Senders, StepContext};
use super::target::{RETRY_INTERVAL, Target};
use super::{journeys, loops_and_mixes};
use crate::error::RunError;
use crate::plan::Plan;
use crate::store::folder;
use crate::store::histograms::hdr_file_of;
use crate::store::journal::{FinishedStep, Points, Position};
use crate::store::requests;
use crate::store::resume::StoppedRun;
use crate::store::time::rfc3339;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::mix_shares;
use tierlab_analysis::record::{Driven, DriverFigures, Factors, Failure, Outcome, Repeat, Run, ServerDelta};
use tierlab_instrument::machine::quiet;
use tierlab_instrument::units::wait;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::schedule::{Load, split_mix};
use tierlab_load::workers::Workers;

/// Maximum retries of a server that did not answer.
const MAX_RETRIES: u32 = 3;

/// Run in progress.
pub struct Runner<'a> {
    /// Plan of the run.
    pub plan: &'a Plan,
    /// Measured targets.
    pub targets: Vec<Target>,
    /// Folder of the result.
    pub folder: PathBuf,
    /// Existing results of a resumed run.
    pub earlier: Option<StoppedRun>,
    /// Raised by Ctrl-C.
    pub interrupt: Interrupt,
    /// Senders of requests.
    pub senders: Senders,
    /// If true, everything is printed at the end, and not only the answer.
    pub verbose: bool,
    /// Check before each step that everything started by the lab still runs.
    pub health_check: Box<dyn FnMut() -> Result<(), RunError> + Send + 'a>,
    /// Preparation of a target before each of its steps.
    pub prepare: Prepare<'a>,
}

/// Preparation of a target.
type Prepare<'a> = Box<dyn FnMut(&Target) -> Result<(), RunError> + Send + 'a>;

impl Work<'_> {
    /// Distinct models of its requests; the plan's own if it names none.
    fn models<'a>(&'a self, plan: &'a Plan) -> Vec<&'a str> {
        let models: BTreeSet<&str> = match self {
            Self::Open(_) | Self::Closed(_) | Self::Paired(_) => BTreeSet::new(),
            Self::Mix(shares) => shares.iter().map(|share| share.model).collect(),
            Self::Journeys(journey, _) => journey.models().collect(),
        };
        match models.is_empty() {
            true => vec![&plan.model],
            false => models.into_iter().collect(),
        }
    }

    /// Sends the requests, by `workers` if there are any and they can; `None` if interrupted.
    async fn send(
        &self,
        seed: u64,
        context: &mut StepContext<'_>,
        workers: Option<&mut Workers>,
    ) -> Result<Option<Results>, RunError> {
        match self {
            Self::Open(load) => {
                let requests = context.requests(*load, &context.plan.model, seed);
                send::send(&requests, context, workers).await
            }
            Self::Closed(closed) | Self::Paired(closed) => loops_and_mixes::send_closed(*closed, seed, context).await,
            Self::Mix(shares) => loops_and_mixes::send_mix(shares, context).await,
            &Self::Journeys(journey, rate) => journeys::send((journey, rate), seed, context, workers).await,
        }
    }
}

impl Runner<'_> {
    /// Measures a load of the plan's model, unless this attempt at it exists already.
    pub(super) async fn step(
        &mut self,
        ledger: &mut Ledger,
        (target, position): Position,
        load: Load,
        attempt: Attempt,
    ) -> Result<(), RunError> {
        let factors = factors(self.plan, &self.targets[target], load, &self.plan.model);
        let existing = ledger.points.step(&factors, attempt.index);
        if existing.is_some_and(|repeat| repeat.attempt >= attempt.attempt) {
            ledger.progress.skip();
            return Ok(());
        }
        let step = PlannedStep {
            target,
            attempt,
            work: Work::Open(load),
            points: vec![(position, factors)],
        };
        self.measure(ledger, step).await
    }

    /// Measures a step, and starts over if an agent is lost meanwhile.
    pub(super) async fn measure(&mut self, ledger: &mut Ledger, step: PlannedStep<'_>) -> Result<(), RunError> {
        let target = step.target;
        self.wait_until_quiet(ledger, target).await;
        let first = name(&step.points[0].1);
        let shown = match &step.work {
            Work::Mix(shares) => format!("{first} in a mix of {}", shares.len()),
            _ => first.clone(),
        };
        let (mut seed, mut lost_before) = (step.attempt.seed, Vec::new());
        let (mut sent, reports) = loop {
            let target = &self.targets[target];
            (self.health_check)()?;
            (self.prepare)(target)?;
            let watch = ledger.progress.begin(&shown, ledger.patience.waited);
            let models = step.work.models(self.plan);
            let mut context = StepContext::watch(self.plan, target, models, (&watch, &self.interrupt));
            let sending = step.work.send(seed, &mut context, self.senders.workers.as_mut());
            let sent = Box::pin(sending).await;
            let senders = &mut self.senders;
            let sent = senders.result(sent, &mut lost_before, &self.interrupt, &self.folder);
            if let Some(sent) = sent.await? {
                let reports = context.end(&sent).await;
                break (sent, reports);
            }
            // A cache holds the entities of the lost attempt.
            seed = split_mix(seed);
        };
        let at = (first.as_str(), step.attempt.index);
        self.check_alive(ledger, target, at, &reports).await?;
        self.keep_requests(&step, &mut sent).await?;
        let given_up = [Failure::DrainLimit, Failure::Timeout].map(Outcome::Failed);
        let mut samples = sent.parts.iter().flat_map(|part| &part.finished.samples);
        let has_given_up = samples.any(|sample| given_up.contains(&sample.outcome));
        let repeats = repeats(&step, sent, &lost_before, reports.server.as_ref(), self.plan);
        let mut lines = Vec::new();
        for ((load, factors), repeat) in step.points.into_iter().zip(repeats) {
            let earlier = ledger.points.step(&factors, repeat.index);
            let repeat = annotate(repeat, reports.watched.as_ref(), earlier, &self.plan.limits);
            lines.push(line(&factors, &repeat));
            let step = FinishedStep {
                position: (target, load),
                factors,
                repeat,
            };
            ledger.journal.append(&step)?;
            ledger.add(step);
        }
        let mut line = lines.join("\n    ");
        if reports.lacks_counters {
            line += ", the server's metrics are missing";
        }
        // Printed once it is stored: a printed line is a stored step.
        ledger.progress.finish(&line, ledger.patience.waited);
        if has_given_up {
            self.wait_for_reply(ledger, target).await;
        }
        Ok(())
    }

    /// Waits until the server answers, since it may still work on requests that a step has given up: the next step would
    /// begin behind them.
    async fn wait_for_reply(&self, ledger: &Ledger, target: usize) {
        let limit = 2 * self.plan.step_limit();
        let answered = async {
            let (plan, target) = (self.plan, &self.targets[target]);
            while check_reply(plan, target, &plan.model).await.is_err() {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        };
        let answered = tokio::select! {
            answered = tokio::time::timeout(limit, Box::pin(answered)) => answered,
            () = self.interrupt.raised() => return,
        };
        if answered.is_err() {
            let limit = wait(limit);
            let text =
                format!("  no good reply for {limit} after the step: the next one may begin behind its requests");
            ledger.progress.print(&text);
        }
    }

    /// Writes the requests of each part that keeps them, off the runtime's threads and before the next step.
    async fn keep_requests(&self, step: &PlannedStep<'_>, sent: &mut Results) -> Result<(), RunError> {
        for (part, (_, factors)) in sent.parts.iter_mut().zip(&step.points) {
            let Some(facts) = part.facts.take() else { continue };
            let file = requests::file(factors, step.attempt.index);
            let path = self.folder.join(&file);
            let label = (name(factors), factors.offered_rps, step.attempt.index);
            let requests = std::mem::take(&mut part.finished.recorded);
            let writing = tokio::task::spawn_blocking(move || requests::write(&path, &label, requests, &facts));
            part.slowest = writing.await.map_err(|error| RunError::Failed(error.to_string()))??;
            part.requests_file = Some(file);
        }
        Ok(())
    }

    /// Waits until the machine is quiet, if the last step was disturbed.
    async fn wait_until_quiet(&self, ledger: &mut Ledger, target: usize) {
        let step = self.plan.warmup + self.plan.window;
        let wait_limit = ledger.patience.max_wait(step, Instant::now());
        let worth_it = |(longest, _): &(Duration, &str)| !longest.is_zero() && !self.plan.measure_once;
        let Some((longest, by)) = wait_limit.filter(worth_it) else {
            return;
        };
        let text = format!("  waiting for a quiet machine, at most {}: {by}", wait(longest));
        ledger.progress.print(&text);
        let began = Instant::now();
        let servers = self.targets[target].control.addresses();
        let waiting = quiet::wait(longest, || quiet::is_disturbed(servers.clone(), &self.plan.limits));
        let outcome = tokio::select! {
            outcome = waiting => outcome,
            () = self.interrupt.raised() => return,
        };
        ledger.patience.record_wait(began.elapsed(), outcome.is_some());
        if outcome.is_none() {
            ledger.progress.print("  the machine is busy: measuring anyway");
        }
    }

    /// Ends the run if the server is gone after a step without a good reply, or without its counters: the step says nothing about
    /// the tier, and further steps would say less. A server that is only too busy to answer does not end the run.
    async fn check_alive(
        &mut self,
        ledger: &mut Ledger,
        target: usize,
        (step, repeat): (&str, u32),
        reports: &Reports,
    ) -> Result<(), RunError> {
        if !reports.lacks_counters && !reports.lacks_replies {
            return Ok(());
        }
        ledger.unread_steps += usize::from(reports.lacks_counters);
        let control = self.targets[target].control.clone();
        let mut last = None;
        for _ in 0..MAX_RETRIES {
            // A lab knows more about its own processes.
            (self.health_check)()?;
            match control.check_alive().await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let Some(error) = last else { return Ok(()) };
        let folder = self.folder.display();
        Err(RunError::Failed(format!(
            "the server stopped answering during {step}, repeat {}: {error}\nThat step is dropped; finished steps are in {folder}; \
             check the server's log, start it again as before, and resume with --resume {folder}",
            repeat + 1,
        )))
    }

    pub(super) fn write(&self, run: &mut Run, points: &Points) -> Result<(), RunError> {
        run.points = points.all().to_vec();
        run.finished_at = rfc3339(SystemTime::now());
        tierlab_analysis::conclude(run);
        folder::rewrite(run, &self.folder)?;
        Ok(())
    }
}

/// Repeats of a step, one for each of its points.
fn repeats(
    step: &PlannedStep<'_>,
    sent: Results,
    lost_before: &[String],
    server: Option<&ServerDelta>,
    plan: &Plan,
) -> Vec<Repeat> {
    let objectives = plan.objectives();
    let attempt = step.attempt;
    let to_repeat = |(part, (_, factors)): (PartResults, &(usize, Factors))| {
        let pool = |connections| recorder::pool(&part.finished, &part.schedule, connections);
        let mut repeat = Repeat {
            index: attempt.index,
            seed: part.seed,
            hdr_file: hdr_file_of(factors, attempt.index, attempt.attempt),
            attempt: attempt.attempt,
            purpose: attempt.purpose,
            sent: part.sent,
            agents: sent.agents.clone(),
            lost_before: lost_before.to_vec(),
            requests_file: part.requests_file,
            slowest: part.slowest,
            driver: match factors.driven {
                Some(Driven::Ramp(rates)) => DriverFigures::Ramp {
                    ramp: recorder::ramp_figures(&part.finished, &part.schedule, rates),
                },
                _ => part.driver,
            },
            in_time: recorder::in_time(&part.finished, &part.schedule, &objectives),
            pool: plan.pool().map(pool),
            ..recorder::record(&part.finished, &part.schedule, server.cloned())
        };
        if let Some(failures) = part.failures {
            (repeat.errors, repeat.examples) = (failures.errors, failures.examples);
        }
        repeat
    };
    let mut repeats: Vec<Repeat> = sent.parts.into_iter().zip(&step.points).map(to_repeat).collect();
    if let Work::Mix(_) = step.work {
        let sizes = step.points.iter().map(|(_, factors)| factors.batch_size);
        let shares = mix_shares(&sizes.zip(&repeats).collect::<Vec<_>>());
        for (repeat, mix_share) in repeats.iter_mut().zip(shares) {
            repeat.driver = DriverFigures::MixPart { mix_share };
        }
    }
    repeats
}
