//! A folder as names, and what of it is read. Knows no disk and no store.

/// A folder, on disk or in a store, as a list of what lies below it.
pub(super) struct Listing {
    /// As it is named in messages.
    pub(super) name: String,
    /// Names below it with slashes, sorted.
    pub(super) names: Vec<String>,
    /// The bytes of each.
    pub(super) bytes: Vec<u64>,
}

/// What of a folder is read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) names: Vec<String>,
    pub(super) left_out: Vec<String>,
}
