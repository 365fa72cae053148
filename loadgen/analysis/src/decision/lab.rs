//! State of all candidates together: the likely best, and its certainty.
//!
//! In: a question and candidates. Out: the score distribution of each. Knows nothing of the next measurement.

use super::curve::{CurveFit, Grid, HighestRate, curves};
use super::evidence::{Candidate, StepEvidence};
use super::probability::{self, Scores};
use super::rate_points::{RatePoint, gather, missed_rps, point_at, top_rate, usable};
use super::rates::rates;
use crate::costs::monthly::{Priced, TierUse, is_priced, score};
use crate::record::{AnswerOutcome, Interval, MeetsObjective, Minimise, Purpose, Question};
use std::cmp::Ordering;

/// Factor just below 1, because a rate that is missed does not serve.
const BELOW: f64 = 1.0 - 1e-6;
/// Share of the allowed error that the probabilities may use; the rest is a margin for errors of the curve model.
const ERROR_SHARE: f64 = 0.2;
/// Share of the probability beside an interval that the curve model may leave out; the rest is a margin for its errors.
const MODEL_SHARE: f64 = 0.8;

/// State of one candidate. Lower scores are better.
#[derive(Debug, Clone)]
pub(crate) struct CandidateStatus {
    /// Steps by rate.
    pub(crate) rate_points: Vec<RatePoint>,
    /// Distribution of the highest rate of one instance.
    pub(crate) curve: HighestRate,
    /// Distribution of the score.
    pub(crate) scores: Scores,
    /// Lower end of the highest rate's interval, at most the highest measured rate; 0 without one.
    pub(crate) lo: f64,
    /// Upper end of the highest rate's interval; infinite without one.
    pub(crate) hi: f64,
    /// Likely highest rate, at most the highest measured rate; 0 if the lowest rate is likely missed, `None` without a
    /// step.
    pub(crate) estimate: Option<f64>,
    /// Lowest rate at which all of its steps together miss an objective, independent of the curve model.
    pub(crate) missed: Option<f64>,
    /// Tier usage per inference; `None` if the server did not report it.
    pub(crate) use_per_inference: Option<TierUse>,
    /// Lower end of the score's interval.
    pub(crate) lower: f64,
    /// Upper end of the score's interval; infinite if it is not known to meet the objective.
    pub(crate) upper: f64,
    /// Likely score.
    pub(crate) score: f64,
    /// State of the objective: met, missed or unknown.
    pub(crate) outcome: MeetsObjective,
    /// Logarithm of its percentile, if the question minimises that.
    pub(crate) percentile: Option<Interval>,
}

impl CandidateStatus {
    /// Upper end of the highest rate's interval over its lower end; infinite if either is open.
    pub(crate) fn width(&self) -> f64 {
        match self.lo > 0.0 {
            true => self.hi / self.lo,
            false => f64::INFINITY,
        }
    }

    /// Takes the percentile as the score: it counts if the objective is met, or looks met everywhere.
    fn score_by_percentile(&mut self, percentile: Option<Interval>) {
        let us = |of: fn(Interval) -> f64| percentile.map(|interval| of(interval).exp());
        let is_met = self.outcome == MeetsObjective::Met;
        let likely_met = self.rate_points.iter().all(RatePoint::likely_met);
        let or_none = |us: Option<f64>, counts: bool| us.filter(|_| counts).unwrap_or(f64::INFINITY);
        self.lower = us(|interval| interval.lo).unwrap_or(0.0);
        self.upper = or_none(us(|interval| interval.hi), is_met);
        self.score = or_none(us(|interval| interval.value), likely_met);
        self.percentile = percentile;
    }
}

/// Question with the state of all candidates.
#[derive(Debug, Clone)]
pub struct Lab<'a> {
    /// Question being answered.
    pub(crate) question: &'a Question,
    /// Possible answers.
    pub(crate) candidates: &'a [Candidate],
    /// States of the candidates, in the same order.
    pub(crate) statuses: Vec<CandidateStatus>,
    /// Probability of each candidate being best, or within the tie margin of the best, and meeting the objective.
    pub(crate) p_best: Vec<f64>,
    /// Rates at which the answer can change, rising; at least one.
    pub(crate) rates: Vec<f64>,
    /// Grid of highest rates that the model distinguishes.
    pub(crate) grid: Grid,
}

