//! One tier with its tables: laid out, looked up, scanned, removed. In: a tier's config. Out: repeats, every row of which was held against
//! the one that was laid out.

use super::asked::Asked;
use super::made::Source;
use crate::chance::Random;
use crate::machine::own_cpu_s;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_layouts::{Cost, Layout, Options, Rows, Table, lay_out};
use tierlab_storage::{Body, ObjectPath, Tier, TierConfig};
use tokio::runtime::Runtime;

/// Rows of a piece of a scan.
const PIECE_ROWS: u64 = 1024;
/// Objects that are removed at the same time.
const REMOVED_AT_ONCE: usize = 64;

/// A tier by name, and how the table lies on it.
pub(super) type Place = (String, Layout);

/// A tier on a runtime of its own.
pub(super) struct Sitting {
    runtime: Runtime,
    tier: Arc<dyn Tier>,
    /// Of a local tier, removed when this is dropped.
    root: Option<tempfile::TempDir>,
    folder: String,
}

/// A table in one layout.
pub(super) struct LaidOut {
    table: Table,
    pub(super) objects: u64,
    pub(super) stored_bytes: u64,
    pub(super) laid_out_s: f64,
    /// What it took to open it and to read every index or footer.
    pub(super) opening: Figures,
}

/// What a repeat of one kind of access took.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    pub(super) samples: u64,
    pub(super) elapsed_s: f64,
    /// Of each call.
    pub(super) latencies_us: Vec<f64>,
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
    /// From bytes of the tier to rows.
    pub(super) decode_s: f64,
    /// Of the whole process.
    pub(super) cpu_s: f64,
}

/// One repeat.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Repeat {
    pub(super) point: Figures,
    pub(super) batch: Figures,
    pub(super) scan: Figures,
}

impl Figures {
    fn add(&mut self, cost: &Cost, samples: usize, took: Duration) {
        self.samples += samples as u64;
        self.latencies_us.push(took.as_secs_f64() * 1e6);
        self.requests += u64::from(cost.read.requests);
        self.wire_bytes += cost.read.wire_bytes;
        self.decode_s += cost.decode.as_secs_f64();
    }
}

impl Sitting {
    pub(super) fn open(name: &str, config: &TierConfig, scratch: Option<&Path>) -> Result<Self> {
        let mut config = config.clone();
        let root = crate::runner::local_root(name, &mut config, scratch)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime")?;
        let tier = runtime.block_on(tierlab_storage::open(&config));
        Ok(Self {
            tier: tier.with_context(|| format!("tier `{name}`"))?,
            runtime,
            root,
            folder: format!("layouts-{}", std::process::id()),
        })
    }

    pub(super) fn root(&self) -> Option<&Path> {
        self.root.as_ref().map(tempfile::TempDir::path)
    }

    /// What the tier says of itself.
    pub(super) fn notes(&self) -> Vec<String> {
        crate::runner::notes_of(&self.tier.info())
    }

    pub(super) fn lay_out(&self, source: &Source, layout: Layout, shard_bytes: u64) -> Result<LaidOut> {
        self.runtime.block_on(async {
            let memory = TierConfig::parse("memory", "kind = \"memory\"\n")?;
            let memory = tierlab_storage::open(&memory).await?;
            let from = ObjectPath::new("t.rows")?;
            memory.put(&from, Body::Bytes(Bytes::from(source.file()))).await?;
            let folder = ObjectPath::new(&format!("{}/{layout}", self.folder))?;
            let began = Instant::now();
            let options = Options { layout, shard_bytes };
            lay_out((&*memory, &from), (&*self.tier, &folder), options).await?;
            let laid_out_s = began.elapsed().as_secs_f64();
            let objects = self.tier.list(Some(&folder)).await?;
            let mut opening = Figures::default();
            let began = Instant::now();
            let table = Table::open(Arc::clone(&self.tier), folder).await?;
            for id in table.first_ids() {
                let asked = Instant::now();
                let rows = table.look_up(&[id]).await?;
                opening.add(&rows.cost, 0, asked.elapsed());
            }
            opening.elapsed_s = began.elapsed().as_secs_f64();
            Ok(LaidOut {
                table,
                objects: objects.len() as u64,
                stored_bytes: objects.iter().map(|object| object.size).sum(),
                laid_out_s,
                opening,
            })
        })
    }

