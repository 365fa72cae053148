//! Tables streamed through a model, without requests: the loader alone, the model alone, both together, and both with one read at a time.
//! In: a plan. Out: a folder of results, which names the slower part and what to change. Everything is measured once in each round.

mod loader;
mod measure;
mod page;
mod plan;
mod price;
mod ready;
mod shuffle;
mod statements;
mod workload;

pub(crate) use plan::Options;

use super::sitting::{Place, Sitting, Sittings, lay_out_all, places};
use crate::plan::{Common, bad_usage};
use crate::report::{csv, finish};
use crate::rounds::{Rounds, order};
use crate::stop::Stop;
use crate::tiers::{on_tiers, results_folder};
use anyhow::{Context, Result, bail};
use loader::Source;
use measure::{Repeat, measure};
use ort::session::Session;
use page::{Kept, KeptTable};
use plan::Plan;
use statements::statements;
use std::collections::BTreeMap;
use std::sync::Arc;
use tierlab_models::import::load_onnxruntime;
use workload::Workload;

/// Measurements of a repeat.
const MEASUREMENTS: u32 = 4;

#[derive(Default)]
struct Measured {
    repeats: BTreeMap<Place, Vec<Repeat>>,
    failed: BTreeMap<Place, String>,
}

/// A workload with its sessions.
struct Prepared {
    workload: Arc<Workload>,
    sessions: Vec<Session>,
}

/// Runs a plan.
///
/// # Errors
/// The plan is wrong, ONNX Runtime is missing, a table does not fill its model, a tier fails, or an interrupt.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (common, plan, prices) = Plan::read(options)?;
    let environment = load_onnxruntime(options.onnxruntime.as_deref());
    let environment = environment.map_err(|e| bad_usage("--onnxruntime", &e.to_string()))?;
    let mut workloads: BTreeMap<String, Prepared> = BTreeMap::new();
    for (name, raw) in &plan.workloads {
        let workload = Workload::of(&options.flags.plan, name, raw, common.seed)?;
        let session = |_| workload.session(&environment, plan.session_threads);
        let sessions = (0..plan.sessions).map(session).collect::<Result<_>>()?;
        let workload = Arc::new(workload);
        workloads.insert(name.clone(), Prepared { workload, sessions });
    }
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let open =
        |name: &str, config: &_| Sitting::open(name, config, common.scratch.as_deref(), Some(plan.loader.workers));
    let (Measured { repeats, failed }, ran) = on_tiers(&common, &stop, open, |sittings| {
        rounds(&common, &plan, &mut workloads, sittings, &stop)
    })?;
    let failed = failed.into_iter().map(|(place, why)| format!("{place} failed: {why}"));
    let tables = workloads.iter().map(|(name, ready)| {
        let workload = &ready.workload;
        let kept = KeptTable {
            rows: workload.header.rows,
            row_bytes: u64::from(workload.header.stride),
            batch_rows: workload.batch_rows,
            shuffle_rows: workload.shuffle_rows,
        };
        (name.clone(), kept)
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kept = Kept {
        ran,
        tables: tables.collect(),
        window_s: plan.window().as_secs_f64(),
        sessions: plan.sessions,
        session_threads: plan.session_threads,
        statements: statements(&repeats, prices.as_ref(), cores),
        prices,
        failed: failed.collect(),
    };
    finish(
        &folder,
        &kept,
        ("offline.csv", csv(page::csv(&kept))?),
        &page::page(&kept),
        "",
    )?;
    match kept.failed.as_slice() {
        [] => Ok(()),
        failed => bail!("{}", failed.join("; ")),
    }
}

fn rounds(
    common: &Common,
    plan: &Plan,
    workloads: &mut BTreeMap<String, Prepared>,
    sittings: &Sittings,
    stop: &Stop,
) -> Result<Measured> {
    let names: Vec<String> = workloads.keys().cloned().collect();
    let places = places(sittings, &plan.layouts, &names);
    let order = order(common.seed, common.repeats, &places);
    let expected = (plan.window() + plan.warmup()) * MEASUREMENTS;
    let mut rounds = Rounds::new(common.repeats, stop, places.len() + order.len(), expected);
    let file = |name: &str| workloads[name].workload.file.clone();
    let laid_out = lay_out_all(&mut rounds, sittings, &places, plan.shard_bytes.0, file)?;
    let mut measured = Measured::default();
    rounds.measure(&order, |round, place| {
        if measured.failed.contains_key(place) {
            return Ok(());
        }
        let Prepared { workload, sessions } = workloads.get_mut(&place.table).context("a workload without sessions")?;
        let source = Source {
            table: Arc::clone(&laid_out[place].table),
            workload: Arc::clone(workload),
            seed: common.seed ^ (u64::from(round) << 32),
        };
        match measure(&sittings[&place.tier].runtime, &source, sessions, plan, stop) {
            // A repeat that an interrupt cut short is dropped.
            _ if stop.is_asked() => {}
            Ok(one) => measured.repeats.entry(place.clone()).or_default().push(one),
            // The other places are still measured.
            Err(error) => _ = measured.failed.insert(place.clone(), format!("{error:#}")),
        }
        Ok(())
    })?;
    Ok(measured)
}
