//! Tables as shards: tar archives with `WebDataset`'s names, `TFRecord` files, and the index beside each shard.
//!
//! In: bytes, and their position in a file. Out: members, records, features, or an error that names the offset. No I/O.
//! Lengths that a file claims are not trusted: anything above a stated limit is refused before memory is allocated.
//!
//! - [`tar`]: POSIX.1-1988 (ustar), POSIX.1-2001 (pax) and GNU headers
//! - [`tfrecord`]: lengths and masked checksums around each record
//! - [`example`]: the features of a record
//! - [`index`]: from a key to the bytes of its sample

pub mod example;
pub mod index;
pub mod tar;
pub mod tfrecord;

/// Error in a shard, with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{format}, offset {offset}: {what}")]
pub struct ShardError {
    /// Expected format: `tar`, `TFRecord`, `Example` or `shard index`.
    pub format: &'static str,
    /// Byte offset in the file; in an `Example`, of its record.
    pub offset: u64,
    /// Message, with advice if there is any.
    pub what: String,
}

impl ShardError {
    fn new(format: &'static str, offset: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { format, offset, what }
    }
}

/// Maximum size of a sample, in bytes: the largest row of a table, with its headers.
pub const MAX_SAMPLE_BYTES: u64 = 80 << 20;

/// Key and extension of a file in a shard: its path up to the first dot of its name, and the rest. `None` without an extension
/// or a key.
///
/// Names are split as in `WebDataset`: <https://github.com/webdataset/webdataset>, "the `WebDataset` format".
pub fn key_and_extension(name: &str) -> Option<(&str, &str)> {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = file + name[file..].find('.')?;
    let (key, extension) = (&name[..dot], &name[dot + 1..]);
    (dot > file && !extension.is_empty()).then_some((key, extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_the_first_dot_of_the_file() {
        assert_eq!(key_and_extension("a/b.c/42.seg.png"), Some(("a/b.c/42", "seg.png")));
        assert_eq!(key_and_extension("42.cls"), Some(("42", "cls")));
        for none in ["42", "a.b/42", ".cls", "a/.cls", "42."] {
            assert_eq!(key_and_extension(none), None, "{none}");
        }
    }
}
