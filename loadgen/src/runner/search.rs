//! Searches for the highest rate under the plan's objective, for every target, mode and batch size.
//!
//! In: a runner whose points so far are evidence. Out: more steps, like any other in the journal, so that a run stopped
//! during a search resumes there. All searches run together, one rate each in turn and repeat by repeat, so that a slow
//! minute affects every tier alike. [`tierlab_analysis::curves::search`] chooses the next rate.

use super::ledger::{Attempt, Ledger};
use super::naming::{factors, name};
use super::step::Runner;
use crate::error::RunError;
use crate::plan::{Plan, SearchPlan};
use crate::store::journal::Position;
use std::time::Instant;
use tierlab_analysis::curves::search::{MAX_PROBES, MAX_TRIES, RateProbe, Search};
use tierlab_analysis::curves::{same_but_rate, slo};
use tierlab_analysis::record::{Factors, MeetsObjective, Point, Run, SloOutcome};
use tierlab_instrument::units::wait;
use tierlab_load::schedule::{Load, split_mix};

/// One target in one mode and batch size.
struct CurveSearch {
    position: Position,
    load: Load,
    search: Search,
}

/// Fails if the plan searched for a highest rate and found none.
///
/// # Errors
/// No curve has a rate that is known to meet the objective; the run is complete and written.
pub fn check_met_rate(plan: &Plan, run: &Run) -> Result<(), RunError> {
    let Some(search) = &plan.search else { return Ok(()) };
    let mut reasons = Vec::new();
    let is_searched = |of: &Factors| of.mix.is_none() && search.modes.contains(&of.mode);
    for finding in run.findings.iter().filter(|finding| is_searched(&finding.factors)) {
        match &finding.slo {
            Some(found) if matches!(found.outcome, SloOutcome::NeverMet | SloOutcome::Unknown) => {
                let next = found.not_met.iter().chain(&found.unknown).next();
                let why = next.map_or_else(String::new, |next| format!(" at {}/s {}", next.rps, next.why));
                let Factors { tier, cache, mode, .. } = &finding.factors;
                reasons.push(format!("{tier} {cache} {mode}{why}"));
            }
            _ => return Ok(()),
        }
    }
    reasons.extend(run.search_stopped.iter().map(|why| format!("the search ended: {why}")));
    let (objective, reasons, lowest) = (search.slo.objective, reasons.join("; "), search.slo.lowest_rps);
    let problem = format!(
        "no rate is known to meet `{objective}`: {reasons}; raise the limit, or lower `search.min_rate`, which is \
         {lowest}/s. The result is written anyway"
    );
    Err(RunError::Failed(plan.refuse("search.slo", problem).to_string()))
}

