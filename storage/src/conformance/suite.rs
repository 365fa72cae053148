//! Tier under test and its folders.

use crate::path::ObjectPath;
use crate::tier::Tier;
use std::path::PathBuf;
use std::sync::Arc;

/// A tier under test.
#[derive(Clone)]
pub struct Suite {
    /// The tier.
    pub tier: Arc<dyn Tier>,
    /// The folder on the tier that the cases write below; each case in a folder of its own. Must be unused.
    pub folder: ObjectPath,
    /// A local folder for the file that is streamed to the tier.
    pub scratch: PathBuf,
    /// If true, the tier checks at each read that the object is still the version looked up. A cache need not: its
    /// bytes of that version stay valid. Bytes of another version are never accepted.
    pub notices_changes: bool,
}
