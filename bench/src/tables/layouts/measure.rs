//! One table on a tier, looked up and scanned. In: the laid-out table. Out: repeats; every row is compared with the one laid out.

use super::plan::LayoutsPlan;
use crate::chance::Random;
use crate::machine::own_cpu_s;
use crate::plan::Common;
use crate::station::Station;
use crate::tables::places::{LaidOut, RowsFile};
use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use std::time::{Duration, Instant};
use tierlab_layouts::{Cost, Rows, Table};

/// Rows per piece of a scan.
const PIECE_ROWS: u64 = 1024;

/// Cost of one kind of access in a repeat.
#[derive(Debug, Clone, Default)]
pub(super) struct AccessCost {
    pub(super) samples: u64,
    pub(super) elapsed_s: f64,
    /// Latency of each call.
    pub(super) latencies_us: Vec<f64>,
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
    /// Time from bytes of the tier to rows.
    pub(super) decode_s: f64,
    /// CPU time of the whole process.
    pub(super) cpu_s: f64,
}

/// One repeat of the four measurements.
#[derive(Debug, Clone)]
pub(super) struct LayoutRepeat {
    pub(super) point: AccessCost,
    pub(super) batch: AccessCost,
    pub(super) scan: AccessCost,
}

impl AccessCost {
    fn add(&mut self, cost: &Cost, samples: usize, took: Duration) {
        self.samples += samples as u64;
        self.latencies_us.push(took.as_secs_f64() * 1e6);
        self.requests += u64::from(cost.read.requests);
        self.wire_bytes += cost.read.wire_bytes;
        self.decode_s += cost.decode.as_secs_f64();
    }
}

/// Looks up and scans. Compares every row with the source.
pub(super) fn measure(
    station: &Station,
    laid_out: &LaidOut,
    (common, plan): (&Common, &LayoutsPlan),
    source: &RowsFile,
    round: u32,
) -> Result<LayoutRepeat> {
    let table = &laid_out.table;
    // Every layout gets the same entities.
    let mut random = Random::new(common.seed ^ 0x1a7e, u64::from(round));
    let mut draw = |count: u32| -> Vec<i64> {
        let id = |_| (random.share() * plan.rows as f64) as i64;
        (0..count).map(id).collect()
    };
    let singles: Vec<Vec<i64>> = (0..plan.lookups).map(|_| draw(1)).collect();
    let batches: Vec<Vec<i64>> = (0..plan.batches).map(|_| draw(plan.batch_rows)).collect();
    let scanned = plan.scan_rows.min(plan.rows);
    let start = (random.share() * (plan.rows - scanned + 1) as f64) as i64;
    let end = start + scanned.cast_signed();
    let pieces = (start..end).step_by(PIECE_ROWS as usize);
    let pieces = pieces.map(|start| (start..end.min(start + PIECE_ROWS.cast_signed())).collect());
    station.opened().runtime.block_on(async {
        Ok(LayoutRepeat {
            point: look_up(table, source, singles, 1).await?,
            batch: look_up(table, source, batches, 1).await?,
            scan: look_up(table, source, pieces.collect(), plan.scan_depth).await?,
        })
    })
}

/// Looks up the entities of each call, `depth` calls at a time.
async fn look_up(table: &Table, source: &RowsFile, calls: Vec<Vec<i64>>, depth: usize) -> Result<AccessCost> {
    let mut figures = AccessCost::default();
    let (began, cpu) = (Instant::now(), own_cpu_s());
    let calls = calls.into_iter().map(|ids| async move {
        let asked = Instant::now();
        let rows = table.look_up(&ids).await?;
        anyhow::Ok((ids, rows, asked.elapsed()))
    });
    let mut calls = stream::iter(calls).buffered(depth);
    while let Some((ids, rows, took)) = calls.try_next().await? {
        figures.add(&rows.cost, ids.len(), took);
        right(source, &ids, &rows)?;
    }
    (figures.elapsed_s, figures.cpu_s) = (began.elapsed().as_secs_f64(), own_cpu_s() - cpu);
    Ok(figures)
}

/// Checks that the rows are those laid out.
fn right(source: &RowsFile, ids: &[i64], rows: &Rows) -> Result<()> {
    for (&id, row) in ids.iter().zip(&rows.rows) {
        let is_right = source.row(id.cast_unsigned() as usize) == Some(&row[..]);
        ensure!(is_right, "entity {id}: the row differs from the one laid out");
    }
    Ok(())
}