/// True if steps of this purpose take part in the choice: all except confirming ones.
fn chooses(purpose: Purpose) -> bool {
    purpose != Purpose::Confirm
}

/// True if steps of this purpose are fresh ones.
pub(super) fn confirms(purpose: Purpose) -> bool {
    purpose == Purpose::Confirm
}

impl<'a> Lab<'a> {
    /// Creates the lab from all steps so far.
    pub fn new(question: &'a Question, candidates: &'a [Candidate]) -> Self {
        Self::with_rates(question, candidates, rates(question))
    }

    /// Creates the lab from all steps so far, over the given rates: rising, at least one.
    pub(super) fn with_rates(question: &'a Question, candidates: &'a [Candidate], rates: Vec<f64>) -> Self {
        let grid = Grid::covering(&rates);
        let points = |candidate: &Candidate| {
            let points = gather(question, &candidate.steps, &rates, chooses);
            clamped_to_grid(points, &rates, &grid)
        };
        let gathered: Vec<Vec<RatePoint>> = candidates.iter().map(points).collect();
        let curves = all_curves(question, &grid, &gathered);
        let logs = candidates.iter().map(|candidate| log_percentiles(candidate, rates[0]));
        let logs: Vec<Vec<f64>> = logs.collect();
        let mut lab = Self {
            question,
            candidates,
            statuses: Vec::new(),
            p_best: Vec::new(),
            rates,
            grid,
        };
        let percentiles = probability::intervals(&logs, 1.0 - question.confidence);
        for (((candidate, points), curve), percentile) in candidates.iter().zip(gathered).zip(curves).zip(percentiles) {
            lab.statuses.push(lab.status(candidate, points, curve, percentile));
        }
        let eligible: Vec<bool> = (0..candidates.len()).map(|index| lab.is_eligible(index)).collect();
        let scores: Vec<&Scores> = lab.statuses.iter().map(|status| &status.scores).collect();
        lab.p_best = match question.minimise {
            Minimise::P99 => probability::by_percentile(&logs, &scores, question.tie),
            _ => probability::by_score(&scores, &eligible, question.tie),
        };
        lab
    }

    fn status(
        &self,
        candidate: &Candidate,
        points: Vec<RatePoint>,
        curve: HighestRate,
        percentile: Option<Interval>,
    ) -> CandidateStatus {
        let use_per_inference = use_per_inference(&candidate.steps);
        let priced = Priced {
            terms: candidate.terms.as_ref(),
            use_per_inference,
        };
        let of = |rps: f64, best_case: bool| match self.question.minimise {
            _ if rps < self.rates[0] * BELOW => f64::INFINITY,
            Minimise::P99 => 1.0,
            _ => score(self.question, priced, rps, best_case),
        };
        let by_rate = self.grid.rates.iter().map(|&rps| of(rps, false));
        let scores = Scores::new(by_rate.collect(), &curve);
        let missed = missed_rps(self.question, &candidate.steps);
        let (lo, hi) = self.interval(&points, &curve);
        let lo = self.below_missed(missed, lo);
        let estimate = self.estimate(&points, &curve);
        let estimate = estimate.map(|rps| self.below_missed(missed, rps.clamp(lo, hi.max(lo))));
        let mut status = CandidateStatus {
            lower: of(hi * BELOW, true),
            upper: of(lo, false),
            score: estimate.map_or(f64::INFINITY, |rps| of(rps, false)),
            outcome: self.outcome(&points, &curve, missed),
            rate_points: points,
            curve,
            scores,
            lo,
            hi,
            estimate,
            missed,
            use_per_inference,
            percentile: None,
        };
        if status.outcome == MeetsObjective::NotMet {
            (status.lower, status.upper) = (f64::INFINITY, f64::INFINITY);
        } else if self.question.minimise == Minimise::P99 {
            status.score_by_percentile(percentile);
        }
        status
    }

