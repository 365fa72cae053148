//! Choice of the next measurement. In: a question, the evidence so far, and the time. Out: a block of steps, or the
//! reason to stop. Stateless: the next block follows from the evidence, whatever the order of the steps within a block.

use super::evidence::{Candidate, Next, Phase, Probe, StopReason, Time};
use super::highest_rates::widened;
use super::lab::{CONFIRM_STEPS, Lab, confirms};
use super::probability::{Scores, unbeaten};
use super::rate_points::{MAX_TRIES, RatePoint, TOLERANCE, gather, steps_for_p99, sustained, usable};
use super::rates::bracket;
use crate::costs::monthly::instances;
use crate::record::{MeetsObjective, Minimise, Purpose, Question};

/// Steps of each variant at the demand's rate, enough for a p99 there if requests hardly depend on each other.
const DEMAND_STEPS: u32 = 16;
/// Ratio to the demand's rate up to which steps above it show the answer there, so that a change of the number of
/// instances by one does not restart them.
const NEAR_DEMAND: f64 = 1.1;
/// Steps of each variant at its likely highest rate, to show whether it carries that rate.
const SETTLE_STEPS: u32 = 14;
/// Steps of each variant at each rate of its curve.
const CURVE_STEPS: u32 = 2;
/// Maximum ratio of an offered rate to the rate carried so far, in the search for the knee.
const KNEE_RISE: f64 = 1.6;
/// Ratio of the lowest rate certainly missed to the highest rate certainly met at which the knee is known.
const KNEE_WIDTH: f64 = 1.15;
/// Steps at either rate after which the search for the knee ends.
const KNEE_STEPS: u32 = 6;
/// Maximum ratio of a candidate's first rate to the lowest rate, and of a later rate to the rate carried so far.
const MAX_RISE: f64 = 4.0;
/// Minimum information of a step, as a share of another candidate's step.
const MIN_INFORMATION: f64 = 0.35;
/// Factor on the information of a rate already measured: repeats at one rate show the spread of repeats.
const REPEAT_FACTOR: f64 = 1.1;
/// Maximum number of rates of a candidate whose information is computed.
const MAX_RATES: usize = 12;
/// Probability of the less likely side of the highest rate below which a rate's information is not computed.
const UNLIKELY: f64 = 0.002;
/// Share of the greatest probability from which a candidate may be the answer.
const CONTENDER_SHARE: f64 = 0.2;
/// Steps of a candidate before its rates are chosen by expected information.
const FIRST_STEPS: usize = 3;
/// Ratio of upper to lower end at which the interval of a highest rate is narrow enough.
const MAX_WIDTH: f64 = 1.3;
/// Distance of a narrowing step's rate from the estimate, as a ratio. Farther away a step says little about the highest
/// rate, nearer by it rests on the curve model (simulated: `results/decisions/highest_rates.md`).
const NARROWING_RATIO: f64 = 1.1;
/// Steps per narrowing step while the answer is open.
const NARROW_EVERY: usize = 3;
/// Share of the budget reserved for the steps that show each variant, while intervals are narrowed.
const CHARTS_RESERVE: f64 = 0.08;
/// Total steps per additional repetition of each step of a block.
const STEPS_PER_REPETITION: usize = 64;
/// Maximum repetitions of each step of a block.
const MAX_REPETITIONS: usize = 3;

/// Returns the next block, or the reason to stop.
pub fn next(question: &Question, candidates: &[Candidate], time: &Time) -> Next {
    let lab = Lab::new(question, candidates);
    let left = ((question.budget_s - time.spent_s) / time.step_s.max(1e-9)).floor();
    let plan = Planner {
        lab: &lab,
        left,
        step_s: time.step_s.max(1e-9),
    };
    if left < 1.0 {
        return Next::Stop(plan.stop_reason());
    }
    plan.scout()
        .or_else(|| plan.after_answer())
        .or_else(|| (left < f64::from(CONFIRM_STEPS + 1)).then_some(Next::Stop(StopReason::Budget)))
        .or_else(|| plan.decide())
        .unwrap_or(Next::Stop(StopReason::Stuck))
}

struct Planner<'a> {
    lab: &'a Lab<'a>,
    /// Number of steps that fit in the time left.
    left: f64,
    /// Seconds per step.
    step_s: f64,
}

