//! Tables streamed through a model, without requests: the loader alone, the model alone, both together, and both with one read at a time.
//! In: a plan. Out: a folder of results, with the slower part and advice. Each round measures everything once.

mod loader;
mod measure;
mod page;
mod plan;
mod statements;
mod workload;

pub(crate) use plan::OfflineOptions;

use super::placements::{Placement, measure_placements};
use crate::plan::{Common, bad_usage};
use crate::prepared_tier::{PreparedTiers, runtime_with, with_tiers};
use crate::report::{RunFacts, csv, finish, results_folder};
use crate::stop::Stop;
use anyhow::{Context, Result, ensure};
use loader::LoaderSource;
use measure::{Case, OfflineRepeat};
use ort::session::Session;
use plan::{OfflinePlan, OfflinePrices};
use serde::Serialize;
use statements::{OfflineStatement, statements};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tierlab_instrument::units::bytes;
use tierlab_layouts::decode_in_place;
use tierlab_models::import::load_onnxruntime;
use workload::Workload;

/// Measurements of a repeat, without those of several accelerators.
const MEASUREMENTS: u32 = 4;
/// Minimum data of MLPerf Storage, as a multiple of the machine's memory.
const MEMORY_TIMES: u64 = 5;

/// A table's location, read by one loader.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct OfflineCase {
    #[serde(flatten)]
    placement: Placement,
    /// Pieces read at the same time.
    depth: usize,
    /// Threads that read and decode.
    workers: u16,
}

impl fmt::Display for OfflineCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (depth, workers) = (self.depth, self.workers);
        write!(out, "{}, depth {depth}, workers {workers}", self.placement)
    }
}

#[derive(Default)]
struct MeasuredOffline {
    repeats: BTreeMap<OfflineCase, Vec<OfflineRepeat>>,
    failed: BTreeMap<OfflineCase, String>,
}

/// A workload with its sessions.
struct OpenWorkload {
    workload: Arc<Workload>,
    sessions: Vec<Session>,
}

