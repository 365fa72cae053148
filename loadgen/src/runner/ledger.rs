//! Steps of a run as data, planned and finished. A step with a foreign disturbance is measured again a bounded number of
//! times.

use super::target::Target;
use crate::plan::{ClosedLoopPlan, JourneyPlan, Plan};
use crate::progress::Progress;
use crate::store::journal::{FinishedStep, Journal, Points};
use tierlab_analysis::record::{Factors, Limits, Purpose, Repeat};
use tierlab_instrument::machine::disturbance::disturbance;
use tierlab_instrument::machine::quiet::QuietWait;
use tierlab_instrument::machine::watch::Watched;
use tierlab_load::schedule::{Load, step_seed};

/// Maximum number of repetitions of a disturbed step of a plan's own loads. A longer disturbance needs action: free the
/// machine, or raise the limit.
pub(super) const MAX_REPETITIONS: u32 = 2;
/// Distance between the seeds of successive attempts at a step, above the repeats of any plan.
const ATTEMPT_SEEDS: u32 = 1_000;

/// Finished steps of a run, with the journal that stores them.
pub(super) struct Ledger {
    pub(super) journal: Journal,
    pub(super) points: Points,
    pub(super) progress: Progress,
    pub(super) unread_steps: usize,
    pub(super) patience: QuietWait,
    /// Saturated rates above which others were left out, in words.
    pub(super) left_out: Vec<String>,
}

impl Ledger {
    /// Adds a step that is in the journal.
    pub(super) fn add(&mut self, step: FinishedStep) {
        self.patience.record_step(step.repeat.disturbed.as_deref());
        self.points.add(step);
    }

    /// Leaves a step out, with the reason.
    pub(super) fn leave_out(&mut self, reason: String) {
        self.progress.skip();
        if !self.left_out.contains(&reason) {
            self.progress.print(&format!("  {reason}"));
            self.left_out.push(reason);
        }
    }

    /// True if the step of these points must be measured: its first attempt if any of them is missing, a later one if
    /// any was disturbed. Shows a skipped or repeated step in the progress display.
    pub(super) fn is_due<'a>(&mut self, points: impl IntoIterator<Item = &'a Factors>, attempt: Attempt) -> bool {
        let points = points.into_iter();
        let mut steps = points.map(|factors| self.points.step(factors, attempt.index));
        if attempt.attempt > 0 {
            let is_disturbed = |existing: &Repeat| existing.disturbed.is_some() && existing.attempt < attempt.attempt;
            let is_due = steps.flatten().any(is_disturbed);
            self.progress.add_steps(u32::from(is_due));
            return is_due;
        }
        let is_due = steps.any(|existing| existing.is_none());
        if !is_due {
            self.progress.skip();
        }
        is_due
    }
}

/// Repeat of a point, and attempt at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) index: u32,
    /// Number of earlier attempts that were unanswered or disturbed.
    pub(super) attempt: u32,
    pub(super) seed: u64,
    /// Purpose of the measurement.
    pub(super) purpose: Purpose,
}

impl Attempt {
    /// Attempt at a step of a load; each has another seed, because a cache still holds the entities of the last attempt.
    pub(super) fn new(plan: &Plan, index: u32, attempt: u32, load_number: usize) -> Self {
        Self {
            index,
            attempt,
            seed: step_seed(plan.seed, index + attempt * ATTEMPT_SEEDS, load_number),
            purpose: Purpose::Explore,
        }
    }
}

/// Adds the machine's activity to a repeat, with the disturbances of the earlier attempts that it replaces.
pub(super) fn annotate(repeat: Repeat, watched: Option<&Watched>, prior: Option<&Repeat>, limits: &Limits) -> Repeat {
    let disturbed_before = prior.map_or_else(Vec::new, |prior| {
        let mut disturbances = prior.disturbed_before.clone();
        disturbances.extend(prior.disturbed.clone());
        disturbances
    });
    Repeat {
        machine: watched.map(|watched| watched.machine.clone()),
        disturbed: watched.and_then(|watched| disturbance(&watched.machine, limits, watched.server_is_known)),
        disturbed_before,
        ..repeat
    }
}

/// Repeat and attempt that steps are planned for.
#[derive(Clone, Copy)]
pub(super) struct Round<'p, 't> {
    pub(super) plan: &'p Plan,
    pub(super) targets: &'t [Target],
    /// Index of the repeat, from 0.
    pub(super) repeat: u32,
    /// Number of earlier attempts.
    pub(super) attempt: u32,
}

impl Round<'_, '_> {
    /// Attempt at a step of a load, by the load's number among all that seeds tell apart.
    pub(super) fn attempt(&self, load_number: usize) -> Attempt {
        Attempt::new(self.plan, self.repeat, self.attempt, load_number)
    }
}

/// One step.
#[derive(Debug, Clone)]
pub(super) struct PlannedStep<'a> {
    /// Index of the target.
    pub(super) target: usize,
    pub(super) attempt: Attempt,
    pub(super) work: Work<'a>,
    /// Points in the order of the work's parts, each with its position among those of the target.
    pub(super) points: Vec<(usize, Factors)>,
}

/// Requests of a step.
#[derive(Debug, Clone)]
pub(super) enum Work<'a> {
    /// Open loop of one load, sent by every process.
    Open(Load),
    /// Closed loop.
    Closed(ClosedLoopPlan),
    /// Open loop at the throughput of a closed loop, which is known once that was measured.
    Paired(ClosedLoopPlan),
    /// Loads sent at the same time.
    Mix(Vec<MixShare<'a>>),
    /// Journeys, begun per second.
    Journeys(&'a JourneyPlan, f64),
}

/// One part of a mix at one rate.
#[derive(Debug, Clone)]
pub(super) struct MixShare<'a> {
    pub(super) load: Load,
    pub(super) model: &'a str,
    pub(super) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierlab_analysis::record::MachineUse;

    #[test]
    fn a_repeat_says_what_disturbed_it_and_the_attempts_before() {
        let watched = |share| Watched {
            machine: MachineUse {
                samples: 50,
                foreign_cpu_share: share,
                ..MachineUse::default()
            },
            server_is_known: true,
        };
        let limits = Limits::default();
        let first = annotate(Repeat::empty(), Some(&watched(0.5)), None, &limits);
        assert!(first.disturbed.as_ref().unwrap().contains("50 %") && first.disturbed_before.is_empty());
        assert_eq!(first.machine.as_ref().unwrap().foreign_cpu_share, 0.5);
        let second = annotate(Repeat::empty(), Some(&watched(0.3)), Some(&first), &limits);
        let third = annotate(Repeat::empty(), Some(&watched(0.01)), Some(&second), &limits);
        assert_eq!(third.disturbed, None);
        assert_eq!(third.disturbed_before.len(), 2);
        assert!(third.disturbed_before[0].contains("50 %") && third.disturbed_before[1].contains("30 %"));
        let unseen = annotate(Repeat::empty(), None, None, &limits);
        assert_eq!((unseen.machine, unseen.disturbed), (None, None));
    }
}
