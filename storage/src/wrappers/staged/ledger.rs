//! Staged blocks, in memory. In: look-ups, staged blocks, broken blocks. Out: positions and checksums of blocks, and
//! the next block to evict. Does no I/O.

use super::folder::Found;
use super::journal::{Header, PAGE_BYTES, Record};
use crate::Object;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bytes counted for the files of a version besides its blocks: a file system block for its journal.
const FILE_BYTES: u64 = 4096;
/// Bytes of a block's record besides its checksums, and of a checksum: decimal digits and a comma.
const RECORD_BYTES: u64 = 64;
const CHECK_BYTES: u64 = 11;

/// Disk bytes of a block with its record.
pub(super) const fn disk_bytes(len: u64) -> u64 {
    let pages = len.div_ceil(PAGE_BYTES);
    pages * (PAGE_BYTES + CHECK_BYTES) + RECORD_BYTES
}

/// Capacity for `blocks` blocks of one object, including their bookkeeping on disk.
pub const fn capacity_for(blocks: u64, block_bytes: u64) -> u64 {
    FILE_BYTES + blocks * disk_bytes(block_bytes)
}

/// Staged block as it was looked up.
#[derive(Debug, Clone)]
pub(super) struct StagedBlock {
    pub(super) block: u64,
    /// Checksums of its pages.
    pub(super) checks: Arc<[u32]>,
    serial: u64,
}

/// Staged and missing blocks of a request.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Number of the version; meaningless if `held` is empty.
    pub(super) id: u64,
    /// Staged blocks, in request order.
    pub(super) held: Vec<StagedBlock>,
    pub(super) missing: Vec<u64>,
}

#[derive(Debug)]
struct BlockState {
    checks: Arc<[u32]>,
    /// Unique for each staging of a block.
    serial: u64,
    /// Tick of the last use.
    tick: u64,
}

#[derive(Debug)]
struct StagedVersion {
    header: Arc<Header>,
    blocks: HashMap<u64, BlockState>,
    /// Data file as the reading tier looked it up; `None` after a write to it.
    handle: Option<Object>,
    /// Number of writes.
    epoch: u64,
}

/// Staged blocks.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    ids: HashMap<Arc<Header>, u64>,
    versions: HashMap<u64, StagedVersion>,
    /// Blocks by tick of their last use.
    by_use: BTreeMap<u64, (u64, u64)>,
    ticks: u64,
    /// Highest number of a version so far.
    pub(super) last_id: u64,
    /// Disk bytes of all staged blocks.
    pub(super) bytes: u64,
}

impl Ledger {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn remove(&mut self, id: u64, block: u64) -> bool {
        let Some(version) = self.versions.get_mut(&id) else {
            return false;
        };
        let Some(removed) = version.blocks.remove(&block) else {
            return false;
        };
        self.by_use.remove(&removed.tick);
        self.bytes -= disk_bytes(version.header.len_of(block));
        true
    }

    fn insert(&mut self, id: u64, block: u64, checks: &[u32]) {
        self.remove(id, block);
        let tick = self.tick();
        let Some(version) = self.versions.get_mut(&id) else {
            return;
        };
        let staged = BlockState {
            checks: checks.into(),
            serial: tick,
            tick,
        };
        version.blocks.insert(block, staged);
        self.by_use.insert(tick, (id, block));
        self.bytes += disk_bytes(version.header.len_of(block));
    }

    pub(super) fn add(&mut self, id: u64, header: Header) {
        let header = Arc::new(header);
        self.last_id = self.last_id.max(id);
        self.bytes += FILE_BYTES;
        self.ids.insert(header.clone(), id);
        let version = StagedVersion {
            header,
            blocks: HashMap::new(),
            handle: None,
            epoch: 0,
        };
        self.versions.insert(id, version);
    }

    /// Loads the blocks found in a folder, least recently used first.
    pub(super) fn load(found: Vec<Found>) -> Self {
        let mut ledger = Self::default();
        for Found { id, header, blocks, .. } in found {
            // Duplicate version after a crash between creating the new one and removing the old one: either is valid.
            if ledger.ids.contains_key(&header) {
                continue;
            }
            ledger.add(id, header);
            for (block, checks) in blocks {
                ledger.insert(id, block, &checks);
            }
        }
        ledger
    }

