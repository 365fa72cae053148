//! Reads of blocks. Staged blocks: ranges and a look-up in; the bytes that match their checksums, and the broken
//! blocks, out. Other blocks: blocks in; their bytes from the tier, fetched once for all callers, and a task for the
//! writer, out.

use super::folder::data_name;
use super::journal::PAGE_BYTES;
use super::ledger::{Lookup, StagedBlock};
use super::neighbours::Claim;
use super::{PENDING_BYTES, Stage, WriterTask};
use crate::wrappers::Fetched;
use crate::wrappers::single_flight::{Lead, VersionKey, share_of};
use crate::{ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, ranges};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::oneshot;

/// Maximum look-ups of a file that the writer changes meanwhile.
const LOOK_UPS: usize = 4;

/// Result of a read of the folder.
#[derive(Debug, Default)]
pub(super) struct FromFolder {
    pub(super) data: Fetched,
    /// Blocks that must be read from the tier instead, in order.
    pub(super) broken: Vec<u64>,
}

/// Pages that hold the ranges' bytes in staged blocks, in order, without duplicates.
fn pages_of(ranges: &[Range<u64>], held: &BTreeMap<u64, &StagedBlock>, block_bytes: u64) -> Vec<Range<u64>> {
    let mut pages: Vec<Range<u64>> = Vec::new();
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        for (block, _) in held.range(ranges::blocks(range, block_bytes)) {
            let from = range.start.max(block * block_bytes) / PAGE_BYTES;
            let to = range.end.min((block + 1) * block_bytes).div_ceil(PAGE_BYTES);
            pages.push(from * PAGE_BYTES..to * PAGE_BYTES);
        }
    }
    ranges::merged(&pages)
}

impl Stage {
    /// Reads staged blocks of the ranges from the folder. Never fails: unreadable blocks are read from the tier.
    pub(super) async fn read_staged(&self, object: &Object, ranges: &[Range<u64>], lookup: &Lookup) -> FromFolder {
        if lookup.held.is_empty() {
            return FromFolder::default();
        }
        let held: BTreeMap<u64, &StagedBlock> = lookup.held.iter().map(|held| (held.block, held)).collect();
        let extents = pages_of(ranges, &held, self.block_bytes);
        let read = match self.read_file(lookup.id, &extents).await {
            Ok(read) => read,
            Err(error) => {
                // Evicted meanwhile, or constantly written to: the blocks are not broken.
                if !matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
                    tracing::warn!(%object.path, %error, "cannot read staged blocks");
                    lookup.held.iter().for_each(|held| self.reject(lookup.id, held));
                }
                return FromFolder {
                    broken: held.into_keys().collect(),
                    ..FromFolder::default()
                };
            }
        };
        let checking = Instant::now();
        // These reads did not reach the tier.
        let cost = ReadCost {
            requests: 0,
            wire_bytes: 0,
            retries: 0,
            hedges: 0,
            ..read.cost
        };
        let mut from_folder = FromFolder::default();
        from_folder.data.cost = cost;
        for (extent, bytes) in extents.into_iter().zip(read.parts) {
            self.check(object, &held, extent, &bytes, &mut from_folder);
        }
        from_folder.data.cost.copy += checking.elapsed();
        from_folder.broken.dedup();
        for held in from_folder.broken.iter().filter_map(|block| held.get(block)) {
            self.reject(lookup.id, held);
        }
        from_folder
    }

    /// Reads the current data file of a version.
    async fn read_file(&self, id: u64, extents: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let path = ObjectPath::new(&data_name(id))?;
        let mut look_ups = 0;
        loop {
            look_ups += 1;
            let handle = self.ledger.lock().handle(id);
            let file = match handle {
                (Some(file), _) => file,
                (None, epoch) => {
                    let file = self.local.stat(&path).await?;
                    self.ledger.lock().store_handle(id, epoch, &file);
                    file
                }
            };
            match self.local.read_many(&file, extents).await {
                Err(error) if error.kind() == ErrorKind::Changed && look_ups < LOOK_UPS => self.ledger.lock().touch(id),
                read => return read,
            }
        }
    }

    /// Takes the pages of an extent that match their checksums. A block with a mismatching page is left out completely.
    fn check(
        &self,
        object: &Object,
        held: &BTreeMap<u64, &StagedBlock>,
        extent: Range<u64>,
        bytes: &Bytes,
        into: &mut FromFolder,
    ) {
        let mut valid: Option<Range<u64>> = None;
        let take = |run: Range<u64>| {
            let end = run.end.min(object.size);
            let slice = (run.start - extent.start) as usize..(end - extent.start) as usize;
            (run.start..end, bytes.slice(slice))
        };
        for block in extent.start / self.block_bytes..extent.end.div_ceil(self.block_bytes) {
            let start = extent.start.max(block * self.block_bytes);
            let end = extent.end.min((block + 1) * self.block_bytes);
            let fits = held.get(&block).is_some_and(|held| {
                (start..end).step_by(PAGE_BYTES as usize).all(|at| {
                    let page = (at - block * self.block_bytes) / PAGE_BYTES;
                    let (from, to) = (at - extent.start, (at + PAGE_BYTES).min(object.size) - extent.start);
                    let page_bytes = bytes.get(from as usize..to as usize);
                    page_bytes.map(crc32c::crc32c) == held.checks.get(page as usize).copied()
                })
            });
            match (&mut valid, fits) {
                (Some(run), true) => run.end = end,
                (None, true) => valid = Some(start..end),
                (_, false) => {
                    into.broken.push(block);
                    into.data.parts.extend(valid.take().map(take));
                }
            }
        }
        into.data.parts.extend(valid.map(take));
    }

    /// Removes the blocks of these ranges, because their bytes are damaged although they match their checksums: the
    /// damage came from the tier. Blocks still in the queue are removed once they are written.
    pub(super) fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        let (header, blocks) = (self.header(object), self.blocks_of(ranges));
        let version = VersionKey::of(object);
        for block in &blocks {
            self.flights.forget(&version.extent(&self.extent(object, *block)));
        }
        if let Some(neighbours) = &self.neighbours {
            neighbours.distrust(&header, &blocks);
        }
        let lookup = self.ledger.lock().find(&header, &blocks);
        lookup.held.iter().for_each(|held| self.reject(lookup.id, held));
        if !lookup.missing.is_empty() {
            let blocks = lookup.missing;
            // An error would mean that the thread has ended, so nothing is staged any more.
            let _ = self.jobs.send(WriterTask::Forget { header, blocks });
        }
    }

    /// Removes an unusable staged block, unless it is already gone.
    fn reject(&self, id: u64, held: &StagedBlock) {
        if !self.ledger.lock().reject(id, held) {
            return;
        }
        let torn = &self.stats.metrics.torn;
        torn.inc();
        let count = torn.get();
        if count.is_power_of_two() {
            let file = data_name(id);
            let detail = "staged block is damaged; reading it from the tier";
            tracing::warn!(file, held.block, count, "{detail}");
        }
        // An error would mean that the thread has ended, so nothing is staged any more.
        let _ = self.jobs.send(WriterTask::Drop { id, block: held.block });
    }
}

