//! What is measured next. In: a question, the evidence so far, and the time. Out: a block of steps, or the reason to stop. Without
//! memory: what comes next follows from what there is, whatever the order of the steps within a block.

use super::bounds::Place;
use super::evidence::{Candidate, Next, Phase, Probe, StopReason, Time};
use super::rates::{BRACKET, bracket};
use super::standing::Lab;
use crate::costs::monthly::instances;
use crate::record::{MeetsObjective, Minimise, Purpose, Question};

/// Fresh steps of the winner.
pub const CONFIRM: u32 = 3;
/// One step in so many is a control.
const CONTROL_EVERY: usize = 10;
/// Steps of each variant at the demand's rate, which give it a p99 there; at the rate that it is likely to carry, which show whether it
/// does; and at each rate of its curve.
const AT_DEMAND: u32 = 16;
/// See `AT_DEMAND`.
const TO_SETTLE: u32 = 14;
/// See `AT_DEMAND`.
const ON_CURVE: u32 = 2;
/// How much worse than the leader the others are taken to be at most: what lies further away needs no more room.
const FAR: f64 = 4.0;

/// The next block, or why there is none.
#[must_use]
pub fn next(question: &Question, candidates: &[Candidate], time: &Time) -> Next {
    let lab = Lab::new(question, candidates);
    let left = ((question.budget_s - time.spent_s) / time.step_s.max(1e-9)).floor();
    let plan = Plan { lab: &lab, left };
    if left < 1.0 {
        return Next::Stop(plan.ended());
    }
    plan.scout()
        .or_else(|| plan.answered())
        .or_else(|| (left < f64::from(CONFIRM + 1)).then_some(Next::Stop(StopReason::Budget)))
        .or_else(|| plan.bracket())
        .or_else(|| plan.decide())
        .unwrap_or(Next::Stop(StopReason::Stuck))
}

struct Plan<'a> {
    lab: &'a Lab<'a>,
    /// Steps that there is time for.
    left: f64,
}

