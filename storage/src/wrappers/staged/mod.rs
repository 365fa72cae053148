//! A copy of what was read, on a local folder. In: reads. Out: the same bytes, from the folder where they are there,
//! else from the tier, and then also on the folder.
//!
//! - A version of an object is copied in blocks; what a call misses goes to the tier as one `read_many`, each block
//!   once however many ask for it, and is answered before it is written.
//! - Each page of 4 KiB has a CRC32C. It is checked on every read, so that a torn or flipped page costs one more read
//!   of the tier and is never returned.
//! - The folder outlives the process. Keys are tier, path and version: another version never
//!   mixes in. Of a tier in memory nothing is used again, because its versions mean nothing after a restart.
//! - When the folder is full, broken or gone, reads go to the tier and the failure is counted ([`StagedCounts`]).

mod folder;
mod journal;
mod ledger;
mod read;
mod writer;

use super::flight::{Lead, SingleFlight, Version, joined, share_of};
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, Read, ReadCost, ReadMany, Tier, TierInfo, check_ranges};
use crate::tiers::nvme::{LocalOptions, NvmeTier, blocking};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use folder::{Folder, Found};
use futures::future::try_join;
use journal::Header;
use ledger::{Ledger, Lookup};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::oneshot;
use writer::{Job, PENDING_BYTES, Tally, Writer};

/// The smallest and the largest block, in bytes.
const BLOCK_LIMITS: Range<u64> = (64 << 10)..(64 << 20) + 1;

/// Where and how much to stage: `[staged]` of a tier's TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedConfig {
    /// A local folder, made where it is missing. One tier of one process at a time may use it.
    pub root: PathBuf,
    /// Bytes on disk at most; the least recently used blocks go first.
    #[serde(default = "default_capacity_bytes")]
    pub capacity_bytes: u64,
    /// Bytes of a block, which is what is read of the tier: a power of two from 64 KiB to 64 MiB.
    #[serde(default = "default_block_bytes")]
    pub block_bytes: u64,
    /// Reads of the folder in flight at most.
    #[serde(default = "default_queue_depth")]
    pub queue_depth: u32,
    /// Whether to read the folder with `O_DIRECT`; where its file system refuses, reads are buffered and say so.
    #[serde(default = "yes")]
    pub direct: bool,
}

const fn default_capacity_bytes() -> u64 {
    8 << 30
}
const fn default_block_bytes() -> u64 {
    1 << 20
}
const fn default_queue_depth() -> u32 {
    128
}
const fn yes() -> bool {
    true
}

impl StagedConfig {
    fn check(&self) -> Result<(), StorageError> {
        let refuse = |key, detail| Err(StorageError::new(ErrorKind::Invalid, key, detail));
        let (capacity, block) = (self.capacity_bytes, self.block_bytes);
        if !BLOCK_LIMITS.contains(&block) || !block.is_power_of_two() {
            let detail = format!("must be a power of two from 65536 to 67108864, is {block}");
            return refuse("staged.block_bytes", detail);
        }
        if capacity < 2 * block {
            let detail = format!("must hold at least two blocks of {block} bytes, is {capacity}");
            return refuse("staged.capacity_bytes", detail);
        }
        Ok(())
    }
}

/// What a stage has done since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedCounts {
    /// Blocks written.
    pub staged: u64,
    /// Blocks that had to go for others.
    pub evicted: u64,
    /// Blocks that did not fit their checksum, or could not be read, and were read from the tier again.
    pub broken: u64,
    /// Blocks not written because too many were waiting, or shortly after a failure.
    pub skipped: u64,
    /// Writes that failed.
    pub failures: u64,
    /// The last of these.
    pub last_failure: Option<String>,
    /// Bytes on disk now.
    pub bytes: u64,
}

/// What a fetch brought: the bytes of joined blocks, in order.
#[derive(Debug)]
pub(super) struct Landed {
    parts: Vec<(Range<u64>, Bytes)>,
    cost: ReadCost,
}

/// What the tier's own calls and its fetches share.
struct Stage {
    inner: Arc<dyn Tier>,
    local: NvmeTier,
    ledger: Arc<Ledger>,
    tally: Arc<Tally>,
    flights: Arc<SingleFlight<Landed>>,
    jobs: Sender<Job>,
    origin: String,
    block_bytes: u64,
}

/// A tier whose reads are copied to a local folder. Dropping it stops and joins its writing thread; what was not
/// written by then is not staged.
pub struct Staged {
    stage: Arc<Stage>,
    config: StagedConfig,
    thread: Option<JoinHandle<()>>,
}

/// What tells this tier's objects from those of others.
fn origin_of(info: &TierInfo) -> String {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let name = format!("{} {}", info.kind, info.location);
    if info.kind != "memory" {
        return name;
    }
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    format!("{name} {} {} {serial}", std::process::id(), since.as_nanos())
}