impl Planner<'_> {
    /// Returns the reason to stop if there is no time for another step.
    fn stop_reason(&self) -> StopReason {
        match self.after_answer() {
            Some(Next::Stop(reason)) => reason,
            Some(Next::Block {
                phase: Phase::AtDemand | Phase::Charts,
                ..
            }) => StopReason::Decided,
            _ => StopReason::Budget,
        }
    }

    fn scout(&self) -> Option<Next> {
        let rates = &self.lab.rates;
        let is_low = |rps: &f64| *rps <= MAX_RISE * rates[0];
        let low = rates.iter().copied().rfind(is_low).unwrap_or(rates[0]);
        let unmeasured = (0..self.lab.candidates.len()).filter(|&index| {
            let points = &self.lab.statuses[index].rate_points;
            usable(points).next().is_none() && !self.lab.point_at(index, low).is_some_and(RatePoint::is_stuck)
        });
        let probes = unmeasured.map(|index| explore(index, low)).collect();
        self.block(Phase::Scout, probes, 0.0)
    }

    /// Returns the steps that confirm and show an answer; `None` if the answer is open.
    fn after_answer(&self) -> Option<Next> {
        if self.lab.none_meets() {
            return Some(Next::Stop(StopReason::NoneMeets));
        }
        let mut stopped = None;
        for best in self.lab.acceptable() {
            let rps = self.lab.decisive_rps(best);
            let fresh = self.lab.confirmation(best, rps);
            if fresh.confirms() {
                let shown = self.at_demand(best).or_else(|| self.narrow_and_chart());
                return shown.or(Some(Next::Stop(StopReason::Decided)));
            }
            if fresh.contradicted {
                stopped = stopped.or(Some(StopReason::Contradicted));
            } else if fresh.unusable >= MAX_TRIES {
                stopped = stopped.or(Some(StopReason::Stuck));
            } else {
                let probes = vec![probe(best, rps, Purpose::Confirm); (CONFIRM_STEPS - fresh.usable) as usize];
                return self.block(Phase::Confirm, probes, 0.0);
            }
        }
        stopped.map(Next::Stop)
    }

    /// Returns fresh steps of the answer at the rate that each of its instances carries at the demand, until it is
    /// confirmed there and its p99 can be printed.
    fn at_demand(&self, best: usize) -> Option<Next> {
        let lab = self.lab;
        let rps = shown_rps(lab, best).filter(|_| lab.question.demand.is_some())?;
        let steps = &lab.candidates[best].steps;
        let required = steps_for_p99(steps, rps).clamp(CONFIRM_STEPS, DEMAND_STEPS);
        let points = gather(lab.question, steps, &lab.rates, confirms);
        let is_near = |point: &&RatePoint| point.rps >= rps * (1.0 - TOLERANCE) && point.rps <= rps * NEAR_DEMAND;
        let missing = match points.iter().filter(is_near).max_by_key(|point| point.usable) {
            Some(point) if point.is_stuck() => 0,
            Some(point) => required.saturating_sub(point.usable),
            None => required,
        };
        let probes = vec![probe(best, rps, Purpose::Confirm); missing as usize];
        self.block(Phase::AtDemand, probes, 0.0)
    }

    /// Returns steps that narrow intervals, and with the rest of the time steps that show each variant. Highest rates
    /// are narrowed over all rates, even if the number of instances does not change.
    fn narrow_and_chart(&self) -> Option<Next> {
        let wide = widened(self.lab.question, self.lab.candidates);
        let is_rate = self.lab.question.minimise != Minimise::P99;
        let plan = Planner {
            lab: if is_rate { &wide } else { self.lab },
            ..*self
        };
        let is_early = self.left > CHARTS_RESERVE * self.lab.question.budget_s / self.step_s;
        let next = is_early.then(|| plan.narrow()).flatten();
        next.or_else(|| self.chart_steps()).or_else(|| plan.narrow())
    }

    /// Candidates that may be the answer, by their order.
    fn open_candidates(&self) -> Vec<usize> {
        let may_meet = |index: &usize| self.lab.statuses[*index].outcome != MeetsObjective::NotMet;
        let eligible = (0..self.lab.candidates.len()).filter(|&index| self.lab.is_eligible(index));
        eligible.filter(may_meet).collect()
    }

    fn decide(&self) -> Option<Next> {
        let mut probes = self.recheck().unwrap_or_else(|| self.elimination());
        if probes.is_empty() {
            probes = self.leader_and_rival();
        }
        if self.count(Purpose::Explore).is_multiple_of(NARROW_EVERY) {
            let leader = self.lab.leader().filter(|&leader| self.is_wide(leader));
            probes.extend(leader.and_then(|leader| self.narrowing_step(leader)));
        }
        self.block(Phase::Decide, probes, f64::from(CONFIRM_STEPS))
    }

    /// Returns one step for each candidate if more than two may be the answer, at the rate that it must carry to match
    /// the likeliest one. Each round about halves the candidates.
    fn elimination(&self) -> Vec<Probe> {
        let lab = self.lab;
        let Some(leader) = lab.leader().filter(|_| lab.question.minimise != Minimise::P99) else {
            return Vec::new();
        };
        let most = lab.p_best[leader];
        let contends = |index: &usize| lab.p_best[*index] >= CONTENDER_SHARE * most;
        let open: Vec<usize> = (0..lab.p_best.len()).filter(contends).collect();
        if open.len() <= 2 {
            return Vec::new();
        }
        let Some(likely) = lab.statuses[leader].curve.median(&lab.grid) else {
            return Vec::new();
        };
        let target = lab.score(leader, likely);
        let needed = |&index: &usize| {
            let most = MAX_RISE * sustained(&lab.statuses[index].rate_points, lab.rates[0]);
            let rps = self.free_rates(index).find(|rps| lab.score(index, *rps) <= target)?;
            Some(explore(index, rps)).filter(|_| rps <= most)
        };
        let is_first = |index: &&usize| lab.candidates[**index].steps.len() < FIRST_STEPS;
        open.iter().filter(is_first).filter_map(needed).collect()
    }

    /// Returns further steps of the likeliest answer at a rate that its steps together miss; `None` if curve and steps
    /// agree.
    fn recheck(&self) -> Option<Vec<Probe>> {
        let lab = self.lab;
        let leader = lab.leader().filter(|&leader| lab.p_best[leader] >= lab.threshold())?;
        let rps = lab.contradiction(leader)?;
        let is_stuck = lab.point_at(leader, rps).is_some_and(RatePoint::is_stuck);
        (!is_stuck).then(|| vec![explore(leader, rps); CONFIRM_STEPS as usize])
    }

    /// Returns steps of the likeliest answer and its likeliest rival, each at its most informative rate; only one step
    /// if the other would give little information.
    fn leader_and_rival(&self) -> Vec<Probe> {
        let lab = self.lab;
        if lab.question.minimise == Minimise::P99 {
            return self.percentile_steps();
        }
        let Some(leader) = lab.leader() else { return Vec::new() };
        let scores: Vec<&Scores> = lab.statuses.iter().map(|status| &status.scores).collect();
        let eligible: Vec<bool> = (0..scores.len()).map(|index| lab.is_eligible(index)).collect();
        let tie = lab.question.tie;
        let fails = |score: f64| 1.0 - unbeaten(&scores, &eligible, leader, score, tie);
        let more_likely = |a: &usize, b: &usize| lab.beats(*a, leader).total_cmp(&lab.beats(*b, leader));
        let rival = lab.others(leader).max_by(more_likely);
        let mut selected: Vec<(f64, Probe)> = self.most_informative(leader, &fails).into_iter().collect();
        if let Some(rival) = rival {
            let own = scores[leader];
            // The leader is beaten if its rate would have to be lower.
            let wins = |score: f64| own.expect(|leads| f64::from(leads > (1.0 + tie) * score));
            selected.extend(self.most_informative(rival, &wins));
        }
        let most = selected.iter().map(|(information, _)| *information).fold(0.0, f64::max);
        selected.retain(|(information, _)| *information > 0.0 && *information >= MIN_INFORMATION * most);
        // With many steps a single one changes little, so several are measured between decisions.
        let steps: usize = lab.candidates.iter().map(|candidate| candidate.steps.len()).sum();
        let times = 1 + (steps / STEPS_PER_REPETITION).min(MAX_REPETITIONS - 1);
        let once: Vec<Probe> = selected.into_iter().map(|(_, probe)| probe).collect();
        once.repeat(times)
    }

    /// Returns a step for each open variant whose interval is too wide, once there is an answer.
    fn narrow(&self) -> Option<Next> {
        let wide = self.open_candidates().into_iter().filter(|&index| self.is_wide(index));
        let probes = wide.filter_map(|index| self.narrowing_step(index)).collect();
        self.block(Phase::Charts, probes, 0.0)
    }

    fn is_wide(&self, index: usize) -> bool {
        self.lab.statuses[index].width() > MAX_WIDTH
    }

    /// Returns a step above or below a candidate's estimate, on the side of the further end of its interval.
    fn narrowing_step(&self, index: usize) -> Option<Probe> {
        let (lab, status) = (self.lab, &self.lab.statuses[index]);
        let middle = status.curve.median(&lab.grid).unwrap_or(lab.rates[0]);
        let end = match status.lo {
            lo if lo <= 0.0 => middle / NARROWING_RATIO.powi(2),
            lo if status.hi / middle > middle / lo => middle * NARROWING_RATIO,
            _ => middle / NARROWING_RATIO,
        };
        let end = end.min(KNEE_RISE * sustained(&status.rate_points, lab.rates[0]));
        let gap = |rps: f64| (rps / end).ln().abs();
        let nearest = self.free_rates(index).min_by(|a, b| gap(*a).total_cmp(&gap(*b)));
        nearest.map(|rps| explore(index, rps))
    }

    /// Number of measured steps with a purpose.
    fn count(&self, purpose: Purpose) -> usize {
        let steps = self.lab.candidates.iter().flat_map(|candidate| &candidate.steps);
        steps.filter(|step| step.purpose == purpose).count()
    }

    /// Returns the most informative rate about an event that depends on a candidate's score, with the information.
    fn most_informative(&self, index: usize, probability: &dyn Fn(f64) -> f64) -> Option<(f64, Probe)> {
        let scores = &self.lab.statuses[index].scores;
        let rates = 0..self.lab.grid.rates.len();
        let by_rate: Vec<f64> = rates.map(|highest| probability(scores.at(Some(highest)))).collect();
        let without = probability(f64::INFINITY);
        let probability = |highest: Option<usize>| highest.map_or(without, |highest| by_rate[highest]);
        let lab = self.lab;
        let status = &lab.statuses[index];
        let objective = lab.question.objectives.iter().map(|one| one.slow_share());
        let limit = objective.fold(f64::INFINITY, f64::min).min(0.5);
        let mut best: Option<(f64, f64)> = None;
        for rps in self.informative_rates(index) {
            let requests = rps * self.window_s(index) / self.dependence(index, rps);
            let mut information = status.curve.information(&lab.grid, rps, requests, limit, &probability);
            if lab.point_at(index, rps).is_some() {
                information *= REPEAT_FACTOR;
            }
            if best.is_none_or(|(most, _)| information > most) {
                best = Some((information, rps));
            }
        }
        best.map(|(information, rps)| (information, explore(index, rps)))
    }

    /// Returns rates at which the highest rate may lie, thinned if close together, and not far above the rate carried
    /// so far.
    fn informative_rates(&self, index: usize) -> Vec<f64> {
        let lab = self.lab;
        let status = &lab.statuses[index];
        let stuck = status.rate_points.iter().filter(|point| point.is_stuck());
        let stuck = stuck.map(|point| point.rps);
        let reached = stuck.fold(sustained(&status.rate_points, lab.rates[0]), f64::max);
        let likely = |rps: f64| status.curve.at_least(&lab.grid, rps);
        let free = self.free_rates(index).filter(|rps| *rps <= MAX_RISE * reached);
        let free: Vec<f64> = free.collect();
        let from = free.partition_point(|rps| likely(rps * 1.15) > 1.0 - UNLIKELY);
        let to = free.partition_point(|rps| likely(rps / 1.15) > UNLIKELY).max(from + 1);
        let near = &free[from.min(free.len().saturating_sub(1))..to.min(free.len())];
        let apart = near.len().div_ceil(MAX_RATES).max(1);
        // Measured rates are never thinned out.
        let mut selected: Vec<f64> = near.iter().copied().step_by(apart).collect();
        selected.extend(near.iter().copied().filter(|rps| lab.point_at(index, *rps).is_some()));
        selected
    }

    /// Seconds of a step's window, from the requests of earlier steps.
    fn window_s(&self, index: usize) -> f64 {
        let own = self.lab.candidates[index].steps.iter();
        let all = self.lab.candidates.iter().flat_map(|candidate| &candidate.steps);
        let measured = own.chain(all).find(|step| step.requests > 0.0);
        measured.map_or(1.0, |step| step.requests / step.rps)
    }

    /// Returns the likely requests per independent observation, from the measured rate nearest to `rps`.
    fn dependence(&self, index: usize, rps: f64) -> f64 {
        let gap = |point: &&RatePoint| (point.rps / rps).ln().abs();
        let points = usable(&self.lab.statuses[index].rate_points);
        let nearest = points.min_by(|a, b| gap(a).total_cmp(&gap(b)));
        nearest.map_or(1.0, |point| point.dependence)
    }

    /// Returns steps of the likeliest answer and its strongest rival at the rate at which percentiles are compared.
    fn percentile_steps(&self) -> Vec<Probe> {
        let lab = self.lab;
        let mut open = self.open_candidates();
        let best = (open.iter().copied()).min_by(|&a, &b| lab.statuses[a].score.total_cmp(&lab.statuses[b].score));
        if let Some(best) = best.filter(|&best| lab.statuses[best].score.is_finite()) {
            let lower = |index: usize| match index == best {
                true => f64::NEG_INFINITY,
                false => lab.statuses[index].lower,
            };
            open.sort_by(|&a, &b| lower(a).total_cmp(&lower(b)));
            open.truncate(2);
        }
        let rps = lab.rates[0];
        let is_free = |index: &usize| !lab.point_at(*index, rps).is_some_and(RatePoint::is_stuck);
        let free = open.into_iter().filter(is_free);
        free.map(|index| explore(index, rps)).collect()
    }

    /// Rates that are not given up for a candidate, rising.
    fn free_rates(&self, index: usize) -> impl Iterator<Item = f64> {
        let rates = self.lab.rates.iter().copied();
        rates.filter(move |rps| !self.lab.point_at(index, *rps).is_some_and(RatePoint::is_stuck))
    }

    /// Returns the steps that show each variant. First come steps at the likely rate of every variant, even of those
    /// that cannot win. Then follow, for open variants: the demand's rate; the curve up to the rate at which it misses
    /// the objective; the knee; and the p99 at the demand's rate, if dependent requests take more steps for it.
    fn chart_steps(&self) -> Option<Next> {
        let lab = self.lab;
        let open = self.open_candidates();
        let probe =
            |index: usize, rps: f64, required: u32| self.needs_steps(index, rps, required).then(|| explore(index, rps));
        let is_settled = |index: usize| {
            let status = &lab.statuses[index];
            status.outcome == MeetsObjective::NotMet || status.lo >= self.likely_rps(index) * 0.999
        };
        let settling = |index: usize| probe(index, self.likely_rps(index), SETTLE_STEPS).filter(|_| !is_settled(index));
        let at_demand = |&index: &usize| probe(index, shown_rps(lab, index)?, DEMAND_STEPS);
        let on_curve = |&index: &usize| self.next_on_curve(index);
        let for_p99 = |&index: &usize| {
            let rps = shown_rps(lab, index)?;
            probe(index, rps, steps_for_p99(&lab.candidates[index].steps, rps))
        };
        let stages: [&dyn Fn() -> Vec<Probe>; 5] = [
            &|| (0..lab.candidates.len()).filter_map(settling).collect(),
            &|| open.iter().filter_map(at_demand).collect(),
            &|| open.iter().filter_map(on_curve).collect(),
            &|| self.knee_steps(&open),
            &|| open.iter().filter_map(for_p99).collect(),
        ];
        let probes = stages.iter().map(|stage| stage()).find(|probes| !probes.is_empty())?;
        self.block(Phase::Charts, probes, 0.0)
    }

    /// True if a rate has fewer steps than wanted, and can be measured.
    fn needs_steps(&self, index: usize, rps: f64, required: u32) -> bool {
        let point = self.lab.point_at(index, rps);
        !point.is_some_and(RatePoint::is_stuck) && point.map_or(0, |point| point.usable) < required
    }

    /// Returns a step at the lowest rate of a variant's curve that lacks one, up to the first that misses the objective.
    fn next_on_curve(&self, index: usize) -> Option<Probe> {
        let mut reached = 0.0;
        while let Some(rps) = bracket(&self.lab.rates, reached) {
            if self.needs_steps(index, rps, CURVE_STEPS) {
                return Some(explore(index, rps));
            }
            let point = self.lab.point_at(index, rps);
            if point.is_some_and(|point| point.usable > 0 && !point.likely_met()) {
                return None;
            }
            reached = rps;
        }
        None
    }

    /// Returns the next step of each variant towards its knee, which may lie above the rates that matter.
    fn knee_steps(&self, open: &[usize]) -> Vec<Probe> {
        let wide = widened(self.lab.question, self.lab.candidates);
        let next = |&index: &usize| Some(explore(index, knee_rps(&wide, index)?));
        open.iter().filter_map(next).collect()
    }

    /// Returns the highest rate that matters at which a variant likely meets the objective; the lowest if there is
    /// none.
    fn likely_rps(&self, index: usize) -> f64 {
        let rates = &self.lab.rates;
        let estimate = self.lab.statuses[index].curve.median(&self.lab.grid).unwrap_or(0.0);
        let is_met = |rps: &f64| *rps <= estimate * 1.001;
        rates.iter().copied().rfind(is_met).unwrap_or(rates[0])
    }

    /// Returns as many steps as fit in the time left less a reserve, in an order that rotates with the number of
    /// measured steps.
    fn block(&self, phase: Phase, mut probes: Vec<Probe>, reserve: f64) -> Option<Next> {
        if probes.is_empty() {
            return None;
        }
        let measured: usize = self.lab.candidates.iter().map(|candidate| candidate.steps.len()).sum();
        let rotation = (measured / probes.len()) % probes.len();
        probes.rotate_left(rotation);
        // Non-negative, and far below the limits of either type.
        probes.truncate(((self.left - reserve).max(1.0) as usize).max(1));
        Some(Next::Block { phase, probes })
    }
}

