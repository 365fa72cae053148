//! Layout of feature tables on their tier. In: the name of a layout. Out: a tier that shows its tables as files of rows, the
//! only form that the join knows.

use std::sync::Arc;
use tierlab_storage::Tier;

#[cfg(feature = "layouts")]
use tierlab_layouts::{LaidOut, Layout};

/// The layout in which tables are files of rows, `NAME.rows`, and nothing has to be done.
const ROWS: &str = "rows";

/// Layout of feature tables on a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableLayout {
    #[cfg(feature = "layouts")]
    folder: Option<Layout>,
}

#[cfg(feature = "layouts")]
impl TableLayout {
    /// A layout by its name.
    ///
    /// # Errors
    /// A name that no layout has; says which there are.
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        let folder = match name {
            ROWS => None,
            name => Some(name.parse()?),
        };
        Ok(Self { folder })
    }

    /// The tier on which tables are files of rows.
    pub(crate) fn of_rows(self, tier: Arc<dyn Tier>) -> Arc<dyn Tier> {
        match self.folder {
            None => tier,
            Some(layout) => Arc::new(LaidOut::new(tier, layout)),
        }
    }
}

#[cfg(not(feature = "layouts"))]
impl TableLayout {
    /// The one layout of this build.
    ///
    /// # Errors
    /// Any other.
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        match name {
            ROWS => Ok(Self {}),
            name => Err(format!(
                "`{name}` is not known to this server, which was built without the feature `layouts`: build it with \
                 `--features layouts`, or say \"{ROWS}\""
            )),
        }
    }

    /// The tier as it is.
    pub(crate) fn of_rows(self, tier: Arc<dyn Tier>) -> Arc<dyn Tier> {
        tier
    }
}