/// Blocks read from the tier, with their claim if processes share a root.
type StageTask = (Vec<u64>, Option<Claim>);

/// Call that started a fetch, and the fetch's cost once it has ended. If the call is dropped before it has taken the
/// cost, or ends before the fetch, the cost is added to the unreported cost.
struct Caller {
    stage: Arc<Stage>,
    cost: oneshot::Receiver<ReadCost>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.cost.close();
        if let Ok(cost) = self.cost.try_recv() {
            self.stage.unreported.add(&cost);
        }
    }
}

impl Stage {
    /// Fetches blocks from the tier: joins fetches in flight, and starts one for the other blocks.
    pub(super) async fn fetch(self: &Arc<Self>, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let mut data = Fetched::default();
        if blocks.is_empty() {
            return Ok(data);
        }
        let version = VersionKey::of(object);
        let keys = blocks.iter().map(|block| version.extent(&self.extent(object, *block)));
        let mut shared = self.flights.join(keys.collect());
        let caller = shared.lead.take().map(|lead| {
            // On its own task: it continues if this call is dropped.
            let (to_caller, cost) = oneshot::channel();
            let (stage, object) = (self.clone(), object.clone());
            tokio::spawn(async move { stage.lead(&object, lead, to_caller).await });
            Caller {
                stage: self.clone(),
                cost,
            }
        });
        let waiting = Instant::now();
        // Blocks already fetched but still being written are in memory.
        let in_memory = shared.tickets.iter().map(|ticket| !ticket.led && ticket.has_ended());
        let in_memory: Vec<bool> = in_memory.collect();
        for (ticket, in_memory) in shared.tickets.iter().zip(in_memory) {
            let other = ticket.result(object).await?;
            let cost = match in_memory {
                true => ReadCost {
                    via: ViaSet::of(Via::Memory),
                    cache_hits: 1,
                    ..ReadCost::default()
                },
                false => share_of(&other.cost, ticket.led, waiting.elapsed()),
            };
            data.cost.merge(&cost);
            data.parts.extend(other.parts.iter().cloned());
        }
        if let Some(mut caller) = caller {
            // The call reports the cost itself.
            let _ = caller.cost.try_recv();
        }
        Ok(data)
    }

