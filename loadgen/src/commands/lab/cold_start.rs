//! Cold starts. In: tiers with their servers. Out: how long each took until its first reply, and where that went. Tiers
//! and ways take turns, so that a slow minute falls on all of them.

use super::context::LabContext;
use super::data::Prepared;
use super::servers::Servers;
use crate::error::RunError;
use crate::page_cache;
use crate::plan::{ColdStartPlan, LabPlan, VariantPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::Target;
use std::time::Instant;
use tierlab_analysis::record::{ColdStart, ColdWay, PageCache};
use tierlab_protocol::metrics::MODEL_LOAD_SECONDS;

/// The stages of a load, in order, as the server names them.
const STAGES: [&str; 6] = ["read", "verify", "place", "session", "warmup", "features"];

/// Measures every cold start of the plan. `targets` are the lab's, by tier and cache state.
pub(super) async fn measure(
    context: &LabContext<'_>,
    plan: &ColdStartPlan,
    prepared: &Prepared,
    running: &Servers,
    targets: &[Target],
) -> Result<Vec<ColdStart>, RunError> {
    let variants = started(context.lab);
    let mut starts = Vec::new();
    for index in 0..plan.repeats {
        for &variant in &variants {
            for &way in &plan.ways {
                if context.interrupt.is_raised() {
                    return Err(RunError::InterruptedEarly);
                }
                if plan.page_cache == PageCache::Dropped {
                    let folder = running.folder(&variant.tier)?;
                    page_cache::drop_below(&folder).map_err(RunError::io(&folder))?;
                }
                let target = targets.iter().find(|target| target.label() == variant.label());
                let timed = match (way, target) {
                    (ColdWay::Load, Some(target)) => load(context, target).await?,
                    (ColdWay::Load, None) => continue,
                    (ColdWay::Restart, _) => restart(context, prepared, running, variant).await?,
                };
                eprintln!(
                    "cold start {}/{}: {} by {way}: ready after {:.0} ms, first reply {:.1} ms later",
                    index + 1,
                    plan.repeats,
                    variant.label(),
                    timed.ready_s * 1e3,
                    timed.first_reply_s * 1e3
                );
                starts.push(ColdStart {
                    tier: variant.label().to_owned(),
                    way,
                    index,
                    page_cache: plan.page_cache,
                    stages_s: timed.stages_s,
                    ready_s: timed.ready_s,
                    first_reply_s: timed.first_reply_s,
                });
            }
        }
    }
    Ok(starts)
}

/// What is started: every variant of the plan, or, without any, each tier in its first cache state.
fn started(lab: &LabPlan) -> Vec<&VariantPlan> {
    let mut started: Vec<&VariantPlan> = Vec::new();
    for variant in &lab.variants {
        if !started.iter().any(|other| other.label() == variant.label()) {
            started.push(variant);
        }
    }
    started
}

struct Timed {
    stages_s: Vec<(String, f64)>,
    ready_s: f64,
    first_reply_s: f64,
}

/// Unloads a model, loads it again, and asks for a first reply.
async fn load(context: &LabContext<'_>, target: &Target) -> Result<Timed, RunError> {
    let model = &context.plan.model;
    target.control.unload(model).await?;
    let began = Instant::now();
    let document = target.control.load(model).await?;
    let ready_s = began.elapsed().as_secs_f64();
    let first_reply_s = first_reply(context, target).await?;
    let mut stages_s: Vec<(String, f64)> = STAGES.map(|stage| (stage.to_owned(), 0.0)).into();
    for version in document.versions {
        let seconds = version.seconds;
        let all = [
            seconds.read,
            seconds.verify,
            seconds.place,
            seconds.session,
            seconds.warmup,
            seconds.features,
        ];
        for ((_, sum), more) in stages_s.iter_mut().zip(all) {
            *sum += more;
        }
    }
    Ok(Timed {
        stages_s,
        ready_s,
        first_reply_s,
    })
}

/// Starts a server, asks for a first reply, and ends it.
async fn restart(
    context: &LabContext<'_>,
    prepared: &Prepared,
    running: &Servers,
    variant: &VariantPlan,
) -> Result<Timed, RunError> {
    let began = Instant::now();
    let server = running.launch(context, prepared, (variant, 0), &format!("{}-restart", variant.label()))?;
    let ready_s = began.elapsed().as_secs_f64();
    let target = server.target(context, prepared, variant).await?;
    let first_reply_s = first_reply(context, &target).await?;
    let scrape = target.control.scrape().await?;
    let seconds = |stage: &str| scrape.sum(MODEL_LOAD_SECONDS, &[("model", &context.plan.model), ("stage", stage)]);
    let stages_s = STAGES.map(|stage| (stage.to_owned(), seconds(stage))).into();
    drop(server);
    Ok(Timed {
        stages_s,
        ready_s,
        first_reply_s,
    })
}

async fn first_reply(context: &LabContext<'_>, target: &Target) -> Result<f64, RunError> {
    let began = Instant::now();
    check_reply(context.plan, target, &context.plan.model).await?;
    Ok(began.elapsed().as_secs_f64())
}
