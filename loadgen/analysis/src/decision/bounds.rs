//! What the steps of one candidate say together: how far it certainly goes under the objectives, and how far it seems to.
//!
//! In: the candidate's steps, and the weather that all candidates show. Out: a place for each rate, and an interval of the highest rate.
//! Knows nothing of other candidates nor of costs.

use super::evidence::StepEvidence;
use super::sequence::{Counts, Evidence, Likelihood, Weather, mean_exp};
use crate::record::{Purpose, Question};

/// Rates closer than this share are one: a schedule may round.
const SAME: f64 = 0.002;
/// So many rates of a variant may be judged before the error that is allowed is split further.
const JUDGED: usize = 4;
/// Steps of rates up to this factor away speak for or against a rate too, on the side where they say no less.
const NEAR: f64 = 1.12;
/// So often in a row a rate is tried in vain before it is given up.
pub const TRIES: u32 = 3;
/// Fewer failed requests than this may be chance at any limit.
const FAILED: f64 = 2.0;
/// Where a place with too many failures lies, in log odds above the limit.
const REFUSED: f64 = 1.0;

/// The steps of one rate.
#[derive(Debug, Clone)]
pub struct Gathered {
    /// In requests per second.
    pub rps: f64,
    /// Steps that are evidence.
    pub usable: u32,
    /// Steps that something foreign slowed, which is evidence on one side only.
    slowed: u32,
    /// Steps in vain since the last that is.
    in_vain: u32,
    requests: f64,
    failed: f64,
    /// One for each objective.
    likelihoods: Vec<Likelihood>,
    /// The same with the slowed steps: as many requests were slow at least. All of them count or none, whatever they show.
    with_slowed: Vec<Likelihood>,
    /// Failed requests of each step.
    failures: Vec<Counts>,
}

/// Steps of a rate.
#[derive(Debug, Clone, Copy)]
struct Counted {
    usable: u32,
    in_vain: u32,
}

/// A rate, as it is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// In requests per second.
    pub rps: f64,
    /// Steps that are evidence.
    pub usable: u32,
    /// Steps in vain since the last that is.
    pub in_vain: u32,
    /// What they say.
    pub evidence: Evidence,
    /// Whether it certainly meets the objectives.
    pub met: bool,
    /// Whether it certainly does not.
    pub not_met: bool,
}

impl Place {
    /// Whether it looks as if it met the objectives.
    #[must_use]
    pub fn looks_met(&self) -> bool {
        self.usable > 0 && self.evidence.position < 0.0
    }

    /// Whether it could not be measured.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.in_vain >= TRIES
    }
}

/// How large evidence must be to be certain, in natural logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certain {
    /// That a rate meets the objectives.
    pub met: f64,
    /// That it does not.
    pub not_met: f64,
}

impl Certain {
    /// For an answer that is right with the given confidence, among so many candidates and rates.
    #[must_use]
    pub fn of(confidence: f64, candidates: usize, rates: usize, tests: usize) -> Self {
        let wrong = (1.0 - confidence).max(1e-12);
        let rates = rates.clamp(1, JUDGED) as f64;
        let others = candidates.saturating_sub(1).max(1) as f64;
        Self {
            met: (2.0 * others * rates / wrong).ln(),
            not_met: (2.0 * tests.max(1) as f64 * rates / wrong).ln(),
        }
    }
}

/// How far a candidate goes. Rates are those of one instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// By rising rate.
    pub places: Vec<Place>,
    /// The highest rate that certainly meets the objectives; 0 without one.
    pub lo: f64,
    /// The lowest that certainly does not; infinite without one.
    pub hi: f64,
    /// The likely highest rate that does; 0 where the lowest one looks as if it did not, absent without a step.
    pub estimate: Option<f64>,
}

/// The steps of one candidate by rate, rising; those of the given purposes.
#[must_use]
pub fn gather(question: &Question, steps: &[StepEvidence], rates: &[f64], of: fn(Purpose) -> bool) -> Vec<Gathered> {
    let mut gathered: Vec<Gathered> = Vec::new();
    for step in steps.iter().filter(|step| of(step.purpose)) {
        let near = |rate: f64| (step.rps / rate - 1.0).abs() <= SAME;
        let rps = rates.iter().copied().find(|rate| near(*rate)).unwrap_or(step.rps);
        let index = gathered.iter().position(|one| (one.rps / rps - 1.0).abs() <= SAME);
        let index = index.unwrap_or_else(|| {
            gathered.push(Gathered {
                rps,
                usable: 0,
                slowed: 0,
                in_vain: 0,
                requests: 0.0,
                failed: 0.0,
                likelihoods: vec![Likelihood::none(); question.objectives.len()],
                with_slowed: vec![Likelihood::none(); question.objectives.len()],
                failures: Vec::new(),
            });
            gathered.len() - 1
        });
        gathered[index].add(question, step);
    }
    gathered.sort_by(|a, b| a.rps.total_cmp(&b.rps));
    gathered
}

