//! Labs whose answer is known. In: a family, random numbers. Out: a question, and variants with their true highest rates. Independent
//! of the steps that measure them.

use super::servers::{LIMIT_S, Noise, SLOW_SHARE, Server, Service};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::costs::monthly::{Priced, TierUse, score};
use tierlab_analysis::decision::rates::rates;
use tierlab_analysis::record::{CostTerms, Demand, Minimise, Mode, Objective, Percentile, Question};

/// Duration of a step with its preparation, in seconds.
pub(super) const STEP_S: f64 = 2.5;
/// Maximum steps of a lab.
pub(super) const BUDGET: u32 = 240;
const HIGHEST_RPS: f64 = 600.0;
const TIE: f64 = 0.05;

/// Kind of the tiers of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Exponential,
    Lognormal,
    /// M/M/1 with slow misses, of a share near the percentile.
    HitMiss,
    /// No variant meets the objective.
    NoneMeets,
    Deterministic,
    Hyperexponential,
    Two,
}

impl Kind {
    const fn terms(self) -> (&'static str, Service) {
        match self {
            Self::Exponential => ("M/M/1", Service::Exponential),
            Self::Lognormal => ("M/G/1, lognormal", Service::Lognormal),
            Self::HitMiss => ("hits and slow misses", Service::Exponential),
            Self::NoneMeets => ("none meets", Service::Exponential),
            Self::Deterministic => ("M/D/1", Service::Deterministic),
            Self::Hyperexponential => ("M/G/1, hyperexponential", Service::Hyperexponential),
            Self::Two => ("M/M/2", Service::Two),
        }
    }
}

/// Labs of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Family {
    pub(super) kind: Kind,
    /// Variants of a lab.
    pub(super) variants: usize,
    /// Share by which the second is worse than the best.
    pub(super) gap: f64,
    /// If true, there is a demand, and so dollars a month; without one the highest rate wins.
    pub(super) demand: bool,
    pub(super) noise: Noise,
    /// True if no constant of the rule was chosen by it.
    pub(super) held_out: bool,
}

impl Family {
    pub(super) fn name(&self) -> String {
        let mut name = format!("{}, {} variants", self.kind.terms().0, self.variants);
        if self.kind != Kind::NoneMeets {
            name += &format!(", second {:.0} % worse", 100.0 * self.gap);
        }
        name += if self.demand { ", $ a month" } else { ", highest rate" };
        if self.noise.spread > 0.0 {
            name += &format!(", repeats differ by {:.0} %", 100.0 * self.noise.spread);
        }
        if self.noise.correlation > 0.0 {
            name += " and neighbours by less";
        }
        if self.noise.disturbed_share > 0.0 {
            name += &format!(", {:.0} % disturbed", 100.0 * self.noise.disturbed_share);
        }
        name
    }
}