const fn probe(candidate: usize, rps: f64, purpose: Purpose) -> Probe {
    Probe {
        candidate,
        rps,
        purpose,
    }
}

const fn explore(candidate: usize, rps: f64) -> Probe {
    probe(candidate, rps, Purpose::Explore)
}

/// Returns the most informative rate about a variant's knee; `None` if the knee is known well or no rate is left.
fn knee_rps(wide: &Lab<'_>, index: usize) -> Option<f64> {
    let status = &wide.statuses[index];
    let measured = || usable(&status.rate_points);
    let broken = measured().find(|point| !point.likely_met() && point.rps >= status.lo);
    let below = |rps: f64| broken.is_none_or(|broken| rps < broken.rps * (1.0 - 1e-6));
    let met = measured().rfind(|point| point.likely_met() && below(point.rps));
    let reached = met.map_or(wide.rates[0], |point| point.rps);
    let free = || {
        let rates = wide.rates.iter().copied();
        rates.filter(|rps| {
            *rps > reached * (1.0 + 1e-6) && below(*rps) && wide.point_at(index, *rps).is_none_or(|at| at.usable == 0)
        })
    };
    let is_stuck_above = |point: &RatePoint| point.rps > reached && point.is_stuck();
    if status.rate_points.iter().any(is_stuck_above) {
        return None;
    }
    let Some(broken) = broken else {
        let near = free().take_while(|rps| *rps <= KNEE_RISE * reached);
        return near.last().or_else(|| free().next());
    };
    if status.hi <= KNEE_WIDTH * status.lo {
        return None;
    }
    let middle = (reached * broken.rps).sqrt();
    let gap = |rps: f64| (rps / middle).ln().abs();
    if broken.rps > KNEE_WIDTH * reached {
        return free().min_by(|a, b| gap(*a).total_cmp(&gap(*b)));
    }
    let ends = [met, Some(broken)].into_iter().flatten();
    let free = ends.filter(|point| point.usable < KNEE_STEPS && !point.is_stuck());
    free.min_by_key(|point| point.usable).map(|point| point.rps)
}

/// Returns the rate of one instance at which a variant is shown: its share of the demand.
pub fn shown_rps(lab: &Lab<'_>, index: usize) -> Option<f64> {
    let question = lab.question;
    if question.minimise == Minimise::P99 {
        return Some(lab.rates[0]);
    }
    let status = &lab.statuses[index];
    let estimate = status.estimate.filter(|rps| *rps > 0.0)?;
    Some(match &question.demand {
        // Same number of instances as in the answer.
        Some(demand) => demand.peak_rps / instances(question, estimate),
        None if status.lo > 0.0 => status.lo,
        None => estimate,
    })
}
