//! Checks of the instrument before a run: the self-check, its certificate, and the noise floor.
//!
//! In: a plan. Out: an [`Instrument`]. Independent of the measured servers.

use super::certificate::{self, CertificateStore};
use super::checks;
use super::null_endpoint::NullEndpoint;
use crate::error::RunError;
use crate::plan::{JourneyPlan, Plan};
use crate::runner::recorder::record;
use crate::runner::target::{Content, Target};
use crate::runner::{Instrument, Requests, factors, measure, question_load};
use crate::store::histograms::hdr_file;
use crate::store::resume::StoppedRun;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Mode, Percentile, Point, Repeat};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::keys::{KeyDistribution, Population};
use tierlab_load::null_endpoint;
use tierlab_load::schedule::step_seed;

/// Runs self-check and noise floor if the plan requires them; a resumed run uses its earlier ones. A self-check is
/// stored for later runs too.
///
/// # Errors
/// The null endpoint could not be started or measured, or the run was interrupted.
pub async fn prove(
    plan: &Plan,
    earlier: Option<&StoppedRun>,
    certificates: &CertificateStore,
    interrupt: &Interrupt,
) -> Result<Instrument, RunError> {
    if let Some(StoppedRun { run, .. }) = earlier {
        return Ok(Instrument {
            selfcheck: run.selfcheck.clone(),
            certificate: certificates.assess(),
            noise_floor: run.noise_floor.clone(),
        });
    }
    let (mut checks, mut fresh) = (Vec::new(), None);
    if plan.selfcheck {
        eprintln!("self-check: about {} s on a null endpoint", checks::SECONDS);
        checks = checks::checks(interrupt).await?;
        for check in checks.iter().filter(|check| !check.passed) {
            eprintln!(
                "self-check: {} should be {}, is {}: figures of this run carry that error",
                check.name, check.expected, check.measured
            );
        }
        let latest = certificate::new_certificate(checks.clone())?;
        if let Err(error) = certificates.store(&latest) {
            eprintln!("self-check: its certificate is not stored for later runs: {error}");
        }
        fresh = Some(certificate::judge_now(latest));
    }
    let mut floor = None;
    if plan.noise_floor {
        eprintln!("noise floor: the plan's highest real-time load on a null endpoint");
        floor = Some(noise_floor(plan, interrupt).await?);
    }
    Ok(Instrument {
        selfcheck: checks,
        certificate: fresh.unwrap_or_else(|| certificates.assess()),
        noise_floor: floor,
    })
}

/// Measures the plan's highest load on a null endpoint, in real-time mode if the plan has it.
async fn noise_floor(plan: &Plan, interrupt: &Interrupt) -> Result<Point, RunError> {
    let mut loads = plan.loads.clone();
    for mix in &plan.mixes {
        for &rate in &mix.rates {
            loads.extend(mix.parts.iter().map(|part| mix.load(part, rate)));
        }
    }
    loads.extend(plan.question.iter().map(question_load));
    let journeys = plan.journeys.iter().flat_map(|journey| &journey.rates);
    loads.extend(journeys.map(|&rate| JourneyPlan::load(rate)));
    let highest = |mode| {
        let of_mode = loads.iter().filter(|load| load.mode == mode);
        of_mode.max_by(|a, b| a.rate.total_cmp(&b.rate))
    };
    let Some(&load) = highest(Mode::Realtime).or_else(|| highest(Mode::Batch)) else {
        let problem = "it needs a rate: add a `[[load]]` with `rates`, or remove it";
        return Err(plan.refuse("noise_floor", problem).into());
    };
    let endpoint = NullEndpoint::start(None, interrupt)?;
    let keys = match &plan.keys {
        // The null endpoint has its own entities instead of those of a file.
        KeyDistribution::File { .. } => KeyDistribution::Uniform,
        keys => keys.clone(),
    };
    let entities = Population::new(0, null_endpoint::ROWS, keys, plan.seed);
    let outputs = BTreeMap::from([(plan.model.clone(), null_endpoint::outputs())]);
    let target = Target {
        tier: "null".into(),
        cache: "off".into(),
        ..Target::new(endpoint.control()?, Content::Joined(entities), outputs)
    };
    let mut point = Point {
        factors: factors(plan, &target, load, &plan.model),
        repeats: Vec::new(),
        summary: None,
    };
    // Enough repeats for the samples of a p99, at most those of the plan.
    let per_repeat = (load.rate * plan.window.as_secs_f64()).max(1.0);
    let repeats = ((Percentile::P99.samples_needed() as f64 / per_repeat).ceil() as u32).clamp(1, plan.repeats);
    for index in 0..repeats {
        let seed = step_seed(plan.seed, index, u32::MAX as usize);
        let requests = Requests {
            plan,
            target: &target,
            load,
            model: &plan.model,
            seed,
        };
        let Some((part, reports)) = Box::pin(measure(&requests, interrupt)).await? else {
            return Err(RunError::InterruptedEarly);
        };
        point.repeats.push(Repeat {
            index,
            seed,
            hdr_file: hdr_file(&point.factors, index),
            ..record(&part.finished, &part.schedule, reports.server)
        });
    }
    tierlab_analysis::summarise(std::slice::from_mut(&mut point), &plan.limits, None);
    Ok(point)
}