/// Families of the kept table: those by which the rule's constants were chosen, and others with other laws of service, numbers of
/// variants and gaps, and noise that lasts.
pub(super) fn families() -> Vec<Family> {
    use Kind::{Deterministic, Exponential, HitMiss, Hyperexponential, Lognormal, NoneMeets, Two};
    let no_noise = (0.0, 0.0, 0.0);
    let mut tuned = vec![
        (Exponential, 4, 0.3, true, no_noise),
        (Exponential, 4, 0.1, true, no_noise),
        (Exponential, 4, 0.02, true, no_noise),
        (Exponential, 4, 0.3, false, no_noise),
        (Exponential, 4, 0.1, false, no_noise),
        (Exponential, 4, 0.02, false, no_noise),
        (Exponential, 3, 0.1, true, no_noise),
        (Exponential, 8, 0.1, true, no_noise),
        (Exponential, 8, 0.3, false, no_noise),
        (Lognormal, 5, 0.3, true, no_noise),
        (Lognormal, 5, 0.1, false, no_noise),
        (HitMiss, 5, 0.3, true, no_noise),
        (HitMiss, 5, 0.3, false, no_noise),
        (NoneMeets, 4, 0.0, true, no_noise),
    ];
    for noise in [(0.05, 0.0, 0.0), (0.2, 0.0, 0.0), (0.0, 0.0, 0.1)] {
        let noisy_labs = [(0.3, true), (0.3, false), (0.1, true)];
        tuned.extend(noisy_labs.map(|(gap, demand)| (Exponential, 4, gap, demand, noise)));
    }
    let held_out = [
        (Deterministic, 4, 0.3, true, no_noise),
        (Deterministic, 6, 0.15, false, no_noise),
        (Hyperexponential, 4, 0.3, true, no_noise),
        (Hyperexponential, 5, 0.1, false, no_noise),
        (Two, 4, 0.3, true, no_noise),
        (Two, 6, 0.2, false, no_noise),
        (Exponential, 6, 0.2, true, (0.1, 0.8, 0.0)),
        (Exponential, 4, 0.3, false, (0.1, 0.8, 0.0)),
        (Lognormal, 4, 0.2, true, (0.0, 0.0, 0.05)),
        (HitMiss, 4, 0.2, false, (0.05, 0.0, 0.0)),
        (NoneMeets, 6, 0.0, true, (0.1, 0.0, 0.0)),
        (Two, 5, 0.2, true, (0.1, 0.0, 0.05)),
    ];
    let all = tuned.into_iter().map(|family| (family, false));
    let all = all.chain(held_out.map(|family| (family, true)));
    all.map(
        |((kind, variants, gap, demand, (spread, correlation, disturbed_share)), held_out)| Family {
            kind,
            variants,
            gap,
            demand,
            noise: Noise {
                spread,
                correlation,
                disturbed_share,
                deviation: 0.0,
            },
            held_out,
        },
    )
    .collect()
}

/// Variant with its true figures.
#[derive(Debug, Clone)]
pub(super) struct Truth {
    pub(super) server: Server,
    /// Highest rate under the objective; 0 if none meets it.
    pub(super) highest_rps: f64,
    pub(super) terms: CostTerms,
}

/// Lab whose answer is known.
#[derive(Debug, Clone)]
pub(super) struct KnownLab {
    pub(super) question: Question,
    pub(super) truths: Vec<Truth>,
}

impl KnownLab {
    pub(super) fn draw(family: &Family, rng: &mut ChaCha8Rng) -> Self {
        let peak_rps = rng.random_range(300.0..1_500.0);
        let question = question(family.demand.then_some(peak_rps));
        let mut highest: Vec<f64> = (0..family.variants).map(|_| rng.random_range(120.0..480.0)).collect();
        if !family.demand {
            spread_apart(&mut highest, family.gap, rng, |best, worse| best / worse);
        }
        let truths = highest.into_iter().enumerate();
        let truths = truths.map(|(index, rps)| truth(family, index, rps, rng)).collect();
        let mut lab = Self { question, truths };
        if family.demand {
            lab.price(family, rng);
        }
        // The best has any index.
        lab.truths.rotate_left(rng.random_range(0..family.variants));
        lab
    }

    /// Sets prices that make costs differ as they should.
    fn price(&mut self, family: &Family, rng: &mut ChaCha8Rng) {
        let meets = |index: &usize| self.truths[*index].highest_rps > 0.0;
        let meets: Vec<usize> = (0..self.truths.len()).filter(meets).collect();
        let mut costs: Vec<f64> = meets.iter().map(|_| rng.random_range(1.0..2.0)).collect();
        spread_apart(&mut costs, family.gap, rng, |best, worse| best * worse);
        for (index, cost) in meets.into_iter().zip(costs) {
            let current = self.score(index);
            self.truths[index].terms.usd_per_instance_hour *= 1_000.0 * cost / current;
        }
        for truth in self.truths.iter_mut().filter(|truth| truth.highest_rps == 0.0) {
            truth.terms.usd_per_instance_hour = rng.random_range(0.2..2.0);
        }
    }

