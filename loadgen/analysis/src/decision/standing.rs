//! State of all candidates together: the likely best, and its certainty.
//!
//! In: a question and candidates. Out: the score distribution of each. Knows nothing of the next measurement.

use super::chance::{self, Scores};
use super::curve::{Grid, HighestRate, Likely, curves};
use super::evidence::{Candidate, StepEvidence};
use super::places::{Place, at, gather, missed_rps, reached, usable};
use super::rates::rates;
use crate::costs::monthly::{Priced, Use, is_priced, score};
use crate::record::{AnswerOutcome, Interval, MeetsObjective, Minimise, Purpose, Question};
use std::cmp::Ordering;

/// Factor just below 1, because a rate that is missed does not serve.
const BELOW: f64 = 1.0 - 1e-6;
/// Share of the allowed error that the probabilities may use; the rest is a margin for errors of the curve model.
const BY_CHANCE: f64 = 0.2;
/// Share of the probability beside an interval that the curve model may leave out; the rest is a margin for its errors.
const OF_MODEL: f64 = 0.8;

/// State of one candidate. Lower scores are better.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    /// Steps by rate.
    pub(crate) places: Vec<Place>,
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
    pub(crate) use_per_inference: Option<Use>,
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

impl Standing {
    /// Upper end of the highest rate's interval over its lower end; infinite if either is open.
    pub(crate) fn width(&self) -> f64 {
        match self.lo > 0.0 {
            true => self.hi / self.lo,
            false => f64::INFINITY,
        }
    }

    /// Takes the percentile as the score: it counts if the objective is met, or looks met everywhere.
    fn compare_by(&mut self, percentile: Option<Interval>) {
        let us = |of: fn(Interval) -> f64| percentile.map(|interval| of(interval).exp());
        let is_met = self.outcome == MeetsObjective::Met;
        let looks_met = self.places.iter().all(Place::looks_met);
        let or_none = |us: Option<f64>, counts: bool| us.filter(|_| counts).unwrap_or(f64::INFINITY);
        self.lower = us(|interval| interval.lo).unwrap_or(0.0);
        self.upper = or_none(us(|interval| interval.hi), is_met);
        self.score = or_none(us(|interval| interval.value), looks_met);
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
    pub(crate) standings: Vec<Standing>,
    /// Probability of each candidate being best, or within the tie margin of the best, and meeting the objective.
    pub(crate) chances: Vec<f64>,
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
        Self::over(question, candidates, rates(question))
    }

    /// Creates the lab from all steps so far, over the given rates: rising, at least one.
    pub(super) fn over(question: &'a Question, candidates: &'a [Candidate], rates: Vec<f64>) -> Self {
        let grid = Grid::around(&rates);
        let places = |candidate: &Candidate| {
            let places = gather(question, &candidate.steps, &rates, chooses);
            within_reach(places, &rates, &grid)
        };
        let gathered: Vec<Vec<Place>> = candidates.iter().map(places).collect();
        let curves = all_curves(question, &grid, &gathered);
        let logs = candidates.iter().map(|candidate| log_percentiles(candidate, rates[0]));
        let logs: Vec<Vec<f64>> = logs.collect();
        let mut lab = Self {
            question,
            candidates,
            standings: Vec::new(),
            chances: Vec::new(),
            rates,
            grid,
        };
        let percentiles = chance::intervals(&logs, 1.0 - question.confidence);
        for (((candidate, places), curve), percentile) in candidates.iter().zip(gathered).zip(curves).zip(percentiles) {
            lab.standings.push(lab.standing(candidate, places, curve, percentile));
        }
        let placed: Vec<bool> = (0..candidates.len()).map(|index| lab.is_placed(index)).collect();
        let scores: Vec<&Scores> = lab.standings.iter().map(|standing| &standing.scores).collect();
        lab.chances = match question.minimise {
            Minimise::P99 => chance::by_percentile(&logs, &scores, question.tie),
            _ => chance::by_score(&scores, &placed, question.tie),
        };
        lab
    }

    fn standing(
        &self,
        candidate: &Candidate,
        places: Vec<Place>,
        curve: HighestRate,
        percentile: Option<Interval>,
    ) -> Standing {
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
        let (lo, hi) = self.interval(&places, &curve);
        let lo = self.below(missed, lo);
        let estimate = self.estimate(&places, &curve);
        let estimate = estimate.map(|rps| self.below(missed, rps.clamp(lo, hi.max(lo))));
        let mut standing = Standing {
            lower: of(hi * BELOW, true),
            upper: of(lo, false),
            score: estimate.map_or(f64::INFINITY, |rps| of(rps, false)),
            outcome: self.outcome(&places, &curve, missed),
            places,
            curve,
            scores,
            lo,
            hi,
            estimate,
            missed,
            use_per_inference,
            percentile: None,
        };
        if standing.outcome == MeetsObjective::NotMet {
            (standing.lower, standing.upper) = (f64::INFINITY, f64::INFINITY);
        } else if self.question.minimise == Minimise::P99 {
            standing.compare_by(percentile);
        }
        standing
    }