impl Plan<'_> {
    /// Without time for another step.
    fn ended(&self) -> StopReason {
        match self.answered() {
            Some(Next::Stop(reason)) => reason,
            Some(Next::Block {
                phase: Phase::Pictures, ..
            }) => StopReason::Decided,
            _ => StopReason::Budget,
        }
    }

    fn scout(&self) -> Option<Next> {
        let low = self.lab.rates[0];
        let wanted = (0..self.lab.candidates.len()).filter(|&index| {
            let places = &self.lab.standings[index].bounds.places;
            let at = self.lab.standings[index].bounds.at(low);
            places.iter().all(|place| place.usable == 0) && !at.is_some_and(Place::is_stuck)
        });
        self.block(Phase::Scout, wanted.map(|index| self.explore(index, low)).collect())
    }

    /// With an answer: what confirms it and what shows it.
    fn answered(&self) -> Option<Next> {
        if self.lab.none_meets() {
            return Some(Next::Stop(StopReason::NoneMeets));
        }
        let best = self.lab.decided()?;
        let rps = self.lab.decisive_rps(best);
        let (usable, in_vain, contradicted) = self.lab.confirmation(best, rps);
        if contradicted {
            return Some(Next::Stop(StopReason::Contradicted));
        }
        if usable < CONFIRM && in_vain < super::bounds::TRIES {
            let probe = Probe {
                candidate: best,
                rps,
                purpose: Purpose::Confirm,
            };
            return self.block(Phase::Confirm, vec![probe; (CONFIRM - usable) as usize]);
        }
        self.pictures().or(Some(Next::Stop(StopReason::Decided)))
    }

    /// Those that could still be the answer.
    fn in_play(&self) -> Vec<usize> {
        let lab = self.lab;
        let best = lab.best();
        let mut indices: Vec<usize> = match best {
            Some(best) => lab.rivals(best),
            None => (0..lab.candidates.len()).filter(|&index| self.is_open(index)).collect(),
        };
        indices.extend(best);
        indices.sort_unstable();
        indices
    }

    fn is_open(&self, index: usize) -> bool {
        self.lab.is_placed(index) && self.lab.standings[index].outcome != MeetsObjective::NotMet
    }

    /// One step further up of each that looks as if it met the objective as far as it was measured.
    fn bracket(&self) -> Option<Next> {
        let wanted = self.in_play().into_iter().filter_map(|index| {
            let places = &self.lab.standings[index].bounds.places;
            let usable = || places.iter().filter(|place| place.usable > 0);
            if usable().any(|place| !place.looks_met()) {
                return None;
            }
            let reached = places.iter().filter(|place| place.usable > 0 || place.is_stuck());
            let reached = reached.map(|place| place.rps).fold(0.0, f64::max);
            Some(self.explore(index, bracket(&self.lab.rates, reached)?))
        });
        self.block(Phase::Bracket, wanted.collect())
    }

    fn decide(&self) -> Option<Next> {
        let mut probes = self.duel();
        if let Some(control) = self.control().filter(|_| !probes.is_empty()) {
            probes.push(control);
        }
        self.block(Phase::Decide, probes)
    }

    /// The leader and its strongest rival, each where the least evidence settles it: between what the two seem to have there is
    /// room, of which each gets half.
    fn duel(&self) -> Vec<Probe> {
        let lab = self.lab;
        let Some(leader) = lab.leader() else {
            // None looks as if it met the objective anywhere.
            let open = (0..lab.candidates.len()).filter(|&index| self.is_open(index));
            return open.filter_map(|index| self.against(index, f64::INFINITY)).collect();
        };
        let leading = &lab.standings[leader];
        let second = (0..lab.standings.len())
            .filter(|&index| index != leader && self.is_open(index))
            .map(|index| lab.standings[index].estimate.max(lab.standings[index].lower))
            .fold(f64::INFINITY, f64::min);
        let room = second.min(FAR * leading.estimate).max(leading.estimate);
        let aim = (leading.estimate * lab.tied(room)).sqrt().max(leading.estimate);
        let reached = leading.upper <= aim;
        let bar = if reached { leading.upper } else { aim };
        let mut rivals: Vec<usize> = (0..lab.standings.len())
            .filter(|&index| index != leader && self.is_open(index) && bar > lab.tied(lab.standings[index].lower))
            .collect();
        rivals.sort_by(|&a, &b| {
            let (a, b) = (&lab.standings[a], &lab.standings[b]);
            a.lower.total_cmp(&b.lower).then(a.estimate.total_cmp(&b.estimate))
        });
        let mut probes: Vec<Probe> = Vec::new();
        if !reached {
            probes.extend(self.for_leader(leader, aim));
        }
        let seats = 2 - probes.len();
        probes.extend(rivals.iter().filter_map(|&rival| self.against(rival, bar)).take(seats));
        if probes.len() == 1 && probes[0].candidate == leader {
            probes.extend(self.for_leader(leader, aim));
        }
        probes
    }

    /// Where the leader is shown to have no more than `aim`: the lowest rate that does, or one above it that was measured already
    /// and speaks for it more.
    fn for_leader(&self, leader: usize, aim: f64) -> Option<Probe> {
        let standing = &self.lab.standings[leader];
        let highest = standing.bounds.estimate.unwrap_or(f64::INFINITY);
        let serves = |rps: f64| self.lab.question.minimise == Minimise::P99 || self.lab.score(leader, rps) <= aim;
        let lowest = self.free_rates(leader).find(|rps| serves(*rps))?;
        let measured = standing.bounds.places.iter().filter(|place| {
            place.rps >= lowest && place.rps <= highest && !place.is_stuck() && place.evidence.met > 0.0
        });
        let most = measured.max_by(|a, b| a.evidence.met.total_cmp(&b.evidence.met));
        let already = standing.bounds.at(lowest).map_or(0.0, |place| place.evidence.met);
        let rps = most
            .filter(|place| place.evidence.met > already)
            .map_or(lowest, |place| place.rps);
        Some(self.explore(leader, rps))
    }

    /// Where a rival is shown to have no less than `bar`, the tie apart: the highest rate that does, or one below it that was
    /// measured already and speaks against it more.
    fn against(&self, rival: usize, bar: f64) -> Option<Probe> {
        let lab = self.lab;
        let standing = &lab.standings[rival];
        let settles = |rps: f64| lab.tied(lab.score(rival, rps * (1.0 - 1e-6))) >= bar;
        let free: Vec<f64> = self.free_rates(rival).collect();
        if lab.question.minimise == Minimise::P99 {
            return free.first().map(|rps| self.explore(rival, *rps));
        }
        let highest = free
            .iter()
            .rev()
            .copied()
            .find(|rps| settles(*rps))
            .or(free.first().copied())?;
        let lowest = standing.bounds.estimate.unwrap_or(0.0);
        let measured = standing.bounds.places.iter().filter(|place| {
            place.rps <= highest && place.rps >= lowest && !place.is_stuck() && place.evidence.not_met > 0.0
        });
        let most = measured.max_by(|a, b| a.evidence.not_met.total_cmp(&b.evidence.not_met));
        let already = standing.bounds.at(highest).map_or(0.0, |place| place.evidence.not_met);
        let rps = most
            .filter(|place| place.evidence.not_met > already)
            .map_or(highest, |place| place.rps);
        Some(self.explore(rival, rps))
    }

    /// The rates that are not given up for a candidate, rising.
    fn free_rates(&self, index: usize) -> impl Iterator<Item = f64> {
        let bounds = &self.lab.standings[index].bounds;
        let rates = self.lab.rates.iter().copied();
        rates.filter(|rps| !bounds.at(*rps).is_some_and(Place::is_stuck))
    }

    /// The control, where one is due: always what the first one was, which is the leader well below what it seems to carry.
    fn control(&self) -> Option<Probe> {
        let lab = self.lab;
        let steps = || lab.candidates.iter().flat_map(|candidate| &candidate.steps);
        let controls = steps().filter(|step| step.purpose == Purpose::Control).count();
        let explored = steps().filter(|step| step.purpose == Purpose::Explore).count();
        let before = lab.candidates.len() * BRACKET;
        if explored < before + CONTROL_EVERY * (controls + 1) {
            return None;
        }
        let first = lab.candidates.iter().enumerate().find_map(|(candidate, one)| {
            let step = one.steps.iter().find(|step| step.purpose == Purpose::Control)?;
            Some((candidate, step.rps))
        });
        let (candidate, rps) = first.or_else(|| {
            let leader = lab.leader()?;
            let half = 0.5 * lab.standings[leader].bounds.estimate?;
            let below = lab.rates.iter().copied().rfind(|rps| *rps <= half);
            Some((leader, below.unwrap_or(lab.rates[0])))
        })?;
        Some(Probe {
            candidate,
            rps,
            purpose: Purpose::Control,
        })
    }

    /// Whether each variant carries what it is likely to, those that could not win among them; each at the demand's rate, and its curve up
    /// to where it breaks.
    fn pictures(&self) -> Option<Next> {
        let lab = self.lab;
        let open: Vec<usize> = (0..lab.candidates.len()).filter(|&index| self.is_open(index)).collect();
        let missing = |index: usize, rps: f64, wanted: u32| {
            let place = lab.standings[index].bounds.at(rps);
            !place.is_some_and(Place::is_stuck) && place.map_or(0, |place| place.usable) < wanted
        };
        let probe = |index: usize, rps: f64, wanted: u32| missing(index, rps, wanted).then(|| self.explore(index, rps));
        let at_demand = |&index: &usize| probe(index, at_rps(lab, index)?, AT_DEMAND);
        let is_settled = |index: usize| {
            let standing = &lab.standings[index];
            standing.outcome == MeetsObjective::NotMet || standing.bounds.lo >= self.likely(index) * 0.999
        };
        let unsettled = (0..lab.candidates.len()).filter(|&index| !is_settled(index));
        let mut probes: Vec<Probe> = unsettled
            .filter_map(|index| probe(index, self.likely(index), TO_SETTLE))
            .collect();
        if probes.is_empty() {
            probes = open.iter().filter_map(at_demand).collect();
        }
        if probes.is_empty() {
            for &index in &open {
                let (mut reached, mut rates) = (0.0, Vec::new());
                while let Some(rps) = bracket(&lab.rates, reached) {
                    rates.push(rps);
                    reached = rps;
                    if lab.standings[index]
                        .bounds
                        .at(rps)
                        .is_some_and(|place| place.usable > 0 && !place.looks_met())
                    {
                        break;
                    }
                }
                let rps = rates.into_iter().find(|rps| missing(index, *rps, ON_CURVE));
                probes.extend(rps.map(|rps| self.explore(index, rps)));
            }
        }
        self.block(Phase::Pictures, probes)
    }

    /// The highest rate that matters at which a variant is likely to meet the objective; the lowest where there is none.
    fn likely(&self, index: usize) -> f64 {
        let rates = &self.lab.rates;
        let estimate = self.lab.standings[index].bounds.estimate.unwrap_or(0.0);
        rates
            .iter()
            .copied()
            .rfind(|rps| *rps <= estimate * 1.001)
            .unwrap_or(rates[0])
    }

    fn explore(&self, candidate: usize, rps: f64) -> Probe {
        Probe {
            candidate,
            rps,
            purpose: Purpose::Explore,
        }
    }

    /// As many as there is time for, in an order that rotates with the steps measured.
    fn block(&self, phase: Phase, mut probes: Vec<Probe>) -> Option<Next> {
        if probes.is_empty() {
            return None;
        }
        let measured: usize = self.lab.candidates.iter().map(|candidate| candidate.steps.len()).sum();
        let turn = (measured / probes.len()) % probes.len();
        probes.rotate_left(turn);
        // Non-negative, and far below the limits of either type.
        probes.truncate((self.left.max(1.0) as usize).max(1));
        Some(Next::Block { phase, probes })
    }
}

/// The rate of one instance that a variant is shown at: the demand's share of one of its instances.
#[must_use]
pub fn at_rps(lab: &Lab<'_>, index: usize) -> Option<f64> {
    let question = lab.question;
    if question.minimise == Minimise::P99 {
        return Some(lab.rates[0]);
    }
    let bounds = &lab.standings[index].bounds;
    let highest = if bounds.lo > 0.0 { bounds.lo } else { bounds.estimate? };
    if highest <= 0.0 {
        return None;
    }
    Some(match &question.demand {
        Some(demand) => demand.peak_rps / instances(question, highest),
        None => highest,
    })
}
