//! One tier with the table, looked up through one strategy after another. In: a tier's config. Out: repeats; each starts with empty
//! caches, and every row is compared with the table.

use super::plan::Settings;
use super::play::{Playback, PlaybackFigures, Table};
use super::policies::{StackDistances, min_hits};
use super::strategy::{Ram, Strategy, Unit};
use crate::prepared_tier::{PreparedTier, folder_in};
use crate::stop::Stop;
use crate::ways::{Counted, Counts};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::wrappers::CacheConfig;
use tierlab_storage::wrappers::cache::Policy;
use tierlab_storage::wrappers::staged::capacity_for;
use tierlab_storage::wrappers::{Role, Staged, StagedConfig, StorageMetrics, compose};
use tierlab_storage::{Body, Object, ObjectPath, Tier, TierConfig};

/// Number of marks along a trace: few enough that the look-ups between two marks give a hit ratio.
const MARKS: usize = 20;

/// Tier name, law's index in the plan, look-ups in flight, strategy's index.
pub(super) type CacheCase = (String, usize, usize, usize);

/// Table on a tier.
pub(super) struct TableOnTier<'a> {
    settings: &'a Settings,
    table: &'a Table,
    stop: &'a Stop,
    prepared_tier: &'a PreparedTier,
    origin: Arc<dyn Tier>,
    counts: Arc<Counts>,
    object: Object,
    /// Parent of the folders of staged copies, removed on drop.
    stages: tempfile::TempDir,
}

/// Hits of caches of the same memory over the look-ups of a repeat, one after another.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ComputedHits {
    pub(super) policy: u64,
    pub(super) best: u64,
}

/// Figures of a strategy in one repeat.
#[derive(Debug)]
pub(super) struct CachingRepeat {
    pub(super) figures: PlaybackFigures,
    pub(super) lookups: u64,
    /// Look-ups of the trace skipped for lack of time.
    pub(super) left_out: u64,
    pub(super) origin_requests: u64,
    pub(super) origin_bytes: u64,
    /// Computed hits for a cache in memory only: they are undefined over a staged copy, whose own misses also count.
    pub(super) computed: Option<ComputedHits>,
}

impl<'a> TableOnTier<'a> {
    /// Writes the table.
    pub(super) fn put(
        name: &str,
        prepared_tier: &'a PreparedTier,
        settings: &'a Settings,
        table: &'a Table,
        stop: &'a Stop,
    ) -> Result<Self> {
        // First, so that an unusable scratch folder is reported before the table is written.
        let stages = folder_in(settings.common.scratch.as_deref(), "stages")?;
        let path = ObjectPath::new(&format!("{}/table", prepared_tier.folder))?;
        let put = prepared_tier.opened().tier.put(&path, Body::Bytes(table.bytes.clone()));
        let object = prepared_tier.opened().runtime.block_on(put);
        let object = object.with_context(|| format!("tier `{name}`: cannot write the table"))?;
        let counted = Counted::new(prepared_tier.opened().tier.clone());
        Ok(Self {
            settings,
            table,
            stop,
            prepared_tier,
            counts: Arc::clone(&counted.counts),
            origin: Arc::new(counted),
            object,
            stages,
        })
    }

    /// Plays a trace through a strategy that starts empty.
    pub(super) fn measure(&self, &(_, _, depth, strategy): &CacheCase, rows: &Arc<Vec<u32>>) -> Result<CachingRepeat> {
        let strategy = self.settings.strategies[strategy];
        let stage = folder_in(Some(self.stages.path()), "stage")?;
        let measured = self.prepared_tier.opened().runtime.block_on(async {
            let metrics = StorageMetrics::unscraped()?;
            let playback = Playback {
                tier: self.wrapped(strategy, stage.path(), &metrics).await?,
                object: self.object.clone(),
                table: self.table.clone(),
                rows: rows.clone(),
                origin: self.counts.clone(),
                depth,
                max_time: Duration::from_secs_f64(self.settings.plan.seconds),
                mark_interval: (rows.len() / MARKS).max(1),
                stop: self.stop.clone(),
            };
            let before = self.counts.load();
            let figures = playback.play().await?;
            let after = self.counts.load();
            let lookups = figures.latencies_us.len() as u64;
            anyhow::Ok(CachingRepeat {
                figures,
                lookups,
                left_out: rows.len() as u64 - lookups,
                origin_requests: after.0 - before.0,
                origin_bytes: after.1 - before.1,
                computed: None,
            })
        });
        stage.close().context("cannot remove the staged copy")?;
        let mut measured = measured?;
        if let Strategy::Ram(ram) = strategy {
            let rows = Arc::new(rows[..measured.lookups as usize].to_vec());
            measured.computed = Some(computed(ram, self.table, &rows, self.stop)?);
        }
        Ok(measured)
    }

