//! Labs whose answer is known. In: a family, random numbers. Out: a question, and variants with their true highest rates. Knows
//! nothing of how they are measured.

use super::servers::{LIMIT_S, SLOW, Server, Service, Weather};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::costs::monthly::Use;
use tierlab_analysis::decision::rates::rates;
use tierlab_analysis::decision::score::{Priced, score};
use tierlab_analysis::record::{CostTerms, Demand, Minimise, Mode, Objective, Percentile, Question};

/// Seconds that a step takes with all that belongs to it.
pub(super) const STEP_S: f64 = 2.5;
/// Steps that a lab may take.
pub(super) const BUDGET: u32 = 240;
pub(super) const HIGHEST_RPS: f64 = 600.0;
const TIE: f64 = 0.05;

/// What a tier is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// M/M/1.
    Exponential,
    /// M/G/1 with lognormal service.
    Lognormal,
    /// M/M/1 with slow misses, of a share near the percentile.
    HitMiss,
    /// No variant meets the objective.
    NoneMeets,
    /// M/D/1.
    Deterministic,
    /// M/G/1 with hyperexponential service.
    Hyperexponential,
    /// M/M/2.
    Two,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Exponential => "M/M/1",
            Self::Lognormal => "M/G/1, lognormal",
            Self::HitMiss => "hits and slow misses",
            Self::NoneMeets => "none meets",
            Self::Deterministic => "M/D/1",
            Self::Hyperexponential => "M/G/1, hyperexponential",
            Self::Two => "M/M/2",
        }
    }

    fn service(self) -> Service {
        match self {
            Self::Exponential | Self::HitMiss | Self::NoneMeets => Service::Exponential,
            Self::Lognormal => Service::Lognormal,
            Self::Deterministic => Service::Deterministic,
            Self::Hyperexponential => Service::Hyperexponential,
            Self::Two => Service::Two,
        }
    }
}

/// Labs of a kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Family {
    /// What its tiers are like.
    pub kind: Kind,
    /// Variants of a lab.
    pub variants: usize,
    /// By how much the second is worse than the best.
    pub gap: f64,
    /// Whether there is a demand, and so dollars a month; without one the highest rate wins.
    pub demand: bool,
    /// How much repeats differ.
    pub spread: f64,
    /// The share of disturbed steps.
    pub disturbed: f64,
    /// How far that of one repeat is that of the one before: a correlation.
    pub lasting: f64,
    /// Whether no constant of the rule was chosen by it.
    pub held_out: bool,
}

impl Family {
    /// In a table.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = format!("{}, {} variants", self.kind.name(), self.variants);
        if self.kind != Kind::NoneMeets {
            name += &format!(", second {:.0} % worse", 100.0 * self.gap);
        }
        name += if self.demand { ", $ a month" } else { ", highest rate" };
        if self.spread > 0.0 {
            name += &format!(", repeats differ by {:.0} %", 100.0 * self.spread);
        }
        if self.lasting > 0.0 {
            name += " and neighbours by less";
        }
        if self.disturbed > 0.0 {
            name += &format!(", {:.0} % disturbed", 100.0 * self.disturbed);
        }
        name
    }

    /// The machine.
    pub(super) fn weather(&self) -> Weather {
        Weather {
            spread: self.spread,
            disturbed: self.disturbed,
            unseen: 0.2,
            lasting: self.lasting,
            push: 0.0,
        }
    }
}

fn family(kind: Kind, variants: usize, gap: f64, demand: bool) -> Family {
    Family {
        kind,
        variants,
        gap,
        demand,
        spread: 0.0,
        disturbed: 0.0,
        lasting: 0.0,
        held_out: false,
    }
}

/// The families of the kept table: those that the rule's constants were chosen by, and others that they were not.
#[must_use]
pub fn families() -> Vec<Family> {
    let mut families = known_families();
    families.extend(held_out());
    families
}

