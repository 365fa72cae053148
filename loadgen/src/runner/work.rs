//! Steps of a run as data: the requests to send, and the points that they measure.

use super::ledger::Attempt;
use super::target::Target;
use crate::plan::{ClosedLoopPlan, JourneyPlan, Plan};
use tierlab_analysis::record::Factors;
use tierlab_load::load::Load;

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
    pub(super) fn attempt(&self, of_load: usize) -> Attempt {
        Attempt::of(self.plan, self.repeat, self.attempt, of_load)
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
    Beside(ClosedLoopPlan),
    /// Loads sent at the same time.
    Mix(Vec<Share<'a>>),
    /// Journeys, begun per second.
    Journeys(&'a JourneyPlan, f64),
}

/// One part of a mix at one rate.
#[derive(Debug, Clone)]
pub(super) struct Share<'a> {
    pub(super) load: Load,
    pub(super) model: &'a str,
    pub(super) seed: u64,
}
