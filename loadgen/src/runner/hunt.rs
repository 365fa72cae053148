//! Searches carried out: the highest rate under the plan's objective, for every target, mode and batch size.
//!
//! In: a runner whose points so far are evidence. Out: more steps, like any other in the journal, so that a run that
//! stopped in the middle of a search goes on where it was. All searches go on together, one rate each in turn and
//! repeat by repeat, so that a slow minute falls on every tier alike. Which rate comes next, [`crate::search`] decides.

use super::{Ledger, Runner, factors};
use crate::analysis::curves::same_but_rate;
use crate::analysis::percentile::samples_needed;
use crate::analysis::slo;
use crate::error::RunError;
use crate::plan::{Load, SearchPlan};
use crate::record::{Factors, Point, Run, SloOutcome};
use crate::report::Place;
use crate::schedule::{split_mix, step_seed};
use crate::search::{MAX_PROBES, Probe, Search};

/// One target in one mode and batch size.
struct Hunt {
    place: Place,
    load: Load,
    search: Search,
}

impl Runner<'_> {
    /// Searches until every search is at its end.
    pub(super) async fn search(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        let Some(plan) = &self.plan.search else { return Ok(()) };
        let hunts = self.hunts(plan);
        self.write(run, &ledger.points)?;
        for _ in 0..MAX_PROBES {
            let probes: Vec<(&Hunt, Probe)> = hunts
                .iter()
                .filter_map(|hunt| Some((hunt, hunt.search.next(&self.known(hunt, plan, run))?)))
                .collect();
            if probes.is_empty() {
                break;
            }
            self.probe(&probes, ledger).await?;
            self.write(run, &ledger.points)?;
            for (hunt, probe) in &probes {
                ledger.progress.say(&self.told(hunt, probe.rps, plan, run));
            }
        }
        Ok(())
    }

    /// A plan that asked for a highest rate and has none, nowhere, did not come to what it was made for.
    pub(super) fn met_somewhere(&self, run: &Run) -> Result<(), RunError> {
        let Some(plan) = &self.plan.search else { return Ok(()) };
        let mut reasons = Vec::new();
        for finding in &run.findings {
            match &finding.slo {
                Some(found) if found.outcome == SloOutcome::NeverMet => {
                    let why = found
                        .not_met
                        .as_ref()
                        .map(|next| format!(" at {}/s {}", next.rps, next.why));
                    let Factors { tier, cache, mode, .. } = &finding.factors;
                    reasons.push(format!("{tier} {cache} {mode}{}", why.unwrap_or_default()));
                }
                _ => return Ok(()),
            }
        }
        let what = format!(
            "`search.slo`: `{}` is met at no rate: {}; raise the limit, or lower `search.min_rate` (the lowest rate asked was \
             {}/s). The result is written all the same",
            plan.slo.objective,
            reasons.join("; "),
            plan.slo.lowest_rps
        );
        Err(RunError::Unsound(self.plan.refuse(what).to_string()))
    }

    fn hunts(&self, plan: &SearchPlan) -> Vec<Hunt> {
        let window_s = self.plan.window.as_secs_f64();
        let mut hunts = Vec::new();
        for target in 0..self.targets.len() {
            for (last, load) in last_of_each_curve(&self.plan.loads) {
                if !plan.modes.contains(&load.mode) {
                    continue;
                }
                let lowest = self.plan.loads.iter().filter(|other| same_curve(other, &load));
                hunts.push(Hunt {
                    place: (target, last),
                    load,
                    search: Search {
                        start_rps: lowest.map(|load| load.rate).fold(f64::INFINITY, f64::min),
                        lowest_rps: plan.slo.lowest_rps,
                        highest_rps: plan.slo.highest_rps,
                        resolution: plan.slo.resolution,
                        repeats: self.plan.repeats,
                        samples: samples_needed(plan.slo.objective.percentile.quantile()),
                        window_s,
                    },
                });
            }
        }
        hunts
    }

    async fn probe(&mut self, probes: &[(&Hunt, Probe)], ledger: &mut Ledger) -> Result<(), RunError> {
        ledger
            .progress
            .more(probes.iter().map(|(_, probe)| probe.repeats).sum());
        let most = probes.iter().map(|(_, probe)| probe.repeats).max().unwrap_or(0);
        for repeat in 0..most {
            for (hunt, probe) in probes.iter().filter(|(_, probe)| repeat < probe.repeats) {
                // From the rate itself: the same for every tier that comes to it, and for a run that is gone on with.
                let seed = step_seed(self.plan.seed, repeat, (split_mix(probe.rps.to_bits()) >> 32) as usize);
                self.step(ledger, hunt.place, hunt.load.at(probe.rps), (repeat, seed))
                    .await?;
            }
        }
        Ok(())
    }

    /// What is known of a curve, by rising rate.
    fn known(&self, hunt: &Hunt, plan: &SearchPlan, run: &Run) -> Vec<slo::Evidence> {
        let curve = self.factors(hunt);
        let of_curve = run.points.iter().filter(|point| same_but_rate(&point.factors, &curve));
        let mut known: Vec<slo::Evidence> = of_curve.filter_map(|point| slo::evidence(point, &plan.slo)).collect();
        known.sort_by(|a, b| a.rps.total_cmp(&b.rps));
        known
    }

    fn factors(&self, hunt: &Hunt) -> Factors {
        factors(self.plan, &self.targets[hunt.place.0], hunt.load, &self.plan.model)
    }

    /// One answer in one line.
    fn told(&self, hunt: &Hunt, rps: f64, plan: &SearchPlan, run: &Run) -> String {
        let factors = Factors {
            offered_rps: rps,
            ..self.factors(hunt)
        };
        let objective = &plan.slo.objective;
        let point: Option<&Point> = run.points.iter().find(|point| point.factors == factors);
        let answer = match point.and_then(|point| Some((point, slo::evidence(point, &plan.slo)?))) {
            Some((_, evidence)) if evidence.met => format!("{objective} holds"),
            Some((point, _)) => format!("{objective} does not hold: {}", slo::why_not(point, &plan.slo)),
            None => "too few samples to say".to_owned(),
        };
        format!("  {}: {answer}", super::name(&factors))
    }
}

/// The last load of each mode and batch size, and its place in the plan.
fn last_of_each_curve(loads: &[Load]) -> impl Iterator<Item = (usize, Load)> {
    let is_last = |&(index, load): &(usize, &Load)| !loads[index + 1..].iter().any(|later| same_curve(later, load));
    loads
        .iter()
        .enumerate()
        .filter(is_last)
        .map(|(index, load)| (index, *load))
        .collect::<Vec<_>>()
        .into_iter()
}

fn same_curve(a: &Load, b: &Load) -> bool {
    a.at(b.rate) == *b
}
