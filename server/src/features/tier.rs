//! The tier that feature tables are read from.

use super::destination::RowDestination;
use super::table::OpenTable;
use crate::error::LoadError;
use std::sync::Arc;
use tierlab_storage::device::DeviceReads;
use tierlab_storage::wrappers::DamagedRows;
use tierlab_storage::{ObjectPath, Tier};

/// The tiers that tables are read from.
#[derive(Clone)]
pub(crate) struct FeatureTier {
    /// For headers: without the cache, so that they do not push rows out of it.
    pub(crate) uncached: Arc<dyn Tier>,
    /// For rows.
    pub(crate) rows: Arc<dyn Tier>,
    /// The kind, for messages and metrics.
    pub(crate) kind: &'static str,
    /// Memory that rows are read into.
    pub(crate) destination: RowDestination,
    /// Rows that came damaged.
    pub(crate) damaged: DamagedRows,
}

impl FeatureTier {
    /// The device that rows are read to, where they are; it must be that of the sessions.
    pub(crate) fn device(&self) -> Option<u32> {
        match self.destination {
            RowDestination::Host => None,
            RowDestination::Device { .. } => self.rows.device().map(DeviceReads::ordinal),
        }
    }

    /// Opens a table, and proves it where its rows will be trusted. Of one that was replaced more is looked at.
    pub(super) async fn open_table(&self, path: &ObjectPath, replaced: bool) -> Result<OpenTable, LoadError> {
        let open = match replaced {
            true => OpenTable::open_replaced(&*self.uncached, path).await?,
            false => OpenTable::open(&*self.uncached, path).await?,
        };
        if self.destination.trusts_the_table() {
            open.prove(&*self.uncached).await?;
            tracing::info!(object = %path, rows = open.header.rows, "every row of the table is proven");
        }
        Ok(open)
    }
}
