//! Copies of read bytes in a local folder. In: reads. Out: the same bytes: from the folder if staged, else from the
//! tier, and then also written to the folder.
//!
//! - A version of an object is copied in blocks. Blocks that a call misses go to the tier as one `read_many`, and
//!   concurrent callers of a block share one fetch. The call is answered before the blocks are written.
//! - Each page of 4 KiB has a CRC32C, checked on every read. A torn or flipped page costs one more read of the tier and
//!   is never returned.
//! - The folder outlives the process. Keys are tier, path and version, so versions never mix. Copies of a memory tier
//!   are not reused, because its versions mean nothing after a restart.
//! - Processes may share the folder's root: each writes a part of it and reads the parts of the others.
//! - When the folder is full, broken or gone, reads go to the tier and the failure is counted ([`StagedMetrics`]).

use crate::limits::check_ranges;
use crate::metrics::StagedMetrics;
use crate::ranges;
use crate::tasks::blocking;
use crate::tiers::nvme::{LocalOptions, NvmeTier};
use crate::tiers::{number, yes};
use crate::unreported::UnreportedCost;
use crate::wrappers::Fetched;
use crate::wrappers::single_flight::{Lead, SingleFlight};
use crate::{ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use folder::{Folder, Found};
use futures::future::try_join;
use journal::Header;
use ledger::Ledger;
pub use ledger::capacity_for;
use neighbours::{Claim, Neighbours};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};
use tokio::sync::oneshot;
use writer::Writer;

mod folder;
mod journal;
mod ledger;
mod neighbours;
mod read;
mod writer;

/// Tier whose reads are copied to a local folder. Dropping it stops and joins its writing thread; blocks not yet
/// written are not staged.
pub struct Staged {
    stage: Arc<Stage>,
    config: StagedConfig,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the tier's calls and its fetches.
struct Stage {
    inner: Arc<dyn Tier>,
    local: NvmeTier,
    /// Other processes that stage in the same root; `None` if the root is not shared.
    neighbours: Option<Arc<Neighbours>>,
    ledger: Arc<Mutex<Ledger>>,
    stats: Arc<StageStats>,
    flights: Arc<SingleFlight<Fetched>>,
    /// Cost of fetches whose caller went away.
    unreported: UnreportedCost,
    jobs: Sender<WriterTask>,
    origin: String,
    block_bytes: u64,
}

impl Stage {
    /// Blocks that cover the ranges, in order, without duplicates.
    fn blocks_of(&self, ranges: &[Range<u64>]) -> Vec<u64> {
        let blocks = ranges.iter().flat_map(|range| ranges::blocks(range, self.block_bytes));
        let mut blocks: Vec<u64> = blocks.collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    fn header(&self, object: &Object) -> Header {
        Header {
            origin: self.origin.clone(),
            path: object.path.as_str().to_owned(),
            version: object.version.clone(),
            size: object.size,
            block_bytes: self.block_bytes,
        }
    }

    fn extent(&self, object: &Object, block: u64) -> Range<u64> {
        ranges::block(block, self.block_bytes, object.size)
    }
}

/// Maximum bytes waiting to be written; a single read may exceed it.
const PENDING_BYTES: u64 = 64 << 20;

/// Task of the writing thread. Tasks run in order.
enum WriterTask {
    /// Stage blocks of a version. Until that is done or given up, the fetch serves readers of these blocks.
    Store {
        header: Header,
        blocks: Vec<(u64, Bytes)>,
        lead: Lead<Fetched>,
        /// Released once the blocks are staged or given up.
        claim: Option<Claim>,
    },
    /// Record that a block is gone from the ledger.
    Drop { id: u64, block: u64 },
    /// Remove damaged blocks, after the blocks queued before are staged.
    Forget { header: Header, blocks: Vec<u64> },
    /// Report when all earlier tasks are done.
    Flush(oneshot::Sender<()>),
    /// Ends the thread.
    Stop,
}

/// Counts of a stage, and the state of its queue.
#[derive(Debug)]
struct StageStats {
    /// Shared by stages of the same kind of tier.
    metrics: StagedMetrics,
    /// Number of failed writes, and the last error.
    failures: Mutex<(u64, String)>,
    /// Bytes of the blocks in the queue.
    pending: AtomicU64,
    stopped: AtomicBool,
    capacity_bytes: i64,
    /// Contribution of this stage to the gauge of bytes.
    reported_bytes: AtomicU64,
}

impl StageStats {
    fn new(metrics: StagedMetrics, capacity_bytes: u64) -> Self {
        let capacity_bytes = capacity_bytes.cast_signed();
        metrics.capacity_bytes.add(capacity_bytes);
        Self {
            metrics,
            failures: Mutex::default(),
            pending: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            capacity_bytes,
            reported_bytes: AtomicU64::new(0),
        }
    }