/// Runs a plan.
///
/// # Errors
/// The plan is invalid, ONNX Runtime is missing, a table lacks inputs of its model, a tier fails, or an interrupt.
pub(crate) fn run(options: &OfflineOptions) -> Result<()> {
    let (common, plan, prices) = OfflinePlan::read(options)?;
    let needs_model = plan.workloads.values().any(|raw| raw.accelerator.is_none());
    let load = || load_onnxruntime(options.onnxruntime.as_deref());
    let environment = needs_model.then(load).transpose();
    let environment = environment.map_err(|e| bad_usage("--onnxruntime", &e.to_string()))?;
    let mut workloads: BTreeMap<String, OpenWorkload> = BTreeMap::new();
    for (name, raw) in &plan.workloads {
        let workload = Workload::of(&options.flags.plan, name, raw, common.seed)?;
        let environment = environment.iter().filter(|_| workload.accelerator.is_none());
        let session = |environment| workload.session(environment, plan.session_threads);
        let sessions = environment.cycle().take(plan.sessions).map(session);
        let prepared = OpenWorkload {
            sessions: sessions.collect::<Result<_>>()?,
            workload: Arc::new(workload),
        };
        workloads.insert(name.clone(), prepared);
    }
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let workers = plan.loaders().iter().map(|(_, workers)| *workers).max();
    let (MeasuredOffline { repeats, failed }, run) = with_tiers(&common, &stop, workers.unwrap_or(0), |tiers| {
        rounds(&common, &plan, &mut workloads, tiers, &stop)
    })?;
    let failed = failed.into_iter().map(|(case, why)| format!("{case} failed: {why}"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let figures = OfflineFigures {
        statements: statements(&repeats, &demands(&workloads), prices.as_ref(), cores),
        prices,
        failed: failed.collect(),
    };
    let page = page::page(&run, facts(&plan, &workloads, &figures, &run), &figures);
    let table = ("offline.csv", csv(&figures.statements)?);
    finish(&folder, &page, (&plan, &figures), table, "")?;
    ensure!(figures.failed.is_empty(), "{}", figures.failed.join("; "));
    Ok(())
}

/// Figures of `run.json`.
#[derive(Serialize)]
struct OfflineFigures {
    statements: Vec<OfflineStatement>,
    prices: Option<OfflinePrices>,
    /// Cases that could not be measured, with reasons.
    failed: Vec<String>,
}

/// Rows per second that one accelerator of each workload takes.
fn demands(workloads: &BTreeMap<String, OpenWorkload>) -> BTreeMap<String, f64> {
    let demand = |(name, OpenWorkload { workload, .. }): (&String, &OpenWorkload)| {
        let compute = workload.accelerator.as_ref()?.compute();
        Some((name.clone(), workload.batch_rows as f64 / compute.as_secs_f64()))
    };
    workloads.iter().filter_map(demand).collect()
}

fn facts(
    plan: &OfflinePlan,
    workloads: &BTreeMap<String, OpenWorkload>,
    figures: &OfflineFigures,
    run: &RunFacts,
) -> Vec<String> {
    let mut facts = vec![format!(
        "rounds: {}, of {} s; sessions: {}, threads of each: {}",
        run.repeats,
        plan.window().as_secs_f64(),
        plan.sessions,
        plan.session_threads
    )];
    facts.extend(workloads.iter().map(|(name, OpenWorkload { workload, .. })| {
        let (rows, row) = (workload.table.header.rows, bytes(workload.table.header.stride.into()));
        let (batch, drawn) = (workload.batch_rows, workload.shuffle_rows);
        format!("{name}: rows: {rows}, of {row}; batches of {batch}, drawn among {drawn}")
    }));
    let memory = run.environment.host.memory_bytes;
    for (name, OpenWorkload { workload, .. }) in workloads {
        let data = workload.table.bytes.len() as u64;
        if workload.accelerator.is_some() && data < MEMORY_TIMES * memory {
            let [data, memory] = [data, memory].map(bytes);
            facts.push(format!(
                "{name}: {data} of data on a machine with {memory} of memory; MLPerf Storage requires {MEMORY_TIMES} times the memory: \
                reads may come from the page cache or a server's memory instead of storage"
            ));
        }
    }
    let prices = figures.prices.iter().flat_map(|prices| &prices.reads.sources);
    facts.extend(prices.map(|source| format!("price of {source}")));
    facts
}

fn rounds(
    common: &Common,
    plan: &OfflinePlan,
    workloads: &mut BTreeMap<String, OpenWorkload>,
    tiers: &PreparedTiers,
    stop: &Stop,
) -> Result<MeasuredOffline> {
    let file = |(name, prepared): (&String, &OpenWorkload)| (name.clone(), prepared.workload.table.bytes.clone());
    let files = workloads.iter().map(file).collect();
    let loader = |(depth, workers): (usize, u16)| anyhow::Ok((depth, workers, runtime_with(workers, decode_in_place)?));
    let loaders: Vec<_> = plan.loaders().into_iter().map(loader).collect::<Result<_>>()?;
    let accelerators = plan.workloads.values().filter_map(|raw| raw.accelerator.as_ref());
    let counts = accelerators.map(|accelerator| accelerator.count.len());
    let measurements = MEASUREMENTS + counts.max().unwrap_or(0) as u32;
    let expected = (plan.window() + plan.warmup()) * measurements * loaders.len() as u32;
    let layouts = (plan.layouts.as_slice(), plan.shard_bytes.0);
    let mut measured = MeasuredOffline::default();
    let (_, ended) = measure_placements(
        common,
        tiers,
        layouts,
        &files,
        (expected, stop),
        |round, placement, laid_out| {
            let OpenWorkload { workload, sessions } = workloads
                .get_mut(&placement.table)
                .context("a workload without sessions")?;
            // Each round starts with another loader, so that none always follows the same one.
            let (before, first) = loaders.split_at(round as usize % loaders.len());
            for &(depth, workers, ref runtime) in first.iter().chain(before) {
                let case = OfflineCase {
                    placement: placement.clone(),
                    depth,
                    workers,
                };
                if measured.failed.contains_key(&case) {
                    continue;
                }
                let one = Case {
                    runtime,
                    plan,
                    interrupt: stop,
                    source: LoaderSource {
                        table: Arc::clone(&laid_out.table),
                        workload: Arc::clone(workload),
                        seed: common.seed ^ (u64::from(round) << 32),
                        depth,
                        piece_bytes: plan.loader.piece_bytes.0,
                    },
                };
                match one.measure(sessions) {
                    // An interrupted repeat is dropped.
                    _ if stop.is_requested() => {}
                    Ok(one) => measured.repeats.entry(case).or_default().push(one),
                    // The other cases are still measured.
                    Err(error) => _ = measured.failed.insert(case, format!("{error:#}")),
                }
            }
            Ok(())
        },
    )?;
    ended.map_or(Ok(measured), Err)
}