    /// True score of a variant; infinite if it does not meet the objective.
    pub(super) fn score(&self, index: usize) -> f64 {
        self.score_at(index, self.truths[index].highest_rps)
    }

    /// The least and the greatest score that any variant can have.
    pub(super) fn score_range(&self) -> (f64, f64) {
        let rates = rates(&self.question);
        let ends = [rates[rates.len() - 1], rates[0]];
        let [best, worst] = ends.map(|rps| (0..self.truths.len()).map(move |index| self.score_at(index, rps)));
        (best.fold(f64::INFINITY, f64::min), worst.fold(0.0, f64::max))
    }

    /// Lowest rate with which a variant has a score; `None` if it cannot have it.
    pub(super) fn required_rps(&self, index: usize, score: f64) -> Option<f64> {
        let rates = rates(&self.question);
        rates.into_iter().find(|rps| self.score_at(index, *rps) <= score)
    }

    fn score_at(&self, index: usize, highest_rps: f64) -> f64 {
        let truth = &self.truths[index];
        let priced = Priced {
            terms: Some(&truth.terms),
            use_per_inference: Some(TierUse {
                requests: 1.0,
                bytes: 1_024.0,
            }),
        };
        score(&self.question, priced, highest_rps, false)
    }

    /// Least score of any variant.
    pub(super) fn best_score(&self) -> f64 {
        let scores = (0..self.truths.len()).map(|index| self.score(index));
        scores.fold(f64::INFINITY, f64::min)
    }

    /// True if a variant is the best, or within the tie of it.
    pub(super) fn is_correct(&self, index: usize) -> bool {
        self.score(index) <= (1.0 + self.question.tie) * self.best_score() * (1.0 + 1e-9)
    }
}

/// Sets the second of some values so far from the best, and all others further away.
fn spread_apart(values: &mut [f64], gap: f64, rng: &mut ChaCha8Rng, worsen: impl Fn(f64, f64) -> f64) {
    let Some((best, others)) = values.split_first_mut() else {
        return;
    };
    for (index, other) in others.iter_mut().enumerate() {
        let excess = match index {
            0 => gap,
            _ => gap.max(0.1) + rng.random_range(0.0..1.0),
        };
        *other = worsen(*best, 1.0 + excess);
    }
}

fn truth(family: &Family, index: usize, highest_rps: f64, rng: &mut ChaCha8Rng) -> Truth {
    let (_, service) = family.kind.terms();
    let misses = match family.kind {
        // The first two meet it, so that there is a best and a second; of the others some never do.
        Kind::HitMiss if index < 2 => rng.random_range(0.0..0.006),
        Kind::HitMiss => [0.0, 0.005, 0.015, 0.03][rng.random_range(0..4)],
        Kind::NoneMeets => rng.random_range(0.02..0.1),
        _ => 0.0,
    };
    let server = Server::with_highest(service, misses, highest_rps);
    let long_run_rps = server.long_run_rps(highest_rps, family.noise.spread);
    Truth {
        server,
        highest_rps: if misses < SLOW_SHARE { long_run_rps } else { 0.0 },
        terms: CostTerms {
            usd_per_instance_hour: 1.0,
            ..CostTerms::default()
        },
    }
}

/// Question with a demand at the peak, or for the highest rate.
pub(super) fn question(peak_rps: Option<f64>) -> Question {
    Question {
        objectives: vec![Objective::Percentile {
            percentile: Percentile::P99,
            limit_us: LIMIT_S * 1e6,
        }],
        error_share: 0.001,
        demand: peak_rps.map(|peak_rps| Demand {
            average_rps: peak_rps / 2.0,
            peak_rps,
        }),
        minimise: peak_rps.map_or(Minimise::Instances, |_| Minimise::UsdPerMonth),
        mode: Mode::Realtime,
        batch_size: 1,
        budget_s: f64::from(BUDGET) * STEP_S,
        confidence: 0.95,
        tie: TIE,
        utilisation: 0.7,
        least_instances: 2,
        highest_rps: HIGHEST_RPS,
    }
}