    /// Counts and logs a failed write.
    fn failed(&self, path: &str, error: &io::Error) {
        self.metrics.failures.inc();
        let mut failures = self.failures.lock();
        *failures = (failures.0 + 1, format!("{path}: {error}"));
        let (count, text) = &*failures;
        // Logged at powers of two, because a full disk fails thousands of times.
        if count.is_power_of_two() {
            tracing::warn!(failures = count, "staging failed; reads go to the tier: {text}");
        }
    }

    /// Updates the gauge.
    fn report_bytes(&self, bytes: u64) {
        let before = self.reported_bytes.swap(bytes, Ordering::Relaxed);
        self.metrics.bytes.add(bytes.cast_signed() - before.cast_signed());
    }
}

impl Drop for StageStats {
    fn drop(&mut self) {
        self.report_bytes(0);
        self.metrics.capacity_bytes.sub(self.capacity_bytes);
    }
}

/// Identity of this tier, which separates its objects from those of other tiers.
fn origin_of(info: &TierInfo) -> String {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let name = format!("{} {}", info.kind, info.location);
    if info.kind != "memory" {
        return name;
    }
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    format!("{name} {} {} {serial}", std::process::id(), now.as_nanos())
}

impl Staged {
    /// Opens the folder and wraps a tier.
    ///
    /// # Errors
    /// Fails if a key is invalid, if the folder cannot be created or is in use, or if io_uring is unavailable.
    pub async fn open(
        inner: Arc<dyn Tier>,
        config: &StagedConfig,
        metrics: StagedMetrics,
    ) -> Result<Self, StorageError> {
        config.check()?;
        let (root, block_bytes, shared) = (config.root.clone(), config.block_bytes, config.shared);
        let name = root.display().to_string();
        let opened = blocking(&name, move || {
            if !shared {
                return Ok((Folder::open(&root, block_bytes)?, None));
            }
            let (folder, found, part) = Folder::open_part(&root, block_bytes)?;
            let neighbours = Neighbours::open(&root, &part);
            let neighbours = neighbours.map_err(|e| StorageError::from_io(root.display(), &e))?;
            Ok(((folder, found), Some((part, neighbours))))
        });
        let (folder, neighbours) = opened.await?;
        Self::with_folder(inner, config, metrics, folder, neighbours).await
    }

    /// Opens a stage over its folder. For a shared root, the folder is this process's part; also opens its neighbours.
    async fn with_folder(
        inner: Arc<dyn Tier>,
        config: &StagedConfig,
        metrics: StagedMetrics,
        (folder, found): (Folder, Vec<Found>),
        neighbours: Option<(String, Neighbours)>,
    ) -> Result<Self, StorageError> {
        let root = match &neighbours {
            Some((part, _)) => config.root.join(part),
            None => config.root.clone(),
        };
        let options = LocalOptions::on_thread(&root, config.queue_depth, config.direct);
        let local = NvmeTier::open_with(options).await?;
        let ledger = Arc::new(Mutex::new(Ledger::load(found)));
        let stats = Arc::new(StageStats::new(metrics, config.capacity_bytes));
        stats.report_bytes(ledger.lock().bytes);
        let writer = Writer::new(folder, ledger.clone(), stats.clone(), config.capacity_bytes);
        let (jobs, to_do) = channel();
        let thread = std::thread::Builder::new()
            .name("stage-writer".to_owned())
            .spawn(move || writer.run(&to_do))
            .map_err(|e| StorageError::from_io("stage-writer", &e))?;
        let stage = Stage {
            origin: origin_of(&inner.info()),
            inner,
            local,
            neighbours: neighbours.map(|(_, neighbours)| Arc::new(neighbours)),
            ledger,
            stats,
            flights: Arc::default(),
            unreported: UnreportedCost::default(),
            jobs,
            block_bytes: config.block_bytes,
        };
        Ok(Self {
            stage: Arc::new(stage),
            config: config.clone(),
            thread: Some(thread),
        })
    }

