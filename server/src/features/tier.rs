//! The tier that feature tables are read from, their layout on it, and the memory that their rows go to.

#[cfg(feature = "layouts")]
use tierlab_layouts::{LaidOut, Layout};

use super::table::OpenTable;
use crate::error::LoadError;
use std::sync::Arc;
use tierlab_storage::device::DeviceReads;
use tierlab_storage::wrappers::DamagedRows;
use tierlab_storage::{ObjectPath, Tier};

/// Memory that feature rows are read into, and how they are verified there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowDestination {
    /// Host memory: each row is proven before it is used.
    Host,
    /// Device memory and nowhere else.
    Device {
        /// One request in this many has its rows copied back and verified before use: 1 for all, 0 for none. With any value but
        /// 1, the whole table is verified when it is opened.
        prove_every: u32,
    },
}

impl RowDestination {
    /// True if the rows of request number `request` are verified.
    pub(super) fn proves(self, request: u64) -> bool {
        match self {
            Self::Host => true,
            Self::Device { prove_every } => prove_every != 0 && request.is_multiple_of(u64::from(prove_every)),
        }
    }

    /// Note printed beside every figure; `None` in host memory, where every row is verified.
    pub(crate) fn note(self) -> Option<String> {
        let Self::Device { prove_every } = self else {
            return None;
        };
        Some(match prove_every {
            0 => "rows on the device: the table was proven when it was opened, no row on its way".to_owned(),
            1 => "rows on the device: each proven by a copy back".to_owned(),
            n => format!(
                "rows on the device: the table was proven when it was opened, and the rows of 1 request in {n} on their way"
            ),
        })
    }
}

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
        // Rows may be used without being proven: the table is, once as a whole.
        if matches!(self.destination, RowDestination::Device { prove_every } if prove_every != 1) {
            open.prove(&*self.uncached).await?;
            tracing::info!(object = %path, rows = open.header.rows, "every row of the table is proven");
        }
        Ok(open)
    }
}

/// The layout in which tables are files of rows, `NAME.rows`, and nothing has to be done.
const ROWS: &str = "rows";

/// Layout of feature tables on a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableLayout {
    #[cfg(feature = "layouts")]
    folder: Option<Layout>,
}

impl TableLayout {
    /// A layout by its name.
    ///
    /// # Errors
    /// A name that no layout of this build has; says which there are.
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        if name == ROWS {
            return Ok(Self::default());
        }
        #[cfg(feature = "layouts")]
        return Ok(Self {
            folder: Some(name.parse()?),
        });
        #[cfg(not(feature = "layouts"))]
        Err(format!(
            "`{name}` is not known to this server, which was built without the feature `layouts`: build it with \
             `--features layouts`, or say \"{ROWS}\""
        ))
    }

    /// The tier on which tables are files of rows.
    pub(crate) fn of_rows(self, tier: Arc<dyn Tier>) -> Arc<dyn Tier> {
        #[cfg(feature = "layouts")]
        if let Some(layout) = self.folder {
            return Arc::new(LaidOut::new(tier, layout));
        }
        tier
    }
}
