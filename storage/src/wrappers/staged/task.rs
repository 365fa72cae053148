//! Results of fetches, and tasks of the writing thread.

use super::journal::Header;
use super::neighbours::Claim;
use crate::tier::ReadCost;
use crate::wrappers::single_flight::Lead;
use bytes::Bytes;
use std::ops::Range;
use tokio::sync::oneshot;

/// Maximum bytes waiting to be written; a single read may exceed it.
pub(super) const PENDING_BYTES: u64 = 64 << 20;
/// Result of a fetch: the bytes of joined blocks, in order.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) parts: Vec<(Range<u64>, Bytes)>,
    pub(super) cost: ReadCost,
}

/// Task of the writing thread; tasks run in order.
pub(super) enum WriterTask {
    /// Stage blocks of a version. Until that is done or given up, whoever wants them gets them from the fetch.
    Store {
        header: Header,
        blocks: Vec<(u64, Bytes)>,
        lead: Lead<Fetched>,
        /// Given back when that is done.
        claim: Option<Claim>,
    },
    /// Record that a block is gone from the ledger.
    Drop { id: u64, block: u64 },
    /// Remove damaged blocks, after the blocks queued before are staged.
    Forget { header: Header, blocks: Vec<u64> },
    /// Report when all earlier tasks are done.
    Settle(oneshot::Sender<()>),
    /// Ends the thread.
    Stop,
}