    pub(super) fn measure(&self, laid_out: &LaidOut, asked: &Asked, source: &Source, round: u32) -> Result<Repeat> {
        let table = &laid_out.table;
        // The same entities for every layout.
        let mut random = Random::new(asked.seed ^ 0x1a7e, u64::from(round));
        let mut draw = |count: u32| -> Vec<i64> {
            let id = |_| (random.share() * asked.rows as f64) as i64;
            (0..count).map(id).collect()
        };
        let singles: Vec<Vec<i64>> = (0..asked.lookups).map(|_| draw(1)).collect();
        let batches: Vec<Vec<i64>> = (0..asked.batches).map(|_| draw(asked.batch_rows)).collect();
        let scanned = asked.scan_rows.min(asked.rows);
        let start = (random.share() * (asked.rows - scanned + 1) as f64) as i64;
        self.runtime.block_on(async {
            let one_by_one = async |calls: &[Vec<i64>]| -> Result<Figures> {
                let mut figures = Figures::default();
                let (began, cpu) = (Instant::now(), own_cpu_s());
                for ids in calls {
                    let asked = Instant::now();
                    let rows = table.look_up(ids).await?;
                    figures.add(&rows.cost, ids.len(), asked.elapsed());
                    right(source, ids, &rows)?;
                }
                (figures.elapsed_s, figures.cpu_s) = (began.elapsed().as_secs_f64(), own_cpu_s() - cpu);
                Ok(figures)
            };
            Ok(Repeat {
                point: one_by_one(&singles).await?,
                batch: one_by_one(&batches).await?,
                scan: scan(table, source, start..start + scanned.cast_signed(), asked.scan_depth).await?,
            })
        })
    }

    /// Removes all that was written.
    pub(super) fn remove(self) -> Result<()> {
        let folder = ObjectPath::new(&self.folder)?;
        self.runtime.block_on(async {
            let objects = self.tier.list(Some(&folder)).await.unwrap_or_default();
            let tier = &self.tier;
            let delete = |object: tierlab_storage::Object| async move { tier.delete(&object.path).await };
            let deleted = stream::iter(objects)
                .map(Ok)
                .try_for_each_concurrent(REMOVED_AT_ONCE, delete);
            deleted.await.context("cannot remove what was written")
        })
    }
}

async fn scan(table: &Table, source: &Source, ids: std::ops::Range<i64>, depth: usize) -> Result<Figures> {
    let mut figures = Figures::default();
    let (began, cpu) = (Instant::now(), own_cpu_s());
    let pieces = ids.clone().step_by(PIECE_ROWS as usize).map(|start| {
        let ids: Vec<i64> = (start..ids.end.min(start + PIECE_ROWS.cast_signed())).collect();
        async move {
            let asked = Instant::now();
            let rows = table.look_up(&ids).await?;
            Ok::<_, anyhow::Error>((ids, rows, asked.elapsed()))
        }
    });
    let mut pieces = stream::iter(pieces).buffered(depth);
    while let Some((ids, rows, took)) = pieces.try_next().await? {
        figures.add(&rows.cost, ids.len(), took);
        right(source, &ids, &rows)?;
    }
    (figures.elapsed_s, figures.cpu_s) = (began.elapsed().as_secs_f64(), own_cpu_s() - cpu);
    Ok(figures)
}

/// Whether the rows are those that were laid out.
fn right(source: &Source, ids: &[i64], rows: &Rows) -> Result<()> {
    for (&id, row) in ids.iter().zip(&rows.rows) {
        if row != source.row(id) {
            bail!("entity {id}: another row than was laid out");
        }
    }
    Ok(())
}