impl Gathered {
    fn add(&mut self, question: &Question, step: &StepEvidence) {
        let says_nothing = step.requests <= 0.0 || (step.usable.is_err() && !step.slowed);
        if says_nothing {
            self.in_vain += 1;
            return;
        }
        let counts = |slow: f64, saturated: bool| Counts {
            requests: step.requests,
            slow,
            dependence: step.dependence,
            saturated,
        };
        let add = |likelihoods: &mut [Likelihood]| {
            for ((likelihood, objective), slow) in likelihoods.iter_mut().zip(&question.objectives).zip(&step.slow) {
                likelihood.add(counts(*slow, step.saturated), 1.0 - objective.percentile.quantile());
            }
        };
        add(&mut self.with_slowed);
        if step.usable.is_err() {
            self.slowed += 1;
            self.in_vain += 1;
            return;
        }
        add(&mut self.likelihoods);
        self.in_vain = 0;
        self.usable += 1;
        self.requests += step.requests;
        self.failed += step.failed;
        self.failures.push(counts(step.failed, false));
    }

    /// What it says of the weather, but for failures, which have none.
    pub fn tell(&self, weather: &mut Weather) {
        if let Some(first) = self.likelihoods.first() {
            first.tell(weather);
        }
    }

    /// All objectives must be met; one that is not is enough.
    fn objectives(likelihoods: &[Likelihood], others: &[Weather]) -> Evidence {
        let mut together = Evidence {
            met: f64::INFINITY,
            not_met: f64::NEG_INFINITY,
            position: f64::NEG_INFINITY,
        };
        for one in likelihoods
            .iter()
            .zip(others)
            .map(|(likelihood, others)| likelihood.evidence(others))
        {
            together.met = together.met.min(one.met);
            together.not_met = together.not_met.max(one.not_met);
            together.position = together.position.max(one.position);
        }
        together
    }

    fn met(&self, others: &[Weather]) -> f64 {
        let each = self
            .likelihoods
            .iter()
            .zip(others)
            .map(|(likelihood, others)| likelihood.sides(others).0);
        each.fold(f64::INFINITY, f64::min)
    }

    fn not_met(&self, others: &[Weather]) -> f64 {
        let each = self
            .likelihoods
            .iter()
            .zip(others)
            .map(|(likelihood, others)| likelihood.sides(others).1);
        each.fold(f64::NEG_INFINITY, f64::max)
    }

    fn others(&self, weather: &Weather) -> Vec<Weather> {
        let own = self
            .likelihoods
            .first()
            .map_or(*weather, |first| first.without(weather));
        vec![own; self.likelihoods.len()]
    }

    fn join(&mut self, other: &Self) {
        for (likelihood, other) in self.likelihoods.iter_mut().zip(&other.likelihoods) {
            likelihood.join(other);
        }
    }

    /// Steps that count: slowed ones alone do where they look as if the objectives were met all the same.
    fn counted(&self, evidence: &Evidence) -> Counted {
        if self.usable == 0 && self.slowed > 0 && evidence.position < 0.0 {
            return Counted {
                usable: self.slowed,
                in_vain: 0,
            };
        }
        Counted {
            usable: self.usable,
            in_vain: self.in_vain,
        }
    }

    /// How many of its steps count, and how many were in vain since the last that does.
    #[must_use]
    pub fn steps(&self, weather: &Weather, error_share: f64) -> (u32, u32) {
        let counted = self.counted(&self.evidence(weather, error_share));
        (counted.usable, counted.in_vain)
    }

    /// What its own steps say. Too many failures break the objective too; that there are fewer than a share of a thousandth
    /// cannot be shown in short steps, and so is only asked to look like it.
    #[must_use]
    pub fn evidence(&self, weather: &Weather, error_share: f64) -> Evidence {
        let others = self.others(weather);
        let mut together = Self::objectives(&self.likelihoods, &others);
        if self.slowed > 0 {
            let with_slowed = Self::objectives(&self.with_slowed, &others);
            together.met = mean_exp(&[together.met, with_slowed.met]);
            if self.usable == 0 {
                together.position = with_slowed.position;
            }
        }
        if self.failed >= FAILED && self.failed > error_share * self.requests {
            let mut failures = Likelihood::none();
            for counts in &self.failures {
                failures.add(*counts, error_share.clamp(1e-6, 0.5));
            }
            together.met = f64::NEG_INFINITY;
            together.not_met = together.not_met.max(failures.evidence(&Weather::default()).not_met);
            together.position = together.position.max(REFUSED);
        }
        together
    }
}

