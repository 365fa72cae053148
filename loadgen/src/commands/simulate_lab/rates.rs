//! Highest rates that a lab prints, compared with the true ones. In: servers of known highest rate, a number of labs, a seed. Out: a table.
//! Independent of who is best.

use super::families;
use super::servers::{Server, Service, Weather};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fmt::Write as _;
use tierlab_analysis::decision::reach::reaches;
use tierlab_analysis::decision::standing::Lab;
use tierlab_analysis::decision::{Candidate, Next, Time, next};
use tierlab_analysis::record::{CostTerms, Minimise, Question};
use tierlab_load::schedule::split_mix;

/// The true highest rate of both variants, in requests per second.
const TRUTH_RPS: f64 = 300.0;
/// Seconds of a lab, and of one of its steps.
const BUDGET_S: f64 = 100.0;
const STEP_S: f64 = 2.0;
/// The widest interval that says something, upper end over lower.
const WIDE: f64 = 1.4;

/// A simulated server and the demand that its lab is asked about.
struct Setting {
    name: &'static str,
    service: Service,
    /// Share of requests that miss.
    misses: f64,
    /// Relative spread of the repeats.
    spread: f64,
    /// Peak demand in requests per second; without one, dollars per inference are compared.
    demand: Option<f64>,
}

const fn setting(name: &'static str, service: Service, demand: Option<f64>) -> Setting {
    Setting {
        name,
        service,
        misses: 0.0,
        spread: 0.0,
        demand,
    }
}

const SETTINGS: [Setting; 9] = [
    setting("M/M/1", Service::Exponential, None),
    setting("M/D/1", Service::Deterministic, None),
    setting("lognormal without a queue", Service::Slowing, None),
    Setting {
        misses: 0.005,
        ..setting("bimodal: M/M/1 with 0.5 % of slow misses", Service::Exponential, None)
    },
    Setting {
        spread: 0.05,
        ..setting("M/M/1, repeats differ by 5 %", Service::Exponential, None)
    },
    setting("M/M/1, demand 100/s", Service::Exponential, Some(100.0)),
    setting("M/M/1, demand 250/s", Service::Exponential, Some(250.0)),
    setting("M/D/1, demand 250/s", Service::Deterministic, Some(250.0)),
    setting("lognormal without a queue, demand 250/s", Service::Slowing, Some(250.0)),
];

/// One printed highest rate, as shares of the true one.
#[derive(Debug, Clone, Copy)]
struct Printed {
    value: f64,
    lo: f64,
    hi: f64,
}

/// Highest rates printed by one lab of two like variants.
fn printed(setting: &Setting, seed: u64) -> Vec<Printed> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let server = Server::with_highest(setting.service, setting.misses, TRUTH_RPS);
    let truth = server.long_run_rps(TRUTH_RPS, setting.spread);
    let by_demand = families::question(setting.demand);
    let question = Question {
        minimise: if setting.demand.is_some() {
            by_demand.minimise
        } else {
            Minimise::UsdPer10k
        },
        budget_s: BUDGET_S,
        highest_rps: 5_000.0,
        least_instances: 1,
        ..by_demand
    };
    let variant = |index: u32| Candidate {
        variant: format!("v{index}"),
        terms: Some(CostTerms {
            usd_per_instance_hour: 1.0,
            ..CostTerms::default()
        }),
        steps: Vec::new(),
    };
    let mut candidates = [variant(0), variant(1)];
    let mut weather = Weather {
        spread: setting.spread,
        ..Weather::default()
    };
    let mut spent_s = 0.0;
    while let Next::Block { probes, .. } = next(
        &question,
        &candidates,
        &Time {
            spent_s,
            step_s: STEP_S,
        },
    ) {
        for probe in probes {
            let step = server.step(probe.rps, probe.purpose, &mut weather, &mut rng);
            candidates[probe.candidate].steps.push(step);
            spent_s += STEP_S;
        }
    }
    let lab = Lab::new(&question, &candidates);
    let shown = reaches(&lab).into_iter().map(|reach| Printed {
        value: reach.estimate.unwrap_or(0.0) / truth,
        lo: reach.lo / truth,
        hi: reach.hi / truth,
    });
    shown.collect()
}

/// The table of `labs` labs a row, as CSV.
pub(super) fn csv(labs: usize, seed: u64) -> String {
    let mut text = String::from("server,intervals,covered,above,below,closed,wide,median_width,mean_off,median_off\n");
    for setting in &SETTINGS {
        let name = setting.name;
        let seeds = (0..labs as u64).map(|lab| split_mix(seed.wrapping_add(lab)));
        let all: Vec<Printed> = seeds.flat_map(|seed| printed(setting, seed)).collect();
        let share = |of: &dyn Fn(&Printed) -> bool| all.iter().filter(|one| of(one)).count() as f64 / all.len() as f64;
        let width = |one: &Printed| if one.lo > 0.0 { one.hi / one.lo } else { f64::INFINITY };
        let median = |of: &dyn Fn(&Printed) -> f64| {
            let mut values: Vec<f64> = all.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let _ = writeln!(
            text,
            "\"{name}\",{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.3},{:.4},{:.4}",
            all.len(),
            share(&|one| one.lo <= 1.0 && one.hi >= 1.0),
            share(&|one| one.lo > 1.0),
            share(&|one| one.hi < 1.0),
            share(&|one| width(one).is_finite()),
            share(&|one| width(one) > WIDE),
            median(&width),
            all.iter().map(|one| one.value - 1.0).sum::<f64>() / all.len() as f64,
            median(&|one| one.value - 1.0),
        );
    }
    text
}
