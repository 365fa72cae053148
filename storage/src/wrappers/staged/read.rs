//! Reads of staged blocks. In: ranges and a look-up. Out: the bytes that fit their checksums, and the blocks whose
//! bytes do not.

use super::folder::data_name;
use super::journal::PAGE_BYTES;
use super::ledger::{Lookup, StagedBlock};
use super::stage::{Fetched, Stage, WriterTask};
use crate::ranges;
use crate::wrappers::single_flight::Version;
use crate::{ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// Maximum look-ups of a file that the writer writes to meanwhile.
const LOOK_UPS: usize = 4;

/// Result of a read of the folder.
#[derive(Debug, Default)]
pub(super) struct FromFolder {
    pub(super) landed: Fetched,
    /// Blocks to be read from the tier after all, in order.
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
    ranges::merged(pages)
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
                // Evicted meanwhile, or written to all the time: no fault of the blocks.
                if !matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
                    tracing::warn!(%object.path, %error, "cannot read what is staged");
                    lookup.held.iter().for_each(|held| self.reject(lookup.id, held));
                }
                return FromFolder {
                    broken: held.into_keys().collect(),
                    ..FromFolder::default()
                };
            }
        };
        let checking = Instant::now();
        // None of it was asked of the tier.
        let cost = ReadCost {
            requests: 0,
            wire_bytes: 0,
            retries: 0,
            hedges: 0,
            ..read.cost
        };
        let mut from_folder = FromFolder::default();
        from_folder.landed.cost = cost;
        for (extent, bytes) in extents.into_iter().zip(read.parts) {
            self.check(object, &held, extent, &bytes, &mut from_folder);
        }
        from_folder.landed.cost.copy += checking.elapsed();
        from_folder.broken.dedup();
        for held in from_folder.broken.iter().filter_map(|block| held.get(block)) {
            self.reject(lookup.id, held);
        }
        from_folder
    }

    /// Reads the data file of a version, as it is now.
    async fn read_file(&self, id: u64, extents: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let path = ObjectPath::new(&data_name(id))?;
        let mut look_ups = 0;
        loop {
            look_ups += 1;
            let known = self.ledger.lock().handle(id);
            let file = match known {
                (Some(file), _) => file,
                (None, epoch) => {
                    let file = self.local.stat(&path).await?;
                    self.ledger.lock().keep_handle(id, epoch, &file);
                    file
                }
            };
            match self.local.read_many(&file, extents).await {
                Err(error) if error.kind() == ErrorKind::Changed && look_ups < LOOK_UPS => self.ledger.lock().touch(id),
                read => return read,
            }
        }
    }

    /// Takes the pages of an extent that fit their checksums. A block with a page that does not fit is left out whole.
    fn check(
        &self,
        object: &Object,
        held: &BTreeMap<u64, &StagedBlock>,
        extent: Range<u64>,
        bytes: &Bytes,
        into: &mut FromFolder,
    ) {
        let mut whole: Option<Range<u64>> = None;
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
            match (&mut whole, fits) {
                (Some(run), true) => run.end = end,
                (None, true) => whole = Some(start..end),
                (_, false) => {
                    into.broken.push(block);
                    into.landed.parts.extend(whole.take().map(take));
                }
            }
        }
        into.landed.parts.extend(whole.map(take));
    }

    /// Removes the blocks of these ranges, because their bytes are damaged although they fit their checksums: so the
    /// damage came from the tier. Blocks still in the queue are removed once they are written.
    pub(super) fn forget(&self, object: &Object, ranges: &[Range<u64>]) {
        let (header, blocks) = (self.header(object), self.blocks_of(ranges));
        let version = Version::of(object);
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
            // An error would mean that the thread has ended: then nothing is staged any more.
            let _ = self.jobs.send(WriterTask::Forget { header, blocks });
        }
    }

    /// A staged block that cannot be used is forgotten, unless it has gone by itself.
    fn reject(&self, id: u64, held: &StagedBlock) {
        if !self.ledger.lock().reject(id, held) {
            return;
        }
        let torn = &self.tally.metrics.torn;
        torn.inc();
        let count = torn.get();
        if count.is_power_of_two() {
            let file = data_name(id);
            tracing::warn!(
                file,
                held.block,
                count,
                "a staged block is broken and is read from the tier again"
            );
        }
        // An error would mean that the thread has ended: then nothing is staged any more.
        let _ = self.jobs.send(WriterTask::Drop { id, block: held.block });
    }
}