/// Other laws of service, other numbers of variants and gaps, and weather that lasts.
fn held_out() -> Vec<Family> {
    use Kind::{Deterministic, HitMiss, Hyperexponential, Lognormal, NoneMeets, Two};
    let rough = |spread, lasting, disturbed, family| Family {
        spread,
        lasting,
        disturbed,
        ..family
    };
    let families = [
        family(Deterministic, 4, 0.3, true),
        family(Deterministic, 6, 0.15, false),
        family(Hyperexponential, 4, 0.3, true),
        family(Hyperexponential, 5, 0.1, false),
        family(Two, 4, 0.3, true),
        family(Two, 6, 0.2, false),
        rough(0.1, 0.8, 0.0, family(Kind::Exponential, 6, 0.2, true)),
        rough(0.1, 0.8, 0.0, family(Kind::Exponential, 4, 0.3, false)),
        rough(0.0, 0.0, 0.05, family(Lognormal, 4, 0.2, true)),
        rough(0.05, 0.0, 0.0, family(HitMiss, 4, 0.2, false)),
        rough(0.1, 0.0, 0.0, family(NoneMeets, 6, 0.0, true)),
        rough(0.1, 0.0, 0.05, family(Two, 5, 0.2, true)),
    ];
    families
        .map(|family| Family {
            held_out: true,
            ..family
        })
        .to_vec()
}

fn known_families() -> Vec<Family> {
    use Kind::{Exponential, HitMiss, Lognormal, NoneMeets};
    let mut families = vec![
        family(Exponential, 4, 0.3, true),
        family(Exponential, 4, 0.1, true),
        family(Exponential, 4, 0.02, true),
        family(Exponential, 4, 0.3, false),
        family(Exponential, 4, 0.1, false),
        family(Exponential, 4, 0.02, false),
        family(Exponential, 3, 0.1, true),
        family(Exponential, 8, 0.1, true),
        family(Exponential, 8, 0.3, false),
        family(Lognormal, 5, 0.3, true),
        family(Lognormal, 5, 0.1, false),
        family(HitMiss, 5, 0.3, true),
        family(HitMiss, 5, 0.3, false),
        family(NoneMeets, 4, 0.0, true),
    ];
    for (spread, disturbed) in [(0.05, 0.0), (0.2, 0.0), (0.0, 0.1)] {
        for demand in [true, false] {
            families.push(Family {
                spread,
                disturbed,
                ..family(Exponential, 4, 0.3, demand)
            });
        }
        families.push(Family {
            spread,
            disturbed,
            ..family(Exponential, 4, 0.1, true)
        });
    }
    families
}

/// One variant, with what is true of it.
#[derive(Debug, Clone)]
pub(super) struct Truth {
    pub(super) server: Server,
    /// The highest rate under the objective; 0 where none meets it.
    pub(super) highest_rps: f64,
    pub(super) terms: CostTerms,
}

/// A lab whose answer is known.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) question: Question,
    pub(super) truths: Vec<Truth>,
}

impl Known {
    /// Draws one.
    pub(super) fn draw(family: &Family, rng: &mut ChaCha8Rng) -> Self {
        let peak_rps = rng.random_range(300.0..1_500.0);
        let question = question(family.demand.then_some(peak_rps));
        let mut highest: Vec<f64> = (0..family.variants).map(|_| rng.random_range(120.0..480.0)).collect();
        if !family.demand {
            apart(&mut highest, family.gap, rng, |best, worse| best / worse);
        }
        let truths: Vec<Truth> = highest
            .into_iter()
            .enumerate()
            .map(|(index, rps)| truth(family, index, rps, rng))
            .collect();
        let mut known = Self { question, truths };
        if family.demand {
            known.price(family, rng);
        }
        // The best stands anywhere.
        known.truths.rotate_left(rng.random_range(0..family.variants));
        known
    }