    /// Returns a rate, or the next one that matters below the rate that a candidate's steps miss.
    fn below_missed(&self, missed: Option<f64>, rps: f64) -> f64 {
        let Some(missed) = missed.filter(|missed| rps >= missed * BELOW) else {
            return rps;
        };
        let below = self.rates.iter().copied().rfind(|rps| *rps < missed * BELOW);
        below.unwrap_or(0.0)
    }

    /// Probability that an interval leaves out at either end.
    fn side(&self) -> f64 {
        0.5 * (1.0 - self.question.confidence)
    }

    /// Verdict on the lowest rate that matters.
    fn outcome(&self, points: &[RatePoint], curve: &HighestRate, missed: Option<f64>) -> MeetsObjective {
        let lowest = self.rates[0];
        let meets = curve.at_least(&self.grid, lowest);
        if usable(points).next().is_none() {
            MeetsObjective::Unknown
        } else if meets <= self.side() {
            MeetsObjective::NotMet
        } else if meets >= 1.0 - self.side() && missed.is_none_or(|missed| missed > lowest * (2.0 - BELOW)) {
            MeetsObjective::Met
        } else {
            MeetsObjective::Unknown
        }
    }

    /// Returns the interval of a candidate's highest rate. Its lower end is at most the highest measured rate; its upper
    /// end is infinite while every measured rate looks met.
    fn interval(&self, points: &[RatePoint], curve: &HighestRate) -> (f64, f64) {
        let (lo, hi) = curve.interval(&self.grid, MODEL_SHARE * self.side());
        let lo = lo.min(top_rate(points).unwrap_or(0.0)).min(self.question.highest_rps);
        let hi = match usable(points).all(RatePoint::likely_met) {
            true => f64::INFINITY,
            false => hi.max(self.rates[0]),
        };
        (if lo < self.rates[0] * BELOW { 0.0 } else { lo }, hi)
    }

    fn estimate(&self, points: &[RatePoint], curve: &HighestRate) -> Option<f64> {
        let reached = top_rate(points)?;
        let likely = curve.median(&self.grid).filter(|rps| *rps >= self.rates[0] * BELOW);
        Some(likely.map_or(0.0, |rps| rps.min(reached).min(self.question.highest_rps)))
    }

    /// Returns the steps of a candidate at a rate, if it was measured.
    pub(crate) fn point_at(&self, candidate: usize, rps: f64) -> Option<&RatePoint> {
        point_at(&self.statuses[candidate].rate_points, rps)
    }

    /// Returns the score of a candidate at a rate.
    pub(crate) fn score(&self, candidate: usize, rps: f64) -> f64 {
        score(self.question, self.priced(candidate), rps, false)
    }

    /// True if a candidate can be the answer. If prices decide, a candidate without prices cannot.
    pub(crate) fn is_eligible(&self, candidate: usize) -> bool {
        !is_priced(self.question) || self.candidates[candidate].terms.is_some()
    }

    /// Returns the highest score that ties with `score`.
    pub(crate) fn tie_limit(&self, score: f64) -> f64 {
        (1.0 + self.question.tie) * score
    }

    /// Returns the probability that an answer needs.
    pub(crate) fn threshold(&self) -> f64 {
        1.0 - ERROR_SHARE * (1.0 - self.question.confidence)
    }

    /// Returns the likeliest answer. Among candidates that are likely enough, all within the tie margin of the best, it
    /// is the one with the lowest score.
    pub(crate) fn leader(&self) -> Option<usize> {
        let capped = |index: usize| self.p_best[index].min(self.threshold());
        let order = |&a: &usize, &b: &usize| {
            let by_score = self.statuses[b].score.total_cmp(&self.statuses[a].score);
            let by_probability = self.p_best[a].total_cmp(&self.p_best[b]);
            capped(a).total_cmp(&capped(b)).then(by_score).then(by_probability)
        };
        let eligible = (0..self.statuses.len()).filter(|&index| self.is_eligible(index));
        eligible.max_by(order).filter(|&index| self.p_best[index] > 0.0)
    }

