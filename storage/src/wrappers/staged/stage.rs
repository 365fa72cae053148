//! State shared by a stage's calls, its fetches and its reads.

use super::journal::Header;
use super::ledger::Ledger;
use super::neighbours::Neighbours;
use super::tally::Tally;
use super::task::{Fetched, WriterTask};
use crate::ranges;
use crate::tier::{Object, Tier};
use crate::tiers::nvme::NvmeTier;
use crate::unreported::UnreportedCost;
use crate::wrappers::single_flight::SingleFlight;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// State shared by the tier's calls and its fetches.
pub(super) struct Stage {
    pub(super) inner: Arc<dyn Tier>,
    pub(super) local: NvmeTier,
    /// Other processes that stage in the same root; `None` if the root is not shared.
    pub(super) neighbours: Option<Arc<Neighbours>>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) tally: Arc<Tally>,
    pub(super) flights: Arc<SingleFlight<Fetched>>,
    /// Cost of fetches whose caller went away.
    pub(super) unreported: UnreportedCost,
    pub(super) jobs: Sender<WriterTask>,
    pub(super) origin: String,
    pub(super) block_bytes: u64,
}

impl Stage {
    /// The blocks that hold the ranges, in order, none twice.
    pub(super) fn blocks_of(&self, ranges: &[Range<u64>]) -> Vec<u64> {
        let blocks = ranges.iter().flat_map(|range| ranges::blocks(range, self.block_bytes));
        let mut blocks: Vec<u64> = blocks.collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    pub(super) fn header(&self, object: &Object) -> Header {
        Header {
            origin: self.origin.clone(),
            path: object.path.as_str().to_owned(),
            version: object.version.clone(),
            size: object.size,
            block_bytes: self.block_bytes,
        }
    }

    pub(super) fn extent(&self, object: &Object, block: u64) -> Range<u64> {
        ranges::block(block, self.block_bytes, object.size)
    }
}