    /// Returns a rate, or the next one that matters below the rate that a candidate's steps miss.
    fn below(&self, missed: Option<f64>, rps: f64) -> f64 {
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
    fn outcome(&self, places: &[Place], curve: &HighestRate, missed: Option<f64>) -> MeetsObjective {
        let lowest = self.rates[0];
        let meets = curve.at_least(&self.grid, lowest);
        if usable(places).next().is_none() {
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
    fn interval(&self, places: &[Place], curve: &HighestRate) -> (f64, f64) {
        let (lo, hi) = curve.interval(&self.grid, OF_MODEL * self.side());
        let lo = lo.min(reached(places).unwrap_or(0.0)).min(self.question.highest_rps);
        let hi = match usable(places).all(Place::looks_met) {
            true => f64::INFINITY,
            false => hi.max(self.rates[0]),
        };
        (if lo < self.rates[0] * BELOW { 0.0 } else { lo }, hi)
    }

    fn estimate(&self, places: &[Place], curve: &HighestRate) -> Option<f64> {
        let reached = reached(places)?;
        let likely = curve.median(&self.grid).filter(|rps| *rps >= self.rates[0] * BELOW);
        Some(likely.map_or(0.0, |rps| rps.min(reached).min(self.question.highest_rps)))
    }

    /// Returns the steps of a candidate at a rate, if it was measured.
    pub(crate) fn at(&self, candidate: usize, rps: f64) -> Option<&Place> {
        at(&self.standings[candidate].places, rps)
    }

    /// Returns the score of a candidate at a rate.
    pub(crate) fn score(&self, candidate: usize, rps: f64) -> f64 {
        score(self.question, self.priced(candidate), rps, false)
    }

    /// True if a candidate can be the answer. If prices decide, a candidate without prices cannot.
    pub(crate) fn is_placed(&self, candidate: usize) -> bool {
        !is_priced(self.question) || self.candidates[candidate].terms.is_some()
    }

    /// Returns the highest score that ties with `score`.
    pub(crate) fn tied(&self, score: f64) -> f64 {
        (1.0 + self.question.tie) * score
    }

    /// Returns the probability that an answer needs.
    pub(crate) fn enough(&self) -> f64 {
        1.0 - BY_CHANCE * (1.0 - self.question.confidence)
    }

    /// Returns the likeliest answer. Among candidates that are likely enough, all within the tie margin of the best, it
    /// is the one with the lowest score.
    pub(crate) fn leader(&self) -> Option<usize> {
        let chance = |index: usize| self.chances[index].min(self.enough());
        let order = |&a: &usize, &b: &usize| {
            let by_score = self.standings[b].score.total_cmp(&self.standings[a].score);
            let by_chance = self.chances[a].total_cmp(&self.chances[b]);
            chance(a).total_cmp(&chance(b)).then(by_score).then(by_chance)
        };
        let placed = (0..self.standings.len()).filter(|&index| self.is_placed(index));
        placed.max_by(order).filter(|&index| self.chances[index] > 0.0)
    }

    /// Returns the probability that a candidate is better than another by more than the tie margin.
    pub(crate) fn beats(&self, candidate: usize, other: usize) -> f64 {
        let [one, other] = [candidate, other].map(|index| &self.standings[index].scores);
        other.expect(|score| 1.0 - one.not_below(score, self.question.tie))
    }

    /// Other candidates that can be the answer.
    pub(super) fn others(&self, best: usize) -> impl Iterator<Item = usize> {
        (0..self.standings.len()).filter(move |&index| index != best && self.is_placed(index))
    }

    /// Returns the lowest score that another candidate may have.
    fn least_of_others(&self, best: usize) -> f64 {
        let lower = self.others(best).map(|index| self.standings[index].lower);
        lower.fold(f64::INFINITY, f64::min)
    }

    /// Returns candidates that may still be better than `best` by more than the tie margin.
    pub(crate) fn rivals(&self, best: usize) -> Vec<usize> {
        let may_meet = |index: &usize| self.standings[*index].outcome != MeetsObjective::NotMet;
        let others = self.others(best).filter(may_meet);
        if self.question.minimise == Minimise::P99 {
            let upper = self.standings[best].upper;
            let may_win = |index: &usize| upper > self.tied(self.standings[*index].lower);
            return others.filter(may_win).collect();
        }
        let open = (1.0 - self.enough()) / self.standings.len() as f64;
        others.filter(|&index| self.beats(index, best) > open).collect()
    }

    /// Returns the answer, if it is certain and no steps contradict it: the first of `Self::as_good`.
    pub fn decided(&self) -> Option<usize> {
        self.as_good().first().copied()
    }

    /// Returns all variants that are likely enough to be within the tie margin of the best, least expensive first;
    /// empty while the likeliest is open.
    pub(super) fn as_good(&self) -> Vec<usize> {
        let certain = |index: &usize| self.contradiction(*index).is_none();
        let likely = self.leader().filter(|&best| self.chances[best] >= self.enough());
        let Some(leader) = likely.filter(certain) else {
            return Vec::new();
        };
        let enough = |index: usize| match self.by_cost(index, leader) {
            Ordering::Less => self.question.confidence,
            _ => self.enough(),
        };
        let mut good: Vec<usize> = (0..self.standings.len())
            .filter(|&index| self.chances[index] >= enough(index))
            .filter(|&index| self.is_placed(index) && self.standings[index].outcome == MeetsObjective::Met)
            .filter(certain)
            .collect();
        good.sort_by(|&a, &b| self.by_cost(a, b));
        good
    }

    /// Orders by score, then by dollars a month.
    fn by_cost(&self, a: usize, b: usize) -> Ordering {
        let question = Question {
            minimise: Minimise::UsdPerMonth,
            ..self.question.clone()
        };
        let usd = |index: usize| {
            let rps = self.standings[index].estimate;
            rps.map_or(f64::INFINITY, |rps| score(&question, self.priced(index), rps, false))
        };
        let least = self.standings[a].score.total_cmp(&self.standings[b].score);
        least.then_with(|| usd(a).total_cmp(&usd(b)))
    }

    fn priced(&self, candidate: usize) -> Priced<'_> {
        Priced {
            terms: self.candidates[candidate].terms.as_ref(),
            use_per_inference: self.standings[candidate].use_per_inference,
        }
    }

    /// Returns the rate at which all steps of a variant together miss the objective, if the variant is best only with
    /// that rate.
    pub(super) fn contradiction(&self, best: usize) -> Option<f64> {
        let standing = &self.standings[best];
        let least = self.least_of_others(best);
        let is_best_below = standing.upper.is_finite() && standing.upper <= self.tied(least);
        let missed = standing.missed.filter(|_| !is_best_below);
        missed.filter(|missed| standing.curve.at_least(&self.grid, *missed) >= self.enough())
    }

    /// Returns the highest rate that the best was measured at, if it is the answer only because of rates above it.
    pub(super) fn unmeasured_above(&self, best: usize) -> Option<f64> {
        if self.question.minimise == Minimise::P99 {
            return None;
        }
        let standing = &self.standings[best];
        let reached = reached(&standing.places)?;
        let (likely, _) = standing.curve.interval(&self.grid, self.side());
        let may_be_less = |index: usize| {
            let other = &self.standings[index];
            other.outcome != MeetsObjective::NotMet && standing.upper > self.tied(other.lower)
        };
        let is_open = likely * BELOW > reached && self.others(best).any(may_be_less);
        is_open.then_some(reached)
    }

    /// True if no candidate meets the objective.
    pub(crate) fn none_meets(&self) -> bool {
        let all_measured = self.standings.iter().all(|standing| standing.estimate.is_some());
        let misses = |standing: &Standing| 1.0 - standing.curve.at_least(&self.grid, self.rates[0]);
        let probability: f64 = self.standings.iter().map(misses).product();
        !self.standings.is_empty() && all_measured && probability >= self.enough()
    }

    /// Returns the lowest rate at which the winner still wins, which fresh steps have to confirm.
    pub(crate) fn decisive_rps(&self, best: usize) -> f64 {
        let least = self.least_of_others(best);
        let lo = self.standings[best].lo.max(self.rates[0]);
        let serves = |rps: &&f64| **rps <= lo * (2.0 - BELOW) && self.score(best, **rps) <= self.tied(least);
        if self.question.minimise == Minimise::P99 {
            return self.rates[0];
        }
        self.rates.iter().find(serves).copied().unwrap_or(lo)
    }

    /// Returns the result of the winner's fresh steps.
    pub(crate) fn confirmation(&self, best: usize, rps: f64) -> Confirmation {
        let mut places = gather(self.question, &self.candidates[best].steps, &self.rates, confirms);
        // A rate met also confirms lower rates; a rate missed also contradicts higher ones.
        let enough = || places.iter().filter(|place| place.rps >= rps * 0.99);
        let usable: u32 = enough().map(|place| place.usable).sum();
        let in_vain = enough().map(|place| place.in_vain).max().unwrap_or(0);
        places.retain(|place| place.rps <= rps * 1.01);
        let odds = |curve: &HighestRate| {
            let meets = curve.at_least(&self.grid, rps);
            (1.0 - meets) / meets.max(1e-300)
        };
        let fresh = all_curves(self.question, &self.grid, &[places]);
        let against = fresh.first().map_or(0.0, odds) / odds(&HighestRate::prior(&self.grid)).max(1e-300);
        Confirmation {
            usable,
            in_vain,
            contradicted: against >= 1.0 / (1.0 - self.question.confidence).max(1e-12),
        }
    }
}

/// Fresh steps that an answer needs.
pub(crate) const CONFIRM: u32 = 3;

/// Result of fresh steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmation {
    /// Steps that are evidence.
    pub(crate) usable: u32,
    /// Unusable steps since the last usable one.
    pub(crate) in_vain: u32,
    /// True if they contradict the steps that chose the answer.
    pub(crate) contradicted: bool,
}

impl Confirmation {
    /// True if they are enough, and agree with the steps that chose the answer.
    pub(crate) const fn confirms(&self) -> bool {
        !self.contradicted && self.usable >= CONFIRM
    }
}

/// Moves rates met far above every rate that matters (by a plan's own loads or another question) to the highest rate that
/// matters, because the grid has no curve up there. A rate missed up there says nothing, and stays as it is.
fn within_reach(mut places: Vec<Place>, rates: &[f64], grid: &Grid) -> Vec<Place> {
    let (highest, top) = (rates[rates.len() - 1], grid.rates[grid.rates.len() - 1]);
    for place in places.iter_mut().filter(|place| place.rps > top && place.looks_met()) {
        place.rps = highest;
    }
    places
}

/// Returns the curves of all candidates under all objectives, and under failures if a candidate has too many of them.
pub(crate) fn all_curves(question: &Question, grid: &Grid, gathered: &[Vec<Place>]) -> Vec<HighestRate> {
    let mut by_candidate: Vec<Vec<HighestRate>> = vec![Vec::new(); gathered.len()];
    for objective in 0..question.objectives.len() {
        let likely = gathered.iter().map(|places| Likely::of(grid, places, objective));
        for (all, curve) in by_candidate.iter_mut().zip(curves(grid, &likely.collect::<Vec<_>>())) {
            all.push(curve);
        }
    }
    for (all, places) in by_candidate.iter_mut().zip(gathered) {
        if places.iter().any(|place| place.refuses(question)) {
            all.extend(curves(grid, &[Likely::of(grid, places, question.objectives.len())]));
        }
    }
    let of_all = by_candidate.into_iter();
    of_all.map(|curves| HighestRate::all_of(grid, curves)).collect()
}

/// Logarithms of the first objective's percentile at a rate.
fn log_percentiles(candidate: &Candidate, rps: f64) -> Vec<f64> {
    let is_here = |step: &&StepEvidence| (step.rps / rps - 1.0).abs() <= 0.01 && step.usable.is_ok();
    let steps = candidate.steps.iter().filter(|step| chooses(step.purpose));
    let us = steps.filter(is_here).filter_map(|step| step.quantile_us.first());
    us.filter(|us| **us > 0.0).map(|us| us.ln()).collect()
}

/// Returns the mean over the steps that report it, weighted by requests.
fn use_per_inference(steps: &[StepEvidence]) -> Option<Use> {
    let (mut weight, mut used) = (0.0, Use::default());
    for step in steps.iter().filter(|step| step.usable.is_ok()) {
        if let (Some(requests), Some(bytes)) = (step.tier_requests_per_inference, step.tier_bytes_per_inference) {
            weight += step.requests;
            used.requests += step.requests * requests;
            used.bytes += step.requests * bytes;
        }
    }
    (weight > 0.0).then(|| Use {
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
        let good = lab.as_good();
        let fresh = |index: usize| lab.confirmation(index, lab.decisive_rps(index));
        // The least expensive one within the tie margin that fresh steps confirm; without one, the least expensive.
        let confirmed = good.iter().copied().find(|&index| fresh(index).confirms());
        let Some(best) = confirmed.or_else(|| good.first().copied()) else {
            // A candidate that misses the objective is no answer, however little is known of the others. Without a
            // usable step only the prior prefers a variant.
            let may_be_best = |best: &usize| {
                let standing = &lab.standings[*best];
                standing.outcome != MeetsObjective::NotMet && usable(&standing.places).next().is_some()
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
            missing: CONFIRM.saturating_sub(fresh.usable),
        }
    }
}
