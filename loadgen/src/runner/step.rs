//! Run in progress, and one step of it.
//!
//! In: a plan and its targets. Out: a step, stored in its folder's journal as soon as it is finished, so that a kill
//! loses only the current step.

use super::ledger::{Attempt, Ledger, beside};
use super::naming::{factors, line, name};
use super::recorder;
use super::send::{self, Beside, Requests, Senders};
use super::target::Target;
use crate::error::RunError;
use crate::plan::Plan;
use crate::store::folder;
use crate::store::journal::{FinishedStep, Points, Position};
use crate::store::resume::StoppedRun;
use crate::store::time::rfc3339;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tierlab_analysis::record::{Driven, Factors, Repeat, Run};
use tierlab_instrument::machine::quiet;
use tierlab_instrument::machine::watch::Watched;
use tierlab_instrument::units::wait;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::load::Load;
use tierlab_load::schedule::split_mix;

/// Maximum retries of a server that did not answer.
const ASKED_AGAIN: u32 = 3;
const ASKED_AFTER: Duration = Duration::from_millis(300);

/// Preparation of a target before each of its steps.
pub type Prepare<'a> = Box<dyn FnMut(&Target) -> Result<(), RunError> + Send + 'a>;

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
    pub alive: Box<dyn FnMut() -> Result<(), RunError> + Send + 'a>,
    /// Preparation of a target before each of its steps.
    pub prepare: Prepare<'a>,
}

impl Runner<'_> {
    /// Runs one step, unless it exists already.
    pub(super) async fn step(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        load: Load,
        attempt: Attempt,
    ) -> Result<(), RunError> {
        self.step_of(ledger, position, load, attempt, None).await
    }

    /// Runs one step of a point that is not one of the plan's loads.
    pub(super) async fn step_of(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        load: Load,
        mut attempt: Attempt,
        driven: Option<Driven>,
    ) -> Result<(), RunError> {
        let target = &self.targets[position.target];
        let factors = Factors {
            driven,
            ..factors(self.plan, target, load, &self.plan.model)
        };
        let there = ledger.points.step(&factors, attempt.index);
        if there.is_some_and(|repeat| repeat.attempt >= attempt.attempt) {
            ledger.progress.skip();
            return Ok(());
        }
        self.until_quiet(ledger, position.target).await;
        let mut lost_before = Vec::new();
        let measured = loop {
            let target = &self.targets[position.target];
            (self.alive)()?;
            (self.prepare)(target)?;
            let watch = ledger.progress.begin(&name(&factors));
            let requests = Requests {
                plan: self.plan,
                target,
                load,
                model: &self.plan.model,
                seed: attempt.seed,
            };
            let step = send::measure_with(self.senders.workers.as_mut(), &requests, &watch, &self.interrupt);
            let sent = Box::pin(step).await;
            let kept = self
                .senders
                .kept(sent, &mut lost_before, &self.interrupt, &self.folder)
                .await?;
            if let Some(measured) = kept {
                break measured;
            }
            // A cache holds the entities of the lost attempt.
            attempt.seed = split_mix(attempt.seed);
        };
        let beside = measured.beside;
        self.still_there(ledger, position, attempt.index, &factors, &beside)
            .await?;
        let label = attempt.label(&factors);
        let repeat = Repeat {
            attempt: attempt.attempt,
            purpose: attempt.purpose,
            sent: Some(measured.sent),
            agents: measured.agents,
            lost_before,
            ..recorder::record(label, &measured.finished, &measured.schedule, beside.server)
        };
        let mut line = self.keep(ledger, position, factors, repeat, beside.watched.as_ref())?;
        if beside.is_unread {
            line += ", the server's metrics were not there";
        }
        // Printed once it is stored: a printed line is a stored step.
        ledger.progress.finish(&line);
        Ok(())
    }

    /// Keeps a repeat with what the machine did beside it; returns its line.
    pub(super) fn keep(
        &self,
        ledger: &mut Ledger,
        position: Position,
        factors: Factors,
        repeat: Repeat,
        watched: Option<&Watched>,
    ) -> Result<String, RunError> {
        let earlier = ledger.points.step(&factors, repeat.index);
        let repeat = beside(repeat, watched, earlier, &self.plan.limits);
        let line = line(&factors, &repeat);
        let step = FinishedStep {
            position,
            factors,
            repeat,
        };
        ledger.journal.keep(&step)?;
        ledger.add(step);
        Ok(line)
    }

    /// Waits until the machine is quiet, if the last step was disturbed.
    pub(super) async fn until_quiet(&self, ledger: &mut Ledger, target: usize) {
        let step = self.plan.warmup + self.plan.window;
        let Some((longest, by)) = ledger.patience.wants(step, Instant::now()) else {
            return;
        };
        if longest.is_zero() {
            return;
        }
        let told = format!("  waiting for a quiet machine, {} at most: {by}", wait(longest));
        ledger.progress.say(&told);
        let began = Instant::now();
        let servers = self.targets[target].control.addresses();
        let waiting = quiet::wait(longest, || quiet::is_disturbed(servers.clone(), &self.plan.limits));
        let became = tokio::select! {
            became = waiting => became,
            () = self.interrupt.raised() => return,
        };
        ledger.patience.note_wait(began.elapsed(), became.is_some());
        if became.is_none() {
            ledger.progress.say("  it is not quiet yet: measuring all the same");
        }
    }

    /// Ends the run if the server is gone after a step without a good reply, or without its counters: the step says nothing about
    /// the tier, and further steps would say less. A server that is only too busy to answer does not end the run.
    pub(super) async fn still_there(
        &mut self,
        ledger: &mut Ledger,
        position: Position,
        repeat: u32,
        factors: &Factors,
        beside: &Beside,
    ) -> Result<(), RunError> {
        if !beside.is_unread && !beside.is_unanswered {
            return Ok(());
        }
        ledger.unanswered += usize::from(beside.is_unread);
        let control = self.targets[position.target].control.clone();
        let mut last = None;
        for _ in 0..ASKED_AGAIN {
            // A lab knows more about its own processes.
            (self.alive)()?;
            match control.is_there().await {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(ASKED_AFTER).await;
        }
        let Some(error) = last else { return Ok(()) };
        let folder = self.folder.display();
        Err(RunError::Stopped(format!(
            "the server went away during {}, repeat {}: {error}\nThat step is dropped, what was finished before is in {folder}; \
             look at the server's log, start it again as it was, and resume with --resume {folder}",
            name(factors),
            repeat + 1,
        )))
    }

    pub(super) fn write(&self, run: &mut Run, points: &Points) -> Result<(), RunError> {
        run.points = points.all().to_vec();
        run.finished_at = rfc3339(SystemTime::now());
        tierlab_analysis::conclude(run);
        folder::write_anew(run, &self.folder)?;
        Ok(())
    }
}