    /// Sets prices that make costs differ as they should.
    fn price(&mut self, family: &Family, rng: &mut ChaCha8Rng) {
        let meets: Vec<usize> = (0..self.truths.len())
            .filter(|&index| self.truths[index].highest_rps > 0.0)
            .collect();
        let mut costs: Vec<f64> = meets.iter().map(|_| rng.random_range(1.0..2.0)).collect();
        apart(&mut costs, family.gap, rng, |best, worse| best * worse);
        for (index, cost) in meets.into_iter().zip(costs) {
            let now = self.score(index);
            self.truths[index].terms.usd_per_instance_hour *= 1_000.0 * cost / now;
        }
        for truth in self.truths.iter_mut().filter(|truth| truth.highest_rps == 0.0) {
            truth.terms.usd_per_instance_hour = rng.random_range(0.2..2.0);
        }
    }

    /// What a variant truly has; infinite where it does not meet the objective.
    pub(super) fn score(&self, index: usize) -> f64 {
        self.score_at(index, self.truths[index].highest_rps)
    }

    /// The least and the greatest score that any variant can have.
    pub(super) fn range(&self) -> (f64, f64) {
        let rates = rates(&self.question);
        let ends = [rates[rates.len() - 1], rates[0]];
        let [least, most] = ends.map(|rps| (0..self.truths.len()).map(move |index| self.score_at(index, rps)));
        (least.fold(f64::INFINITY, f64::min), most.fold(0.0, f64::max))
    }

    /// The lowest rate with which a variant has a score; `None` where it cannot have it.
    pub(super) fn needed(&self, index: usize, score: f64) -> Option<f64> {
        let rates = rates(&self.question);
        rates.into_iter().find(|rps| self.score_at(index, *rps) <= score)
    }

    fn score_at(&self, index: usize, highest_rps: f64) -> f64 {
        let truth = &self.truths[index];
        let priced = Priced {
            terms: Some(&truth.terms),
            use_per_inference: Some(Use {
                requests: 1.0,
                bytes: 1_024.0,
            }),
        };
        score(&self.question, priced, highest_rps, false)
    }

    /// The least that any has.
    pub(super) fn least(&self) -> f64 {
        (0..self.truths.len())
            .map(|index| self.score(index))
            .fold(f64::INFINITY, f64::min)
    }

    /// Whether a variant is the best, or within the tie of it.
    pub(super) fn is_right(&self, index: usize) -> bool {
        self.score(index) <= (1.0 + self.question.tie) * self.least() * (1.0 + 1e-9)
    }
}

/// Sets the second of some values so far from the best, and all others further.
fn apart(values: &mut [f64], gap: f64, rng: &mut ChaCha8Rng, further: impl Fn(f64, f64) -> f64) {
    let Some((best, others)) = values.split_first_mut() else {
        return;
    };
    for (index, other) in others.iter_mut().enumerate() {
        let more = if index == 0 {
            gap
        } else {
            gap.max(0.1) + rng.random_range(0.0..1.0)
        };
        *other = further(*best, 1.0 + more);
    }
}

fn truth(family: &Family, index: usize, highest_rps: f64, rng: &mut ChaCha8Rng) -> Truth {
    let service = family.kind.service();
    let misses = match family.kind {
        // The first two meet it, so that there is a best and a second; of the others some never do.
        Kind::HitMiss if index < 2 => rng.random_range(0.0..0.006),
        Kind::HitMiss => [0.0, 0.005, 0.015, 0.03][rng.random_range(0..4)],
        Kind::NoneMeets => rng.random_range(0.02..0.1),
        _ => 0.0,
    };
    let server = Server::with_highest(service, misses, highest_rps);
    Truth {
        server,
        highest_rps: if misses < SLOW {
            server.long_run_rps(highest_rps, family.spread)
        } else {
            0.0
        },
        terms: CostTerms {
            usd_per_instance_hour: 1.0,
            ..CostTerms::default()
        },
    }
}

/// With a demand at the peak, or for the highest rate.
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
        minimise: if peak_rps.is_some() {
            Minimise::UsdPerMonth
        } else {
            Minimise::Instances
        },
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