/// What the steps of a rate and of its neighbours say together. A higher rate has no fewer slow requests: what speaks for it speaks
/// for this one, and likewise downwards against it. How far neighbours are asked is mixed over, so that it needs no choice.
fn together(gathered: &[Gathered], index: usize, weather: &Weather, error_share: f64) -> Evidence {
    let own = &gathered[index];
    let mut evidence = own.evidence(weather, error_share);
    let others = own.others(weather);
    let near = |one: &&Gathered| one.rps <= own.rps * NEAR && own.rps <= one.rps * NEAR && one.usable > 0;
    let mixed = |neighbours: &mut dyn Iterator<Item = &Gathered>, alone: f64, of: fn(&Gathered, &[Weather]) -> f64| {
        let (mut all, mut windows) = (own.clone(), vec![alone]);
        for one in neighbours {
            all.join(one);
            windows.push(of(&all, &others));
        }
        mean_exp(&windows)
    };
    if evidence.met.is_finite() {
        evidence.met = mixed(
            &mut gathered[index + 1..].iter().filter(near),
            evidence.met,
            Gathered::met,
        );
    }
    evidence.not_met = mixed(
        &mut gathered[..index].iter().rev().filter(near),
        evidence.not_met,
        Gathered::not_met,
    );
    evidence
}

impl Bounds {
    /// From the steps by rate.
    #[must_use]
    pub fn of(gathered: &[Gathered], weather: &Weather, question: &Question, certain: Certain) -> Self {
        let judged = gathered.iter().filter(|one| one.usable > 1).count();
        let further = (judged as f64 / JUDGED as f64).max(1.0).ln();
        let places: Vec<Place> = gathered
            .iter()
            .enumerate()
            .map(|(index, one)| {
                let evidence = together(gathered, index, weather, question.error_share);
                let Counted { usable, in_vain } = one.counted(&evidence);
                Place {
                    rps: one.rps,
                    usable,
                    in_vain,
                    evidence,
                    met: usable > 0 && evidence.met >= certain.met + further,
                    not_met: one.usable > 0 && evidence.not_met >= certain.not_met + further,
                }
            })
            .collect();
        let (lo, hi) = interval(&places);
        let estimate = estimate(&places).map(|rps| rps.clamp(lo, hi.max(lo)));
        Self {
            places,
            lo,
            hi,
            estimate,
        }
    }

    /// What was found at a rate, where it was measured.
    #[must_use]
    pub fn at(&self, rps: f64) -> Option<&Place> {
        self.places.iter().find(|place| (place.rps / rps - 1.0).abs() <= SAME)
    }
}

/// Where rates contradict each other, the interval reaches over all that they say.
fn interval(places: &[Place]) -> (f64, f64) {
    let met = || places.iter().filter(|place| place.met).map(|place| place.rps);
    let not_met = || places.iter().filter(|place| place.not_met).map(|place| place.rps);
    let (most, least) = (met().fold(0.0, f64::max), not_met().fold(f64::INFINITY, f64::min));
    (
        met().filter(|rps| *rps < least).fold(0.0, f64::max),
        not_met().filter(|rps| *rps > most).fold(f64::INFINITY, f64::min),
    )
}

/// Where the log odds, made to rise with the rate (pool adjacent violators, each rate by its steps), cross the limit; between two
/// rates by a line over the rate's logarithm.
fn estimate(places: &[Place]) -> Option<f64> {
    let usable: Vec<&Place> = places.iter().filter(|place| place.usable > 0).collect();
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for place in &usable {
        pools.push((place.evidence.position, f64::from(place.usable), 1));
        while let [.., (below, light, few), (above, heavy, many)] = pools[..] {
            if below <= above {
                break;
            }
            let mean = (below * light + above * heavy) / (light + heavy);
            pools.truncate(pools.len() - 2);
            pools.push((mean, light + heavy, few + many));
        }
    }
    let risen: Vec<f64> = pools
        .iter()
        .flat_map(|(mean, _, count)| std::iter::repeat_n(*mean, *count))
        .collect();
    let above = risen.iter().position(|position| *position >= 0.0);
    match above {
        None => usable.last().map(|place| place.rps),
        Some(0) => Some(0.0),
        Some(above) => {
            let (from, to) = (risen[above - 1], risen[above]);
            let share = -from / (to - from).max(1e-9);
            let (low, high) = (usable[above - 1].rps.ln(), usable[above].rps.ln());
            Some((low + share.clamp(0.0, 1.0) * (high - low)).exp())
        }
    }
}
