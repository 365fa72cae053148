//! Cold starts. In: tiers with their servers. Out: the times to their first replies, by stage. Tiers and ways take
//! turns, so that a slow minute falls on all of them.

use super::context::{LabContext, Purpose, Replica};
use super::servers::{Launched, Targets};
use super::stage;
use crate::error::RunError;
use crate::plan::{ColdStartPlan, LabPlan, VariantPlan};
use crate::runner::check_reply::check_reply;
use crate::runner::target::Target;
use futures::future::try_join_all;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tierlab_analysis::record::{ColdStart, ColdWay, PageCache, StageFill};
use tierlab_instrument::host::drop_cached_below;
use tierlab_protocol::metadata::LoadDocument;
use tierlab_protocol::metrics::{MODEL_LOAD_SECONDS, TIER_WIRE_BYTES};
use tokio::time::{Instant, sleep_until};

/// Stages of a load, in order, as the server names them.
const STAGES: [&str; 6] = ["read", "verify", "place", "session", "warmup", "features"];

/// Measures every cold start of the plan.
pub(super) async fn measure(
    context: &LabContext<'_>,
    plan: &ColdStartPlan,
    targets: &Targets,
) -> Result<Vec<ColdStart>, RunError> {
    let lab = ColdStartLab { context, plan, targets };
    let variants = variants_to_start(context.lab);
    if plan.ways.contains(&ColdWay::Restart) {
        for variant in &variants {
            lab.fill_stages(variant).await?;
        }
    }
    let mut starts = Vec::new();
    for index in 0..plan.repeats {
        for &variant in &variants {
            for &way in &plan.ways {
                // A single server starts without jitter.
                let jitters: &[f64] = match variant.servers {
                    1 => &[0.0],
                    _ => &plan.jitter_s,
                };
                for &jitter_s in jitters {
                    if context.interrupt.is_raised() {
                        return Err(RunError::InterruptedEarly);
                    }
                    let measured = lab.measure(variant, way, index, jitter_s).await?;
                    let spread = match jitter_s > 0.0 {
                        true => format!(", spread over {jitter_s} s"),
                        false => String::new(),
                    };
                    eprintln!(
                        "cold start {}/{}: {} by {way}{spread}: ready after {:.0} ms, first reply {:.1} ms later",
                        index + 1,
                        plan.repeats,
                        variant.label(),
                        measured.ready_s * 1e3,
                        measured.first_reply_s * 1e3
                    );
                    starts.push(measured);
                }
            }
        }
    }
    Ok(starts)
}

/// Variants to start: those without an existing server, or, without any variant, each tier in its first cache state.
fn variants_to_start(lab: &LabPlan) -> Vec<&VariantPlan> {
    let mut variants: Vec<&VariantPlan> = Vec::new();
    for variant in lab.variants.iter().filter(|variant| variant.target.is_none()) {
        if !variants.iter().any(|listed| listed.label() == variant.label()) {
            variants.push(variant);
        }
    }
    variants
}

/// Times of one server, from the due time of the fleet's start.
struct StartTimes {
    stages_s: Vec<(String, f64)>,
    ready: Duration,
    replied: Duration,
    tier_bytes: u64,
}

/// Context of all cold starts.
struct ColdStartLab<'a> {
    context: &'a LabContext<'a>,
    plan: &'a ColdStartPlan,
    targets: &'a Targets,
}