    /// Wraps the tier like a server with this strategy: `cache(metered(staged(origin)))`.
    async fn wrapped(&self, strategy: Strategy, folder: &Path, metrics: &StorageMetrics) -> Result<Arc<dyn Tier>> {
        let table_bytes = self.table.bytes.len() as u64;
        let block_bytes = self.settings.plan.staged_block_bytes.0;
        let mut tier = self.origin.clone();
        if let Some(share) = strategy.staged() {
            let blocks = (share * table_bytes.div_ceil(block_bytes) as f64).round() as u64;
            let config = StagedConfig {
                root: folder.to_owned(),
                shared: false,
                // At least two blocks, with room for their metadata.
                capacity_bytes: capacity_for(blocks.max(2), block_bytes),
                block_bytes,
                queue_depth: 128,
                direct: true,
            };
            tier = Arc::new(Staged::open(tier, &config, metrics.staged(self.origin.info().kind)).await?);
        }
        let cache = strategy.ram();
        let cache = cache.map_or_else(CacheConfig::off, |ram| ram.config(table_bytes, self.table.row_bytes));
        Ok(compose(tier, Role::Feature, &cache, metrics)?)
    }
}

fn computed(ram: Ram, table: &Table, rows: &Arc<Vec<u32>>, stop: &Stop) -> Result<ComputedHits> {
    let entries = ram.config(table.bytes.len() as u64, table.row_bytes).max_blocks();
    let keys = units(&ram, table, rows);
    Ok(ComputedHits {
        policy: match ram.policy {
            Policy::Lru => StackDistances::of(&keys).hits(entries),
            Policy::TinyLfu => real_cache_hits(ram, table, rows, stop)?,
        },
        best: min_hits(&keys, entries),
    })
}

/// Returns the units of the table that contain the rows of a trace.
pub(super) fn units(ram: &Ram, table: &Table, rows: &[u32]) -> Vec<u32> {
    let rows_of = match ram.unit {
        Unit::Row => 1,
        Unit::Block(bytes) => (bytes / table.row_bytes).max(1) as u32,
    };
    rows.iter().map(|row| row / rows_of).collect()
}

/// Returns the hit ratio of the real cache's code over a tier in memory, which only depends on the policy.
///
/// # Errors
/// The cache refuses the size.
pub(super) fn real_cache_hits(ram: Ram, table: &Table, rows: &Arc<Vec<u32>>, stop: &Stop) -> Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let memory = tierlab_storage::open(&TierConfig::Memory { root: None }).await?;
        let path = ObjectPath::new("table")?;
        let object = memory.put(&path, Body::Bytes(table.bytes.clone())).await?;
        let config = ram.config(table.bytes.len() as u64, table.row_bytes);
        let memory = Counted::new(memory);
        let playback = Playback {
            origin: Arc::clone(&memory.counts),
            tier: compose(Arc::new(memory), Role::Feature, &config, &StorageMetrics::unscraped()?)?,
            object,
            table: table.clone(),
            rows: rows.clone(),
            // One look-up after another: the cache sees the order of the trace.
            depth: 1,
            max_time: Duration::from_secs(600),
            mark_interval: rows.len().max(1),
            stop: stop.clone(),
        };
        let figures = playback.play().await?;
        Ok(figures.latencies_us.len() as u64 - figures.misses)
    })
}