impl Runner<'_> {
    /// Runs all searches to their end.
    pub(super) async fn search(&mut self, run: &mut Run, ledger: &mut Ledger) -> Result<(), RunError> {
        let Some(plan) = &self.plan.search else { return Ok(()) };
        let curves = self.searches(plan);
        self.write(run, &ledger.points)?;
        run.search_stopped = None;
        let deadline = Instant::now() + plan.limit;
        ledger.progress.begin_limit(deadline);
        for round in 0..=MAX_PROBES {
            let mut probes: Vec<(&CurveSearch, RateProbe, u32)> = Vec::new();
            for curve in &curves {
                let evidence = self.evidence(curve, plan, run);
                if let Some(probe) = curve.search.next(&evidence) {
                    // Further attempts follow those without an answer; a new rate has no attempts.
                    let is_open =
                        |rate: &&slo::RateEvidence| rate.rps == probe.rps && rate.answer == MeetsObjective::Unknown;
                    probes.push((curve, probe, evidence.iter().find(is_open).map_or(0, |rate| rate.tries)));
                }
            }
            if probes.is_empty() {
                break;
            }
            if round == MAX_PROBES {
                run.search_stopped = Some(format!("it had measured {MAX_PROBES} rates"));
                break;
            }
            let in_time = self.probe(&probes, deadline, ledger).await?;
            self.write(run, &ledger.points)?;
            for (curve, probe, _) in &probes {
                ledger.progress.print(&self.describe(curve, probe.rps, plan, run));
            }
            if !in_time {
                let limit = wait(plan.limit);
                run.search_stopped = Some(format!("its time limit of {limit} was over (`search.limit_s`)"));
                break;
            }
        }
        ledger.progress.end_limit();
        if let Some(why) = &run.search_stopped {
            let line = format!("the search stopped: {why}; rates not measured stay unknown");
            ledger.progress.print(&line);
            self.write(run, &ledger.points)?;
        }
        Ok(())
    }

    fn searches(&self, plan: &SearchPlan) -> Vec<CurveSearch> {
        let window_s = self.plan.window.as_secs_f64();
        let mut curves = Vec::new();
        for target in 0..self.targets.len() {
            for (last, load) in last_of_each_curve(&self.plan.loads) {
                if !plan.modes.contains(&load.mode) {
                    continue;
                }
                let lowest = self.plan.loads.iter().filter(|other| same_curve(other, &load));
                curves.push(CurveSearch {
                    position: (target, last),
                    load,
                    search: Search {
                        start_rps: lowest.map(|load| load.rate).fold(f64::INFINITY, f64::min),
                        lowest_rps: plan.slo.lowest_rps,
                        highest_rps: plan.slo.highest_rps,
                        resolution: plan.slo.resolution,
                        repeats: self.plan.repeats,
                        samples: plan.slo.objective.samples_needed(),
                        window_s,
                    },
                });
            }
        }
        curves
    }

    /// Measures each rate, at its next attempt; returns `false` if the time was over before all were measured.
    async fn probe(
        &mut self,
        probes: &[(&CurveSearch, RateProbe, u32)],
        deadline: Instant,
        ledger: &mut Ledger,
    ) -> Result<bool, RunError> {
        let repeats = || probes.iter().map(|(_, probe, _)| probe.repeats);
        ledger.progress.add_steps(repeats().sum());
        let most = repeats().max().unwrap_or(0);
        let step = self.plan.warmup + self.plan.window;
        for index in 0..most {
            for &(curve, probe, attempt) in probes.iter().filter(|(_, probe, _)| index < probe.repeats) {
                if Instant::now() + step > deadline {
                    return Ok(false);
                }
                // Derived from the rate, and so the same for every tier that reaches it, and for a resumed run.
                let rate_seed = (split_mix(probe.rps.to_bits()) >> 32) as usize;
                let attempt = Attempt::new(self.plan, index, attempt, rate_seed);
                self.step(ledger, curve.position, curve.load.at(probe.rps), attempt)
                    .await?;
            }
        }
        Ok(true)
    }

    /// Evidence about a curve, by rising rate.
    fn evidence(&self, curve: &CurveSearch, plan: &SearchPlan, run: &Run) -> Vec<slo::RateEvidence> {
        let factors = self.factors(curve);
        let of_curve = |point: &&Point| same_but_rate(&point.factors, &factors);
        let points = run.points.iter().filter(of_curve);
        let mut evidence: Vec<slo::RateEvidence> = points.filter_map(|point| slo::evidence(point, &plan.slo)).collect();
        evidence.sort_by(|a, b| a.rps.total_cmp(&b.rps));
        evidence
    }

    fn factors(&self, curve: &CurveSearch) -> Factors {
        factors(self.plan, &self.targets[curve.position.0], curve.load, &self.plan.model)
    }

    /// Describes an answer in a line.
    fn describe(&self, curve: &CurveSearch, rps: f64, plan: &SearchPlan, run: &Run) -> String {
        let factors = Factors {
            offered_rps: rps,
            ..self.factors(curve)
        };
        let objective = &plan.slo.objective;
        let point: Option<&Point> = run.points.iter().find(|point| point.factors == factors);
        let answer = match point.and_then(|point| Some((point, slo::evidence(point, &plan.slo)?))) {
            Some((_, evidence)) if evidence.is_met() => format!("{objective} holds"),
            Some((point, evidence)) if evidence.answer == MeetsObjective::Unknown => {
                let tries = format!("try {} of {MAX_TRIES}", evidence.tries);
                format!("{objective} is undecided ({tries}): {}", slo::why_not(point, &plan.slo))
            }
            Some((point, _)) => format!("{objective} does not hold: {}", slo::why_not(point, &plan.slo)),
            None => "not measured to the end".to_owned(),
        };
        format!("  {}: {answer}", name(&factors))
    }
}

/// Returns the last load of each mode and batch size, with its position in the plan.
fn last_of_each_curve(loads: &[Load]) -> Vec<(usize, Load)> {
    let is_last = |&(index, load): &(usize, &Load)| !loads[index + 1..].iter().any(|later| same_curve(later, load));
    let last = loads.iter().enumerate().filter(is_last);
    last.map(|(index, load)| (index, *load)).collect()
}

fn same_curve(a: &Load, b: &Load) -> bool {
    a.at(b.rate) == *b
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_search_that_found_nothing_says_why_it_stopped() {
        let text = "name = \"t\"\nmodel = \"m\"\nseed = 1\nwarmup_s = 0.5\nstep_s = 2.0\ndrain_s = 1.0\n\
                    [[load]]\nmode = \"realtime\"\nrates = [50]\n[search]\nslo = \"p99 < 20 ms\"\nonly = true\n";
        let plan = Plan::parse(Path::new("t.toml"), text).unwrap();
        let mut run = Run {
            search_stopped: Some("its time limit of 1 s was over (`search.limit_s`)".to_owned()),
            ..Run::default()
        };
        // Other requests that meet the objective are not what was searched.
        let mut factors = serde_json::json!({
            "tier": "t", "cache": "c", "cache_share": 0.0, "model": "m", "mode": "realtime", "batch_size": 1, "offered_rps": 0.0,
            "arrivals": "poisson", "keys": "uniform", "mix": "1 realtime×1, 1 batch×4"
        });
        let mut add = |factors: &serde_json::Value| {
            let slo =
                serde_json::json!({"outcome": "found", "highest_rps": null, "not_met": null, "contradicting_rps": []});
            let finding =
                serde_json::json!({"factors": factors, "highest_valid_rps": 9.0, "knee_rps": null, "slo": slo});
            run.findings.push(serde_json::from_value(finding).unwrap());
            check_met_rate(&plan, &run).map_err(|error| error.to_string())
        };
        let error = add(&factors).unwrap_err();
        assert!(
            error.contains(": the search ended: its time limit of 1 s was over"),
            "{error}"
        );
        factors["mix"] = serde_json::Value::Null;
        add(&factors).unwrap();
    }
}