    /// Waits until everything read so far is staged or given up.
    pub async fn flush(&self) {
        let (done, settled) = oneshot::channel();
        if self.stage.jobs.send(WriterTask::Flush(done)).is_ok() {
            // An error would mean that the thread has ended and everything is given up.
            let _ = settled.await;
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.stage.stats.stopped.store(true, Ordering::Release);
        let _ = self.stage.jobs.send(WriterTask::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Tier for Staged {
    fn info(&self) -> TierInfo {
        let mut info = self.stage.inner.info();
        let config = &self.config;
        let (root, blocks) = (config.root.display(), config.block_bytes);
        let whose = match config.shared {
            true => ", shared with other processes",
            false => "",
        };
        let limits = format!("{} bytes, blocks of {blocks}{whose}", config.capacity_bytes);
        info.wrappers.insert(0, format!("staged({root}, {limits})"));
        let mut notes = self.stage.local.info().notes;
        let (failures, last) = &*self.stage.stats.failures.lock();
        if *failures > 0 {
            notes.push(format!("{failures} writes failed, last error: {last}"));
        }
        info.notes.extend(notes.iter().map(|note| format!("staged: {note}")));
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.stage.inner.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let stage = &self.stage;
        let blocks = stage.blocks_of(ranges);
        let header = stage.header(object);
        let lookup = stage.ledger.lock().find(&header, &blocks);
        let missing = &lookup.missing;
        let (staged, data) = try_join(
            async { Ok(stage.read_staged(object, ranges, &lookup).await) },
            stage.fetch(object, missing),
        )
        .await?;
        let mut read = staged.data;
        read.cost.merge(&data.cost);
        read.parts.extend(data.parts);
        let (metrics, broken) = (&stage.stats.metrics, staged.broken.len());
        metrics.misses.inc_by((missing.len() + broken) as u64);
        metrics.hits.inc_by((lookup.held.len() - broken) as u64);
        if !staged.broken.is_empty() {
            let again = stage.fetch(object, &staged.broken).await?;
            read.cost.then(&again.cost);
            read.parts.extend(again.parts);
        }
        read.sort();
        let copying = Instant::now();
        let parts = ranges.iter().map(|range| read.cut(object, range));
        let parts = parts.collect::<Result<_, _>>()?;
        read.cost.copy += copying.elapsed();
        Ok(ReadMany { parts, cost: read.cost })
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.stage.inner)
    }

    fn take_unreported(&self) -> Option<ReadCost> {
        let cost = self.stage.unreported.take();
        let below = self.stage.inner.take_unreported();
        cost.into_iter().chain(below).reduce(|mut all, cost| {
            all.merge(&cost);
            all
        })
    }

    async fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        self.stage.forget(object, ranges);
        self.stage.inner.forget(object, ranges).await;
    }
}

#[cfg(test)]
mod tests;

/// Allowed block sizes in bytes.
const BLOCK_LIMITS: Range<u64> = (64 << 10)..(64 << 20) + 1;

/// Staging folder and limits: `[staged]` of a tier's TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StagedConfig {
    /// Local folder, created if missing. Only one tier of one process may use it at a time, unless it is `shared`. A
    /// folder that cannot be created, written or locked is an error at the start; a later failure only stops the
    /// staging.
    pub root: PathBuf,
    /// If true, other processes of this machine stage in the same `root`. Each process writes its own part and reads
    /// the parts of the others. A block that one process is fetching is not fetched by another: one download for the
    /// whole machine.
    #[serde(default)]
    pub shared: bool,
    /// Maximum bytes on disk, per process if shared; the least recently used blocks are evicted first.
    #[serde(default = "default_capacity_bytes")]
    pub capacity_bytes: u64,
    /// Block size in bytes, the unit of reads from the tier: a power of two from 64 KiB to 64 MiB.
    #[serde(default = "number::<{ 1 << 20 }, u64>")]
    pub block_bytes: u64,
    /// Maximum reads of the folder in flight.
    #[serde(default = "number::<128, u32>")]
    pub queue_depth: u32,
    /// If true, reads the folder with `O_DIRECT`. If the file system refuses, reads are buffered and reported as such.
    #[serde(default = "yes")]
    pub direct: bool,
}

const fn default_capacity_bytes() -> u64 {
    8 << 30
}

impl StagedConfig {
    fn check(&self) -> Result<(), StorageError> {
        let refuse = |key, detail| Err(ErrorKind::Invalid.error(key, detail));
        let (capacity, block) = (self.capacity_bytes, self.block_bytes);
        if !BLOCK_LIMITS.contains(&block) || !block.is_power_of_two() {
            let detail = format!("must be a power of two from 65536 to 67108864: {block}");
            return refuse("staged.block_bytes", detail);
        }
        if capacity < 2 * block {
            let detail = format!("must hold at least two blocks of {block} bytes: {capacity}");
            return refuse("staged.capacity_bytes", detail);
        }
        Ok(())
    }
}