    /// Returns the probability that a candidate is better than another by more than the tie margin.
    pub(crate) fn beats(&self, candidate: usize, other: usize) -> f64 {
        let [one, other] = [candidate, other].map(|index| &self.statuses[index].scores);
        other.expect(|score| 1.0 - one.not_below(score, self.question.tie))
    }

    /// Other candidates that can be the answer.
    pub(super) fn others(&self, best: usize) -> impl Iterator<Item = usize> {
        (0..self.statuses.len()).filter(move |&index| index != best && self.is_eligible(index))
    }

    /// Returns the lowest score that another candidate may have.
    fn lowest_other_score(&self, best: usize) -> f64 {
        let lower = self.others(best).map(|index| self.statuses[index].lower);
        lower.fold(f64::INFINITY, f64::min)
    }

    /// Returns candidates that may still be better than `best` by more than the tie margin.
    pub(crate) fn rivals(&self, best: usize) -> Vec<usize> {
        let may_meet = |index: &usize| self.statuses[*index].outcome != MeetsObjective::NotMet;
        let others = self.others(best).filter(may_meet);
        if self.question.minimise == Minimise::P99 {
            let upper = self.statuses[best].upper;
            let may_win = |index: &usize| upper > self.tie_limit(self.statuses[*index].lower);
            return others.filter(may_win).collect();
        }
        let open = (1.0 - self.threshold()) / self.statuses.len() as f64;
        others.filter(|&index| self.beats(index, best) > open).collect()
    }

    /// Returns the answer, if it is certain and no steps contradict it: the first of `Self::acceptable`.
    pub fn decided(&self) -> Option<usize> {
        self.acceptable().first().copied()
    }

    /// Returns all variants that are likely enough to be within the tie margin of the best, least expensive first;
    /// empty while the likeliest is open.
    pub(super) fn acceptable(&self) -> Vec<usize> {
        let certain = |index: &usize| self.contradiction(*index).is_none();
        let likely = self.leader().filter(|&best| self.p_best[best] >= self.threshold());
        let Some(leader) = likely.filter(certain) else {
            return Vec::new();
        };
        let required = |index: usize| match self.by_cost(index, leader) {
            Ordering::Less => self.question.confidence,
            _ => self.threshold(),
        };
        let mut acceptable: Vec<usize> = (0..self.statuses.len())
            .filter(|&index| self.p_best[index] >= required(index))
            .filter(|&index| self.is_eligible(index) && self.statuses[index].outcome == MeetsObjective::Met)
            .filter(certain)
            .collect();
        acceptable.sort_by(|&a, &b| self.by_cost(a, b));
        acceptable
    }

    /// Orders by score, then by dollars a month.
    fn by_cost(&self, a: usize, b: usize) -> Ordering {
        let question = Question {
            minimise: Minimise::UsdPerMonth,
            ..self.question.clone()
        };
        let usd = |index: usize| {
            let rps = self.statuses[index].estimate;
            rps.map_or(f64::INFINITY, |rps| score(&question, self.priced(index), rps, false))
        };
        let least = self.statuses[a].score.total_cmp(&self.statuses[b].score);
        least.then_with(|| usd(a).total_cmp(&usd(b)))
    }

