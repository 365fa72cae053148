//! Tier of the feature tables, their layout on it, and the destination of their rows.

#[cfg(feature = "layouts")]
use tierlab_layouts::{Layout, RowsTier};

use super::table::OpenTable;
use crate::error::LoadError;
use std::sync::Arc;
use tierlab_storage::device::DeviceReads;
use tierlab_storage::wrappers::DamagedRows;
use tierlab_storage::{ObjectPath, Tier};

/// Memory that feature rows are read into, and how they are verified there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowDestination {
    /// Host memory: each row is verified before use.
    Host,
    /// Only device memory.
    Device {
        /// Interval of requests whose rows are copied back and verified before use: 1 for all, 0 for none. With any
        /// value but 1, the whole table is verified when it is opened.
        prove_every: u32,
    },
}

impl RowDestination {
    /// True if the rows of request number `request` are verified.
    pub(super) fn verifies(self, request: u64) -> bool {
        match self {
            Self::Host => true,
            Self::Device { prove_every } => prove_every != 0 && request.is_multiple_of(u64::from(prove_every)),
        }
    }

    /// Note shown beside every figure; `None` for host memory, where every row is verified.
    pub(crate) fn note(self) -> Option<String> {
        let Self::Device { prove_every } = self else {
            return None;
        };
        Some(match prove_every {
            0 => "rows on the device: table verified when opened, rows not verified in transit".to_owned(),
            1 => "rows on the device: each verified by a copy back".to_owned(),
            n => {
                format!("rows on the device: table verified when opened, rows of 1 request in {n} verified in transit")
            }
        })
    }
}

/// Tiers that tables are read from.
#[derive(Clone)]
pub(crate) struct FeatureTier {
    /// Tier for headers, without the cache, so that headers do not displace rows.
    pub(crate) uncached: Arc<dyn Tier>,
    /// Tier for rows.
    pub(crate) rows: Arc<dyn Tier>,
    /// Kind of tier, for messages and metrics.
    pub(crate) kind: &'static str,
    /// Memory that rows are read into.
    pub(crate) destination: RowDestination,
    /// Counters of damaged rows.
    pub(crate) damaged: DamagedRows,
}

impl FeatureTier {
    /// Device that rows are read to, if any; it must be the sessions' device.
    pub(crate) fn device(&self) -> Option<u32> {
        match self.destination {
            RowDestination::Host => None,
            RowDestination::Device { .. } => self.rows.device().map(DeviceReads::ordinal),
        }
    }

    /// Opens a table, and verifies it if its rows will not be. A replaced table is checked more thoroughly.
    pub(super) async fn open_table(&self, path: &ObjectPath, replaced: bool) -> Result<OpenTable, LoadError> {
        let open = match replaced {
            true => OpenTable::open_replaced(&*self.uncached, path).await?,
            false => OpenTable::open(&*self.uncached, path).await?,
        };
        // Rows may be used without verification, so the whole table is verified once.
        if matches!(self.destination, RowDestination::Device { prove_every } if prove_every != 1) {
            open.verify_rows(&*self.uncached).await?;
            tracing::info!(object = %path, rows = open.header.rows, "verified every row of the table");
        }
        Ok(open)
    }
}

/// Layout in which tables are files of rows, `NAME.rows`; needs no conversion.
const ROWS: &str = "rows";

/// Layout of feature tables on a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableLayout {
    #[cfg(feature = "layouts")]
    folder: Option<Layout>,
}

impl TableLayout {
    /// Finds a layout by name.
    ///
    /// # Errors
    /// Fails for an unknown layout; lists the known ones.
    pub(crate) fn of(name: &str) -> anyhow::Result<Self> {
        if name == ROWS {
            return Ok(Self::default());
        }
        #[cfg(feature = "layouts")]
        return Ok(Self {
            folder: Some(name.parse()?),
        });
        #[cfg(not(feature = "layouts"))]
        Err(anyhow::anyhow!(
            "layout `{name}` is not compiled in: build the server with \
             `--features layouts`, or use \"{ROWS}\""
        ))
    }

    /// Tier on which tables are files of rows.
    pub(crate) fn of_rows(self, tier: Arc<dyn Tier>) -> Arc<dyn Tier> {
        #[cfg(feature = "layouts")]
        if let Some(layout) = self.folder {
            return Arc::new(RowsTier::new(tier, layout));
        }
        tier
    }
}