    /// Looks up blocks, and marks staged blocks as used.
    pub(super) fn find(&mut self, header: &Header, blocks: &[u64]) -> Lookup {
        let id = self.id(header);
        let mut lookup = Lookup {
            id: id.unwrap_or_default(),
            ..Lookup::default()
        };
        for &block in blocks {
            let tick = self.tick();
            let version = id.and_then(|id| self.versions.get_mut(&id));
            let staged = version.and_then(|version| version.blocks.get_mut(&block));
            let Some(staged) = staged else {
                lookup.missing.push(block);
                continue;
            };
            let before = std::mem::replace(&mut staged.tick, tick);
            lookup.held.push(StagedBlock {
                block,
                checks: staged.checks.clone(),
                serial: staged.serial,
            });
            self.by_use.remove(&before);
            self.by_use.insert(tick, (lookup.id, block));
        }
        lookup
    }

    /// Number of a version, if any of its blocks is staged.
    pub(super) fn id(&self, header: &Header) -> Option<u64> {
        self.ids.get(header).copied()
    }

    pub(super) fn header(&self, id: u64) -> Option<Arc<Header>> {
        self.versions.get(&id).map(|version| version.header.clone())
    }

    /// Other versions of the same object of the same tier.
    pub(super) fn other_versions(&self, header: &Header) -> Vec<u64> {
        let other = |(of, id): (&Arc<Header>, &u64)| {
            (of.path == header.path && of.origin == header.origin && **of != *header).then_some(*id)
        };
        self.ids.iter().filter_map(other).collect()
    }

    /// Forgets a version.
    pub(super) fn forget(&mut self, id: u64) {
        let Some(version) = self.versions.remove(&id) else {
            return;
        };
        for (block, staged) in &version.blocks {
            self.by_use.remove(&staged.tick);
            self.bytes -= disk_bytes(version.header.len_of(*block));
        }
        self.ids.remove(&version.header);
        self.bytes -= FILE_BYTES;
    }

    pub(super) fn has(&self, id: u64, block: u64) -> bool {
        self.versions
            .get(&id)
            .is_some_and(|version| version.blocks.contains_key(&block))
    }

    /// Adds durable blocks.
    pub(super) fn publish(&mut self, id: u64, blocks: &[Record]) {
        for record in blocks {
            if let Record::Staged { block, checks } = record {
                self.insert(id, *block, checks);
            }
        }
    }

    /// Removes a broken block, unless it was replaced meanwhile.
    pub(super) fn reject(&mut self, id: u64, held: &StagedBlock) -> bool {
        let staged = self
            .versions
            .get(&id)
            .and_then(|version| version.blocks.get(&held.block));
        staged.is_some_and(|block| block.serial == held.serial) && self.remove(id, held.block)
    }

    /// Removes the least recently used block.
    pub(super) fn evict(&mut self) -> Option<(u64, u64)> {
        let (_, (id, block)) = self.by_use.first_key_value().map(|(tick, of)| (*tick, *of))?;
        self.remove(id, block);
        Some((id, block))
    }

    /// Records of all staged blocks of a version.
    pub(super) fn records(&self, id: u64) -> Vec<Record> {
        let blocks = self.versions.get(&id).map(|version| &version.blocks);
        let record = |(block, staged): (&u64, &BlockState)| Record::Staged {
            block: *block,
            checks: staged.checks.to_vec(),
        };
        blocks.into_iter().flatten().map(record).collect()
    }

    /// Approximate size of a journal with these records.
    pub(super) fn journal_bytes(&self, id: u64) -> u64 {
        self.versions.get(&id).map_or(0, |version| {
            let checks = CHECK_BYTES * version.header.block_bytes.div_ceil(PAGE_BYTES);
            version.blocks.len() as u64 * (RECORD_BYTES + checks)
        })
    }

    pub(super) fn is_empty(&self, id: u64) -> bool {
        self.versions.get(&id).is_none_or(|version| version.blocks.is_empty())
    }

    /// Returns the looked-up data file, and the number of writes before the look-up.
    pub(super) fn handle(&self, id: u64) -> (Option<Object>, u64) {
        let version = self.versions.get(&id);
        version.map_or((None, 0), |version| (version.handle.clone(), version.epoch))
    }

    /// Stores a look-up, unless the file was written to since.
    pub(super) fn store_handle(&mut self, id: u64, epoch: u64, handle: &Object) {
        if let Some(version) = self.versions.get_mut(&id)
            && version.epoch == epoch
        {
            version.handle = Some(handle.clone());
        }
    }

    /// Records a write to the data file, which must then be looked up again.
    pub(super) fn touch(&mut self, id: u64) {
        if let Some(version) = self.versions.get_mut(&id) {
            version.handle = None;
            version.epoch += 1;
        }
    }
}