    fn priced(&self, candidate: usize) -> Priced<'_> {
        Priced {
            terms: self.candidates[candidate].terms.as_ref(),
            use_per_inference: self.statuses[candidate].use_per_inference,
        }
    }

    /// Returns the rate at which all steps of a variant together miss the objective, if the variant is best only with
    /// that rate.
    pub(super) fn contradiction(&self, best: usize) -> Option<f64> {
        let status = &self.statuses[best];
        let least = self.lowest_other_score(best);
        let is_best_below = status.upper.is_finite() && status.upper <= self.tie_limit(least);
        let missed = status.missed.filter(|_| !is_best_below);
        missed.filter(|missed| status.curve.at_least(&self.grid, *missed) >= self.threshold())
    }

    /// Returns the highest rate that the best was measured at, if it is the answer only because of rates above it.
    pub(super) fn unmeasured_above(&self, best: usize) -> Option<f64> {
        if self.question.minimise == Minimise::P99 {
            return None;
        }
        let status = &self.statuses[best];
        let reached = top_rate(&status.rate_points)?;
        let (likely, _) = status.curve.interval(&self.grid, self.side());
        let may_be_less = |index: usize| {
            let other = &self.statuses[index];
            other.outcome != MeetsObjective::NotMet && status.upper > self.tie_limit(other.lower)
        };
        let is_open = likely * BELOW > reached && self.others(best).any(may_be_less);
        is_open.then_some(reached)
    }

    /// True if no candidate meets the objective.
    pub(crate) fn none_meets(&self) -> bool {
        let all_measured = self.statuses.iter().all(|status| status.estimate.is_some());
        let misses = |status: &CandidateStatus| 1.0 - status.curve.at_least(&self.grid, self.rates[0]);
        let probability: f64 = self.statuses.iter().map(misses).product();
        !self.statuses.is_empty() && all_measured && probability >= self.threshold()
    }

    /// Returns the lowest rate at which the winner still wins, which fresh steps have to confirm.
    pub(crate) fn decisive_rps(&self, best: usize) -> f64 {
        let least = self.lowest_other_score(best);
        let lo = self.statuses[best].lo.max(self.rates[0]);
        let serves = |rps: &&f64| **rps <= lo * (2.0 - BELOW) && self.score(best, **rps) <= self.tie_limit(least);
        if self.question.minimise == Minimise::P99 {
            return self.rates[0];
        }
        self.rates.iter().find(serves).copied().unwrap_or(lo)
    }

    /// Returns the result of the winner's fresh steps.
    pub(crate) fn confirmation(&self, best: usize, rps: f64) -> Confirmation {
        let mut points = gather(self.question, &self.candidates[best].steps, &self.rates, confirms);
        // A rate met also confirms lower rates; a rate missed also contradicts higher ones.
        let at_or_above = || points.iter().filter(|point| point.rps >= rps * 0.99);
        let usable: u32 = at_or_above().map(|point| point.usable).sum();
        let unusable = at_or_above().map(|point| point.unusable).max().unwrap_or(0);
        points.retain(|point| point.rps <= rps * 1.01);
        let odds = |curve: &HighestRate| {
            let meets = curve.at_least(&self.grid, rps);
            (1.0 - meets) / meets.max(1e-300)
        };
        let fresh = all_curves(self.question, &self.grid, &[points]);
        let against = fresh.first().map_or(0.0, odds) / odds(&HighestRate::prior(&self.grid)).max(1e-300);
        Confirmation {
            usable,
            unusable,
            contradicted: against >= 1.0 / (1.0 - self.question.confidence).max(1e-12),
        }
    }
}

/// Fresh steps that an answer needs.
pub(crate) const CONFIRM_STEPS: u32 = 3;

/// Result of fresh steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    /// Steps that are evidence.
    pub(crate) usable: u32,
    /// Unusable steps since the last usable one.
    pub(crate) unusable: u32,
    /// True if they contradict the steps that chose the answer.
    pub(crate) contradicted: bool,
}

impl Confirmation {
    /// True if they are enough, and agree with the steps that chose the answer.
    pub(crate) const fn confirms(&self) -> bool {
        !self.contradicted && self.usable >= CONFIRM_STEPS
    }
}

/// Moves rates met far above every rate that matters (by a plan's own loads or another question) to the highest rate that
/// matters, because the grid has no curve up there. A rate missed up there says nothing, and stays as it is.
fn clamped_to_grid(mut points: Vec<RatePoint>, rates: &[f64], grid: &Grid) -> Vec<RatePoint> {
    let (highest, top) = (rates[rates.len() - 1], grid.rates[grid.rates.len() - 1]);
    for point in points.iter_mut().filter(|point| point.rps > top && point.likely_met()) {
        point.rps = highest;
    }
    points
}

