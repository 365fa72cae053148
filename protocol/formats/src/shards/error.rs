//! Why bytes are no shard.

/// What is wrong with a shard, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{format}, offset {offset}: {what}")]
pub struct ShardError {
    /// What the bytes should be: `tar`, `TFRecord`, `Example` or `shard index`.
    pub format: &'static str,
    /// Byte offset in the file; in an `Example`, of the record that holds it.
    pub offset: u64,
    /// What is wrong there, and what to do where something can be done.
    pub what: String,
}

impl ShardError {
    pub(super) fn new(format: &'static str, offset: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { format, offset, what }
    }
}