    /// Makes a fetch, queues its blocks for staging, and answers it: the writer has the bytes before a reader has.
    async fn lead(&self, object: &Object, lead: Lead<Fetched>, to_caller: oneshot::Sender<ReadCost>) {
        let answer = lead.answer();
        match self.fetch_unless_staged(object, &lead).await {
            Ok((data, to_stage)) => {
                if let Err(cost) = to_caller.send(data.cost) {
                    self.unreported.add(&cost);
                }
                self.stage(object, &data, lead, to_stage);
                answer(Ok(Arc::new(data)));
            }
            Err(error) => {
                // The next caller starts a new fetch.
                drop(lead);
                answer(Err(error));
            }
        }
    }

    /// Fetches the blocks of `lead`. Another fetch of the same blocks may have ended between this call's look-up and
    /// the start of its own fetch: those blocks are in the folder by now.
    async fn fetch_unless_staged(
        &self,
        object: &Object,
        lead: &Lead<Fetched>,
    ) -> Result<(Fetched, StageTask), StorageError> {
        let blocks = lead.keys.iter().map(|key| key.extent.start / self.block_bytes);
        let blocks: Vec<u64> = blocks.collect();
        let header = self.header(object);
        let lookup = self.ledger.lock().find(&header, &blocks);
        let held: Vec<Range<u64>> = lookup.held.iter().map(|held| self.extent(object, held.block)).collect();
        let staged = self.read_staged(object, &held, &lookup).await;
        let mut missing = [lookup.missing, staged.broken].concat();
        missing.sort_unstable();
        let mut data = staged.data;
        let claim = self.read_neighbours(object, &mut missing, &mut data).await;
        if !missing.is_empty() {
            let fetched = self.fetch_from_tier(object, &missing).await?;
            data.cost.then(&fetched.cost);
            data.parts.extend(fetched.parts);
        }
        Ok((data, (missing, claim)))
    }

    /// Takes the blocks that other processes have staged, or fetched while this process waited, and claims the rest.
    async fn read_neighbours(&self, object: &Object, missing: &mut Vec<u64>, data: &mut Fetched) -> Option<Claim> {
        let neighbours = self.neighbours.as_ref()?;
        let header = self.header(object);
        let mut claim = None;
        let started = Instant::now();
        // Neighbours are asked again after claiming: another process may have finished just before.
        while !missing.is_empty() {
            let read = neighbours.read(&header, missing).await;
            self.stats.metrics.neighbours.inc_by(read.len() as u64);
            missing.retain(|block| read.iter().all(|(of, _)| of != block));
            let parts = read
                .into_iter()
                .map(|(block, bytes)| (self.extent(object, block), bytes));
            data.parts.extend(parts);
            if claim.is_some() {
                break;
            }
            if !missing.is_empty() {
                claim = Some(neighbours.claim(&header, missing).await);
            }
        }
        data.cost.queue += started.elapsed();
        claim
    }

    async fn fetch_from_tier(&self, object: &Object, blocks: &[u64]) -> Result<Fetched, StorageError> {
        let extents: Vec<_> = blocks.iter().map(|block| self.extent(object, *block)).collect();
        let runs = ranges::adjacent(&extents);
        let (parts, cost) = if let [run] = &runs[..] {
            // The tier's own method of reading a large range.
            let read = self.inner.read(object, run.clone()).await?;
            (vec![read.bytes], read.cost)
        } else {
            let read = self.inner.read_many(object, &runs).await?;
            (read.parts, read.cost)
        };
        let is_complete = |(run, bytes): (&Range<u64>, &Bytes)| bytes.len() as u64 == run.end - run.start;
        if parts.len() != runs.len() || !runs.iter().zip(&parts).all(is_complete) {
            let detail = "tier returned fewer bytes than requested";
            return Err(ErrorKind::Corrupt.error(&object.path, detail));
        }
        let parts = runs.into_iter().zip(parts).collect();
        Ok(Fetched { parts, cost })
    }

    /// Sends blocks to the writer, unless too many are waiting.
    fn stage(&self, object: &Object, data: &Fetched, lead: Lead<Fetched>, (fetched, claim): StageTask) {
        let mut blocks = Vec::with_capacity(fetched.len());
        let mut len = 0;
        for block in fetched {
            let extent = self.extent(object, block);
            let within = |(run, _): &&(Range<u64>, Bytes)| run.start <= extent.start && extent.end <= run.end;
            if let Some((run, bytes)) = data.parts.iter().find(within) {
                let at = (extent.start - run.start) as usize;
                let block_len = (extent.end - extent.start) as usize;
                blocks.push((block, bytes.slice(at..at + block_len)));
                len += block_len as u64;
            }
        }
        let pending = &self.stats.pending;
        let admitted = pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0 || now + len <= PENDING_BYTES).then_some(now + len)
        });
        if admitted.is_err() {
            self.stats.metrics.skipped.inc_by(blocks.len() as u64);
            return;
        }
        let header = self.header(object);
        // An error would mean that the thread has ended, so nothing is staged any more.
        let _ = self.jobs.send(WriterTask::Store {
            header,
            blocks,
            lead,
            claim,
        });
    }
}
