//! Why bytes are no shard.

/// Error in a shard, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{format}, offset {offset}: {what}")]
pub struct ShardError {
    /// Expected format: `tar`, `TFRecord`, `Example` or `shard index`.
    pub format: &'static str,
    /// Byte offset in the file; in an `Example`, of the record that holds it.
    pub offset: u64,
    /// Message, with advice if there is any.
    pub what: String,
}

impl ShardError {
    pub(super) fn new(format: &'static str, offset: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { format, offset, what }
    }
}
