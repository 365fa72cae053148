//! Highest rates that a lab prints, compared with the true ones. Independent of who is best.

use super::designs::candidates;
use super::families;
use super::servers::{Noise, Server, Service};
use crate::study::{rng, seeds};
use crate::table::{Row, cell, fixed};
use tierlab_analysis::decision::highest_rates::{RateEstimate, highest_rates};
use tierlab_analysis::decision::lab::Lab;
use tierlab_analysis::decision::{Next, Time, next};
use tierlab_analysis::record::{CostTerms, Minimise, Question};

/// Text above the table.
pub(super) const ABOUT: &str = "# Highest rates that labs print

Two variants per lab, on servers whose true highest rates are known; the printed rates are shares of them. `covered`: intervals that
contain the truth; `above` and `below`: intervals beside it; `closed`: intervals with both ends; `wide`: upper end more than 1.4 times
the lower.
";

/// True highest rate of the first variant, in requests per second.
const TRUTH_RPS: f64 = 300.0;
/// Duration of a lab and of one of its steps, in seconds.
const BUDGET_S: f64 = 100.0;
const STEP_S: f64 = 2.0;
/// Widest interval that is of use, upper end over lower.
const WIDE_RATIO: f64 = 1.4;

/// Simulated server and the demand of its lab.
#[derive(Debug, Clone, Copy)]
pub(super) struct RateSetting {
    name: &'static str,
    service: Service,
    /// Share of requests that miss.
    misses: f64,
    /// Relative spread of the repeats.
    spread: f64,
    /// True highest rate of the second variant, as a share of the first one's.
    second: f64,
    /// Peak demand in requests per second; without one, dollars per inference are compared.
    demand: Option<f64>,
}

const fn setting(name: &'static str, service: Service, shares: [f64; 3], demand: Option<f64>) -> RateSetting {
    let [misses, spread, second] = shares;
    RateSetting {
        name,
        service,
        misses,
        spread,
        second,
        demand,
    }
}

/// Settings of the table: misses, spread and the second variant; demand.
pub(super) const SETTINGS: [RateSetting; 10] = {
    use Service::{Deterministic, Exponential, Slowing};
    const SAME: [f64; 3] = [0.0, 0.0, 1.0];
    let third_slower = "M/M/1, demand 250/s, second a third slower";
    [
        setting("M/M/1", Exponential, SAME, None),
        setting("M/D/1", Deterministic, SAME, None),
        setting("lognormal without a queue", Slowing, SAME, None),
        setting(
            "bimodal: M/M/1 with 0.5 % of slow misses",
            Exponential,
            [0.005, 0.0, 1.0],
            None,
        ),
        setting("M/M/1, repeats differ by 5 %", Exponential, [0.0, 0.05, 1.0], None),
        setting("M/M/1, demand 100/s", Exponential, SAME, Some(100.0)),
        setting("M/M/1, demand 250/s", Exponential, SAME, Some(250.0)),
        setting(third_slower, Exponential, [0.0, 0.0, 2.0 / 3.0], Some(250.0)),
        setting("M/D/1, demand 250/s", Deterministic, SAME, Some(250.0)),
        setting("lognormal without a queue, demand 250/s", Slowing, SAME, Some(250.0)),
    ]
};

/// Highest rates printed by one lab, as shares of the true ones: value, lower and upper end.
fn printed(setting: &RateSetting, seed: u64) -> Vec<[f64; 3]> {
    let mut rng = rng(seed);
    let highest = [TRUTH_RPS, setting.second * TRUTH_RPS];
    let servers = highest.map(|rps| Server::with_highest(setting.service, setting.misses, rps));
    let by_demand = families::question(setting.demand);
    let question = Question {
        minimise: setting.demand.map_or(Minimise::UsdPer10k, |_| by_demand.minimise),
        budget_s: BUDGET_S,
        highest_rps: 5_000.0,
        least_instances: 1,
        ..by_demand
    };
    let terms = CostTerms {
        usd_per_instance_hour: 1.0,
        ..CostTerms::default()
    };
    let mut candidates = candidates([terms.clone(), terms]);
    let mut noise = Noise {
        spread: setting.spread,
        ..Noise::default()
    };
    let mut time = Time {
        spent_s: 0.0,
        step_s: STEP_S,
    };
    while let Next::Block { probes, .. } = next(&question, &candidates, &time) {
        for probe in probes {
            let step = servers[probe.candidate].step(probe.rps, probe.purpose, &mut noise, &mut rng);
            candidates[probe.candidate].steps.push(step);
            time.spent_s += STEP_S;
        }
    }
    let shares = |(index, reach): (usize, RateEstimate)| {
        let truth = servers[index].long_run_rps(highest[index], setting.spread);
        [reach.estimate.unwrap_or(0.0), reach.lo, reach.hi].map(|rps| rps / truth)
    };
    let reaches = highest_rates(&Lab::new(&question, &candidates));
    reaches.into_iter().enumerate().map(shares).collect()
}

fn width([_, lo, hi]: &[f64; 3]) -> f64 {
    if *lo > 0.0 { hi / lo } else { f64::INFINITY }
}

/// Simulates the labs of a setting.
pub(super) fn row(setting: RateSetting, labs: usize, seed: u64) -> Row {
    let all: Vec<[f64; 3]> = seeds(labs, seed).flat_map(|seed| printed(&setting, seed)).collect();
    let count = all.len() as f64;
    let share = |of: fn(&[f64; 3]) -> bool| all.iter().filter(|interval| of(interval)).count() as f64 / count;
    let median = |of: fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let total_deviation: f64 = all.iter().map(|[value, ..]| value - 1.0).sum();
    Row {
        holds: true,
        cells: vec![
            cell("server", setting.name),
            cell("intervals", all.len()),
            fixed("covered", 4, share(|[_, lo, hi]| *lo <= 1.0 && *hi >= 1.0)),
            fixed("above", 4, share(|[_, lo, _]| *lo > 1.0)),
            fixed("below", 4, share(|[_, _, hi]| *hi < 1.0)),
            fixed("closed", 4, share(|interval| width(interval).is_finite())),
            fixed("wide", 4, share(|interval| width(interval) > WIDE_RATIO)),
            fixed("median_width", 3, median(width)),
            fixed("mean_off", 4, total_deviation / count),
            fixed("median_off", 4, median(|[value, ..]| value - 1.0)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A much smaller version of the kept table.
    #[test]
    fn misses_at_half_of_the_limit_leave_the_highest_rate_known() {
        let setting = SETTINGS.into_iter().find(|setting| setting.misses > 0.0).unwrap();
        let all: Vec<[f64; 3]> = seeds(8, 5).flat_map(|seed| printed(&setting, seed)).collect();
        let count = |of: fn(&[f64; 3]) -> bool| all.iter().filter(|interval| of(interval)).count();
        assert!(count(|interval| width(interval).is_finite()) >= 13, "{all:?}");
        assert!(count(|[_, lo, hi]| *lo <= 1.0 && *hi >= 1.0) >= 12, "{all:?}");
    }
}
