//! Objects, as looked up.

use crate::path::ObjectPath;

/// An object as it was looked up. Reads are of this version: a tier answers
/// [`ErrorKind::Changed`](crate::ErrorKind::Changed) rather than bytes of another version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Object {
    /// Path below the tier's root.
    pub path: ObjectPath,
    /// Length in bytes.
    pub size: u64,
    /// The tier's own mark of this version (ETag, or inode with modification time); equal marks mean equal bytes.
    pub version: String,
}