/// Returns the curves of all candidates under all objectives, and under failures if a candidate has too many of them.
pub(crate) fn all_curves(question: &Question, grid: &Grid, gathered: &[Vec<RatePoint>]) -> Vec<HighestRate> {
    let mut by_candidate: Vec<Vec<HighestRate>> = vec![Vec::new(); gathered.len()];
    for objective in 0..question.objectives.len() {
        let fits = gathered.iter().map(|points| CurveFit::of(grid, points, objective));
        for (all, curve) in by_candidate.iter_mut().zip(curves(grid, &fits.collect::<Vec<_>>())) {
            all.push(curve);
        }
    }
    for (all, points) in by_candidate.iter_mut().zip(gathered) {
        if points.iter().any(|point| point.exceeds_errors(question)) {
            all.extend(curves(grid, &[CurveFit::of(grid, points, question.objectives.len())]));
        }
    }
    let of_all = by_candidate.into_iter();
    of_all.map(|curves| HighestRate::combined(grid, curves)).collect()
}

/// Logarithms of the first objective's percentile at a rate.
fn log_percentiles(candidate: &Candidate, rps: f64) -> Vec<f64> {
    let is_at_rate = |step: &&StepEvidence| (step.rps / rps - 1.0).abs() <= 0.01 && step.usable.is_ok();
    let steps = candidate.steps.iter().filter(|step| chooses(step.purpose));
    let us = steps.filter(is_at_rate).filter_map(|step| step.quantile_us.first());
    us.filter(|us| **us > 0.0).map(|us| us.ln()).collect()
}

/// Returns the mean over the steps that report it, weighted by requests.
fn use_per_inference(steps: &[StepEvidence]) -> Option<TierUse> {
    let (mut weight, mut used) = (0.0, TierUse::default());
    for step in steps.iter().filter(|step| step.usable.is_ok()) {
        if let (Some(requests), Some(bytes)) = (step.tier_requests_per_inference, step.tier_bytes_per_inference) {
            weight += step.requests;
            used.requests += step.requests * requests;
            used.bytes += step.requests * bytes;
        }
    }
    (weight > 0.0).then(|| TierUse {
        requests: used.requests / weight,
        bytes: used.bytes / weight,
    })
}

/// Result of all steps together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LabVerdict {
    /// State of the answer.
    pub(super) outcome: AnswerOutcome,
    /// The best, or else the likeliest candidate.
    pub(super) best: Option<usize>,
    /// True if fresh steps confirm the best.
    pub(super) confirmed: bool,
    /// True if fresh steps contradict the best.
    pub(super) contradicted: bool,
    /// Number of missing fresh steps, if only those are missing.
    pub(super) missing: u32,
}

impl LabVerdict {
    /// Computes the verdict of a lab.
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let without_fresh = |outcome: AnswerOutcome, best: Option<usize>| Self {
            outcome,
            best,
            confirmed: false,
            contradicted: false,
            missing: 0,
        };
        if lab.none_meets() {
            return without_fresh(AnswerOutcome::None, None);
        }
        let acceptable = lab.acceptable();
        let fresh = |index: usize| lab.confirmation(index, lab.decisive_rps(index));
        // The least expensive one within the tie margin that fresh steps confirm; without one, the least expensive.
        let confirmed = acceptable.iter().copied().find(|&index| fresh(index).confirms());
        let Some(best) = confirmed.or_else(|| acceptable.first().copied()) else {
            // A candidate that misses the objective is no answer, however little is known of the others. Without a
            // usable step only the prior prefers a variant.
            let may_be_best = |best: &usize| {
                let status = &lab.statuses[*best];
                status.outcome != MeetsObjective::NotMet && usable(&status.rate_points).next().is_some()
            };
            return without_fresh(AnswerOutcome::Undecided, lab.leader().filter(may_be_best));
        };
        let fresh = fresh(best);
        Self {
            outcome: match fresh.confirms() && lab.unmeasured_above(best).is_none() {
                true => AnswerOutcome::Decided,
                false => AnswerOutcome::Undecided,
            },
            best: Some(best),
            confirmed: fresh.confirms(),
            contradicted: fresh.contradicted,
            missing: CONFIRM_STEPS.saturating_sub(fresh.usable),
        }
    }
}