impl Staged {
    /// Opens the folder and wraps a tier.
    ///
    /// # Errors
    /// A key that makes no sense, a folder that cannot be made or is in use, or no io_uring; the error says what to do.
    pub async fn open(inner: Arc<dyn Tier>, config: &StagedConfig) -> Result<Self, StorageError> {
        config.check()?;
        let (root, block_bytes) = (config.root.clone(), config.block_bytes);
        let name = root.display().to_string();
        let (folder, found) = blocking(&name, move || Folder::open(&root, block_bytes)).await?;
        Self::with_folder(inner, config, folder, found).await
    }

    async fn with_folder(
        inner: Arc<dyn Tier>,
        config: &StagedConfig,
        folder: Folder,
        found: Vec<Found>,
    ) -> Result<Self, StorageError> {
        let options = LocalOptions {
            root: config.root.clone(),
            kind: "nvme",
            notes: Vec::new(),
            queue_depth: config.queue_depth,
            direct: config.direct,
        };
        let local = NvmeTier::open_with(options).await?;
        let (ledger, tally) = (Arc::new(Ledger::load(found)), Arc::new(Tally::default()));
        let writer = Writer::new(folder, ledger.clone(), tally.clone(), config.capacity_bytes);
        let (jobs, to_do) = channel();
        let thread = std::thread::Builder::new()
            .name("stage-writer".to_owned())
            .spawn(move || writer.run(&to_do))
            .map_err(|e| StorageError::from_io("stage-writer", &e))?;
        let stage = Stage {
            origin: origin_of(&inner.info()),
            inner,
            local,
            ledger,
            tally,
            flights: Arc::default(),
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
    pub async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        if self.stage.jobs.send(Job::Settle(done)).is_ok() {
            // An error would mean that the thread has ended, with everything given up.
            let _ = settled.await;
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> StagedCounts {
        let tally = &self.stage.tally;
        let last_failure = tally.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        StagedCounts {
            staged: tally.staged.load(Ordering::Relaxed),
            evicted: tally.evicted.load(Ordering::Relaxed),
            broken: tally.broken.load(Ordering::Relaxed),
            skipped: tally.skipped.load(Ordering::Relaxed),
            failures: tally.failures.load(Ordering::Relaxed),
            last_failure: last_failure.clone(),
            bytes: self.stage.ledger.bytes(),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.stage.tally.stopped.store(true, Ordering::Release);
        let _ = self.stage.jobs.send(Job::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Stage {
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
        block * self.block_bytes..((block + 1) * self.block_bytes).min(object.size)
    }

    /// Blocks from the tier: from fetches under way, and from one of this call's own.
    async fn fetch(self: &Arc<Self>, object: &Object, blocks: &[u64]) -> Result<Landed, StorageError> {
        let mut landed = Landed {
            parts: Vec::new(),
            cost: ReadCost::default(),
        };
        if blocks.is_empty() {
            return Ok(landed);
        }
        let version = Version::of(object);
        let keys = blocks.iter().map(|block| version.extent(&self.extent(object, *block)));
        let mut boarded = self.flights.board(keys.collect());
        if let Some(lead) = boarded.lead.take() {
            // On a task of its own: it goes on when this call is dropped.
            let (stage, object) = (self.clone(), object.clone());
            tokio::spawn(async move { stage.lead(&object, lead).await });
        }
        let waiting = Instant::now();
        // What others have fetched already and is still being written is in memory.
        let in_memory = boarded
            .tickets
            .iter()
            .map(|ticket| !ticket.is_led() && ticket.has_landed());
        let in_memory: Vec<bool> = in_memory.collect();
        for (ticket, in_memory) in boarded.tickets.iter().zip(in_memory) {
            let other = ticket.landed(object).await?;
            let cost = match in_memory {
                true => ReadCost {
                    via: ViaSet::of(Via::Memory),
                    cache_hits: 1,
                    ..ReadCost::default()
                },
                false => share_of(&other.cost, ticket.is_led(), waiting.elapsed()),
            };
            landed.cost.merge(&cost);
            landed.parts.extend(other.parts.iter().cloned());
        }
        Ok(landed)
    }

    /// Makes a fetch, has it staged, and answers it: the writer has it in hand when a reader has its bytes.
    async fn lead(&self, object: &Object, lead: Lead<Landed>) {
        let landed = self.fetch_from_tier(object, &lead).await.map(Arc::new);
        let answer = lead.answer();
        match &landed {
            Ok(landed) => self.stage(object, landed, lead),
            // The next one who asks begins anew.
            Err(_) => drop(lead),
        }
        answer.land(landed);
    }

    async fn fetch_from_tier(&self, object: &Object, lead: &Lead<Landed>) -> Result<Landed, StorageError> {
        let mut runs = joined(lead.keys().iter().map(super::flight::ExtentKey::extent));
        let (parts, cost) = if runs.len() == 1 {
            // The tier's own way of reading one large range.
            let read = self.inner.read(object, runs.swap_remove(0)).await?;
            runs = joined(lead.keys().iter().map(super::flight::ExtentKey::extent));
            (vec![read.bytes], read.cost)
        } else {
            let read = self.inner.read_many(object, &runs).await?;
            (read.parts, read.cost)
        };
        let whole = |(run, bytes): (&Range<u64>, &Bytes)| bytes.len() as u64 == run.end - run.start;
        if parts.len() != runs.len() || !runs.iter().zip(&parts).all(whole) {
            let detail = "the tier returned fewer bytes than it was asked for";
            return Err(StorageError::new(ErrorKind::Corrupt, object.path.as_str(), detail));
        }
        let parts = runs.into_iter().zip(parts).collect();
        Ok(Landed { parts, cost })
    }

    /// Hands blocks to the writer, unless too many are waiting.
    fn stage(&self, object: &Object, landed: &Landed, lead: Lead<Landed>) {
        let mut blocks = Vec::with_capacity(lead.keys().len());
        let mut len = 0;
        for key in lead.keys() {
            let extent = key.extent();
            let within = |(run, _): &&(Range<u64>, Bytes)| run.start <= extent.start && extent.end <= run.end;
            if let Some((run, bytes)) = landed.parts.iter().find(within) {
                let at = (extent.start - run.start) as usize;
                let block_len = (extent.end - extent.start) as usize;
                blocks.push((extent.start / self.block_bytes, bytes.slice(at..at + block_len)));
                len += block_len as u64;
            }
        }
        let pending = &self.tally.pending;
        let admitted = pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0 || now + len <= PENDING_BYTES).then_some(now + len)
        });
        if admitted.is_err() {
            self.tally.skipped.fetch_add(blocks.len() as u64, Ordering::Relaxed);
            return;
        }
        let header = self.header(object);
        // An error would mean that the thread has ended: then nothing is staged any more.
        let _ = self.jobs.send(Job::Store { header, blocks, lead });
    }
}

/// One range out of the bytes that cover it: a slice where one piece has it all, else a copy.
fn cut(object: &Object, range: &Range<u64>, sources: &[(Range<u64>, Bytes)]) -> Result<Bytes, StorageError> {
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        // Sorted by start; of those that begin before, some may end before.
        let before = sources.partition_point(|(extent, _)| extent.start <= at);
        let found = sources[..before].iter().rev().find(|(extent, _)| extent.end > at);
        let Some((extent, bytes)) = found else {
            let detail = format!("no source for byte {at}");
            return Err(StorageError::new(ErrorKind::Corrupt, object.path.as_str(), detail));
        };
        let to = extent.end.min(range.end);
        pieces.push(bytes.slice((at - extent.start) as usize..(to - extent.start) as usize));
        at = to;
    }
    match pieces.len() {
        0 => Ok(Bytes::new()),
        1 => Ok(pieces.swap_remove(0)),
        _ => {
            let mut whole = BytesMut::with_capacity((range.end - range.start) as usize);
            pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
            Ok(whole.freeze())
        }
    }
}

#[async_trait]
impl Tier for Staged {
    fn info(&self) -> TierInfo {
        let mut info = self.stage.inner.info();
        let StagedConfig {
            root,
            capacity_bytes,
            block_bytes,
            ..
        } = &self.config;
        let root = root.display();
        info.wrappers.insert(
            0,
            format!("staged({root}, {capacity_bytes} bytes, blocks of {block_bytes})"),
        );
        let notes = self.stage.local.info().notes;
        info.notes
            .extend(notes.into_iter().map(|note| format!("staged: {note}")));
        if let Some(why) = self.counts().last_failure {
            let failures = self.counts().failures;
            info.notes
                .push(format!("staged: {failures} writes failed, the last one: {why}"));
        }
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.stage.inner.stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        let ReadMany { mut parts, cost } = self.read_many(object, std::slice::from_ref(&range)).await?;
        Ok(Read {
            bytes: parts.pop().unwrap_or_default(),
            cost,
        })
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let stage = &self.stage;
        let full = ranges.iter().filter(|range| !range.is_empty());
        let blocks = full.flat_map(|range| range.start / stage.block_bytes..range.end.div_ceil(stage.block_bytes));
        let mut blocks: Vec<u64> = blocks.collect();
        blocks.sort_unstable();
        blocks.dedup();
        let lookup = stage.ledger.find(&stage.header(object), &blocks);
        let Lookup { missing, .. } = &lookup;
        let (staged, landed) = try_join(
            async { Ok(stage.read_staged(object, ranges, &lookup).await) },
            stage.fetch(object, missing),
        )
        .await?;
        let mut cost = staged.cost;
        cost.merge(&landed.cost);
        let mut sources = staged.parts;
        sources.extend(landed.parts);
        if !staged.broken.is_empty() {
            let again = stage.fetch(object, &staged.broken).await?;
            // One after the other: times add.
            let (queue, device) = (cost.queue, cost.device);
            cost.merge(&again.cost);
            cost.queue = queue + again.cost.queue;
            cost.device = device + again.cost.device;
            sources.extend(again.parts);
        }
        sources.sort_unstable_by_key(|(extent, _)| (extent.start, extent.end));
        let copying = Instant::now();
        let parts = ranges.iter().map(|range| cut(object, range, &sources));
        let parts = parts.collect::<Result<_, _>>()?;
        cost.copy += copying.elapsed();
        Ok(ReadMany { parts, cost })
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.stage.inner.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.stage.inner.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.stage.inner.delete(path).await
    }
}

#[cfg(test)]
mod tests;
