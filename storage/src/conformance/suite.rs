//! What is tested.

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
    /// Whether the tier itself looks at each read if the object is still the one looked up. A cache need not: what it
    /// holds of the version that was looked up stays right. Bytes of another version are never accepted.
    pub notices_changes: bool,
}