impl ColdStartLab<'_> {
    async fn measure(
        &self,
        variant: &VariantPlan,
        way: ColdWay,
        index: u32,
        jitter_s: f64,
    ) -> Result<ColdStart, RunError> {
        if way == ColdWay::Restart && has_stage(variant, StageFill::Empty) {
            stage::empty(self.context, variant, Purpose::ColdStarts)?;
        }
        if self.plan.page_cache == PageCache::Dropped {
            let folder = self.targets.servers.folder(&variant.tier)?;
            drop_cached_below(&folder).map_err(RunError::io(&folder))?;
        }
        let offsets = self.start_offsets(variant.servers, index, jitter_s);
        let times: Vec<StartTimes> = match way {
            ColdWay::Load => {
                let is_of = |target: &&Target| target.label() == variant.label();
                // A tier in several cache states has a server for each; one suffices.
                let targets = self.targets.single_servers.iter().filter(is_of).take(offsets.len());
                let targets: Vec<&Target> = targets.collect();
                let mut before = Vec::new();
                for target in &targets {
                    target.control.unload(&self.context.plan.model).await?;
                    // Read before the clock starts, of which it would take a part.
                    before.push(tier_bytes(target).await?);
                }
                let start = Instant::now();
                let loads = targets.into_iter().zip(before).zip(&offsets);
                try_join_all(loads.map(|(server, &offset)| self.load(server, start + offset, start))).await?
            }
            ColdWay::Restart => {
                let start = Instant::now();
                let starts = (0..).zip(&offsets);
                let starts = starts.map(|(number, &offset)| self.restart(variant, number, start + offset, start));
                let launched = try_join_all(starts).await?;
                // No server ends while another one starts.
                launched.into_iter().map(|(times, _)| times).collect()
            }
        };
        let no_server = || RunError::Failed(format!("no running server of {}", variant.label()));
        let last = times.iter().max_by_key(|times| times.replied).ok_or_else(no_server)?;
        let earliest = times.iter().map(|times| times.replied).min();
        Ok(ColdStart {
            tier: variant.label().to_owned(),
            way,
            index,
            page_cache: self.plan.page_cache,
            servers: variant.servers,
            jitter_s,
            stages_s: last.stages_s.clone(),
            ready_s: last.ready.as_secs_f64(),
            first_reply_s: (last.replied - last.ready).as_secs_f64(),
            earliest_reply_s: earliest.map(|least| least.as_secs_f64()),
            tier_bytes: Some(times.iter().map(|times| times.tier_bytes).sum()),
        })
    }

    /// Returns the start time of each server, the same for every variant in a repeat.
    fn start_offsets(&self, servers: u32, index: u32, jitter_s: f64) -> Vec<Duration> {
        let mut random = ChaCha8Rng::seed_from_u64(self.context.plan.seed);
        random.set_stream(index.into());
        let offsets = (0..servers).map(|_| Duration::from_secs_f64(jitter_s * random.random::<f64>()));
        offsets.collect()
    }

    /// Loads an unloaded model at its due time, and requests a first reply. `before` is what the server had read of its tier.
    async fn load(
        &self,
        (target, before): (&Target, u64),
        due: Instant,
        start: Instant,
    ) -> Result<StartTimes, RunError> {
        let model = &self.context.plan.model;
        sleep_until(due).await;
        let document = target.control.load(model).await?;
        let ready = start.elapsed();
        Ok(StartTimes {
            stages_s: stages_of(&document),
            ready,
            replied: ready + self.first_reply(target).await?,
            tier_bytes: tier_bytes(target).await?.saturating_sub(before),
        })
    }

    /// Starts a server at its due time, and requests a first reply.
    async fn restart(
        &self,
        variant: &VariantPlan,
        number: u32,
        due: Instant,
        start: Instant,
    ) -> Result<(StartTimes, Launched), RunError> {
        sleep_until(due).await;
        let replica = Replica::new(variant, number, Purpose::ColdStarts);
        let server = self.targets.servers.launch(self.context, &replica).await?;
        let ready = start.elapsed();
        let target = server.target(self.context, variant).await?;
        let replied = ready + self.first_reply(&target).await?;
        let model = &self.context.plan.model;
        let scrape = target.control.scrape().await?;
        // Stages that a server does not report are left out: their times are unknown.
        let reported = |stage: &str| {
            let seconds = scrape.try_sum(MODEL_LOAD_SECONDS, &[("model", model), ("stage", stage)])?;
            Some((stage.to_owned(), seconds))
        };
        let times = StartTimes {
            stages_s: STAGES.into_iter().filter_map(reported).collect(),
            ready,
            replied,
            tier_bytes: scrape.sum(TIER_WIRE_BYTES, &[]) as u64,
        };
        Ok((times, server))
    }

    async fn first_reply(&self, target: &Target) -> Result<Duration, RunError> {
        let requested_at = Instant::now();
        check_reply(self.context.plan, target, &self.context.plan.model).await?;
        Ok(requested_at.elapsed())
    }

    /// Starts the servers of a variant with filled stages, so that the stages hold the data that a start reads.
    async fn fill_stages(&self, variant: &VariantPlan) -> Result<(), RunError> {
        if !has_stage(variant, StageFill::Filled) {
            return Ok(());
        }
        stage::empty(self.context, variant, Purpose::ColdStarts)?;
        for number in 0..variant.servers {
            let now = Instant::now();
            let (_, server) = self.restart(variant, number, now, now).await?;
            let target = server.target(self.context, variant).await?;
            stage::settle(&target).await?;
        }
        Ok(())
    }
}

fn has_stage(variant: &VariantPlan, fill: StageFill) -> bool {
    variant.staged.is_some_and(|stage| stage.fill == fill)
}

async fn tier_bytes(target: &Target) -> Result<u64, RunError> {
    Ok(target.control.scrape().await?.sum(TIER_WIRE_BYTES, &[]) as u64)
}

fn stages_of(document: &LoadDocument) -> Vec<(String, f64)> {
    let mut stages_s: Vec<(String, f64)> = STAGES.map(|stage| (stage.to_owned(), 0.0)).into();
    for version in &document.versions {
        let of = &version.seconds;
        let all = [of.read, of.verify, of.place, of.session, of.warmup, of.features];
        for ((_, sum), more) in stages_s.iter_mut().zip(all) {
            *sum += more;
        }
    }
    stages_s
}
