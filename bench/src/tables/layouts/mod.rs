//! Comparison of layouts: one table in several layouts on several tiers, looked up and scanned. In: a plan. Out: a folder of results.
//! Each round measures every layout once, and compares every row with the one laid out.

mod plan;
mod statements;

pub(crate) use plan::LayoutsOptions;

use super::placements::{LaidOut, Placement, RowsFile, measure_placements};
use crate::machine::own_cpu_s;
use crate::plan::Common;
use crate::prepared_tier::{PreparedTier, with_tiers};
use crate::random::Random;
use crate::report::{csv, finish, results_folder};
use crate::stop::Stop;
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use plan::LayoutsPlan;
use statements::{page, statements};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tierlab_layouts::Table;
use tierlab_models::tables::TableKind;

/// Time of a step on emulated cloud storage, which takes most of the time.
const EXPECTED: Duration = Duration::from_secs(5);

/// Runs a plan.
///
/// # Errors
/// The plan is invalid, a tier fails, a row differs from the one laid out, or an interrupt.
pub(crate) fn run(options: &LayoutsOptions) -> Result<()> {
    let (common, plan) = LayoutsPlan::read(options)?;
    let stop = Stop::on_signal()?;
    let folder = results_folder(options.flags.out.as_deref(), &common.name)?;
    let table = RowsFile::generate(&*TableKind::Ctr.source(common.seed)?, plan.rows, common.seed)?;
    let files = BTreeMap::from([(String::new(), table.bytes.clone())]);
    let layouts = (plan.layouts.as_slice(), plan.shard_bytes.0);
    let mut repeats: BTreeMap<Placement, Vec<LayoutRepeat>> = BTreeMap::new();
    let ((laid_out, failed), mut run) = with_tiers(&common, &stop, 0, |tiers| {
        let measure = |round, placement: &Placement, stored: &LaidOut| {
            let one = measure(&tiers[&placement.tier], stored, (&common, &plan), &table, round, &stop);
            // An interrupted repeat is dropped.
            if !stop.is_requested() {
                repeats.entry(placement.clone()).or_default().push(one?);
            }
            Ok(())
        };
        measure_placements(&common, tiers, layouts, &files, (EXPECTED, &stop), measure)
    })?;
    run.failed = failed.map(|e| format!("{e:#}")).or(run.failed.take());
    let statements = statements(&laid_out, &repeats);
    let page = page(&run, &plan, table.header.stride.into(), &statements);
    let table = ("layouts.csv", csv(&statements)?);
    let figures = BTreeMap::from([("statements", &statements)]);
    finish(&folder, &page, (&plan, &figures), table, "")
}

/// Rows per piece of a scan.
const PIECE_ROWS: u64 = 1024;

/// Cost of one kind of access in a repeat.
#[derive(Debug, Clone, Default)]
struct AccessCost {
    samples: u64,
    elapsed_s: f64,
    /// Latency of each call.
    latencies_us: Vec<f64>,
    requests: u64,
    wire_bytes: u64,
    /// Time from bytes of the tier to rows.
    decode_s: f64,
    /// CPU time of the whole process.
    cpu_s: f64,
}

/// One repeat of the four measurements.
#[derive(Debug, Clone)]
struct LayoutRepeat {
    point: AccessCost,
    batch: AccessCost,
    scan: AccessCost,
}

/// Looks up and scans. Compares every row with the source.
fn measure(
    tier: &PreparedTier,
    laid_out: &LaidOut,
    (common, plan): (&Common, &LayoutsPlan),
    source: &RowsFile,
    round: u32,
    stop: &Stop,
) -> Result<LayoutRepeat> {
    let table = &laid_out.table;
    // Every layout gets the same entities.
    let mut random = Random::new(common.seed ^ 0x1a7e, u64::from(round));
    let mut draw = |count: u32| -> Vec<i64> {
        let id = |_| (random.fraction() * plan.rows as f64) as i64;
        (0..count).map(id).collect()
    };
    let singles: Vec<Vec<i64>> = (0..plan.lookups).map(|_| draw(1)).collect();
    let batches: Vec<Vec<i64>> = (0..plan.batches).map(|_| draw(plan.batch_rows)).collect();
    let scanned = plan.scan_rows.min(plan.rows);
    let start = (random.fraction() * (plan.rows - scanned + 1) as f64) as i64;
    let end = start + scanned.cast_signed();
    let pieces = (start..end).step_by(PIECE_ROWS as usize);
    let pieces = pieces.map(|start| (start..end.min(start + PIECE_ROWS.cast_signed())).collect());
    let looked_up = async {
        anyhow::Ok(LayoutRepeat {
            point: look_up(table, source, singles, 1).await?,
            batch: look_up(table, source, batches, 1).await?,
            scan: look_up(table, source, pieces.collect(), plan.scan_depth).await?,
        })
    };
    tier.opened().runtime.block_on(stop.gives_up(looked_up))
}

/// Looks up the entities of each call, `depth` calls at a time, and checks that the rows are those laid out.
async fn look_up(table: &Table, source: &RowsFile, calls: Vec<Vec<i64>>, depth: usize) -> Result<AccessCost> {
    let mut figures = AccessCost::default();
    let (started, cpu) = (Instant::now(), own_cpu_s());
    let calls = calls.into_iter().map(|ids| async move {
        let started = Instant::now();
        let rows = table.look_up(&ids).await?;
        anyhow::Ok((ids, rows, started.elapsed()))
    });
    let mut calls = stream::iter(calls).buffered(depth);
    while let Some((ids, rows, took)) = calls.try_next().await? {
        figures.samples += ids.len() as u64;
        figures.latencies_us.push(took.as_secs_f64() * 1e6);
        figures.requests += u64::from(rows.cost.read.requests);
        figures.wire_bytes += rows.cost.read.wire_bytes;
        figures.decode_s += rows.cost.decode.as_secs_f64();
        let (found, asked) = (rows.len(), ids.len());
        ensure!(found == asked, "rows returned: {found}, entities looked up: {asked}");
        for (&id, row) in ids.iter().zip(rows.iter()) {
            let is_equal = source.rows().nth(id.cast_unsigned() as usize) == Some(row);
            ensure!(is_equal, "entity {id}: the row differs from the one laid out");
        }
    }
    (figures.elapsed_s, figures.cpu_s) = (started.elapsed().as_secs_f64(), own_cpu_s() - cpu);
    Ok(figures)
}
