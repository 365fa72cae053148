//! The layouts that a table can have.

use parquet::basic::{Compression, ZstdLevel};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How the rows of a table lie in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Rows of a fixed stride, one after another: a row's place is its number, and no index is read.
    Rows,
    /// An object for each entity, which holds its row.
    Files,
    /// Tar archives with a file for each column of each entity, named `KEY.COLUMN`, and an index beside each.
    Tar,
    /// `TFRecord` files with a `tf.train.Example` for each entity, and an index beside each.
    Tfrecord,
    /// Parquet without compression; its footer and page index say where rows are.
    Parquet,
    /// Parquet, each page compressed with Snappy.
    ParquetSnappy,
    /// Parquet, each page compressed with LZ4.
    ParquetLz4,
    /// Parquet, each page compressed with Zstandard.
    ParquetZstd,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 8] = [
        Self::Rows,
        Self::Files,
        Self::Tar,
        Self::Tfrecord,
        Self::Parquet,
        Self::ParquetSnappy,
        Self::ParquetLz4,
        Self::ParquetZstd,
    ];

    /// As manifests and command lines name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Files => "files",
            Self::Tar => "tar",
            Self::Tfrecord => "tfrecord",
            Self::Parquet => "parquet",
            Self::ParquetSnappy => "parquet-snappy",
            Self::ParquetLz4 => "parquet-lz4",
            Self::ParquetZstd => "parquet-zstd",
        }
    }

    /// How a shard's name ends.
    pub(crate) const fn extension(self) -> &'static str {
        match self.compression() {
            Some(_) => "parquet",
            None => self.as_str(),
        }
    }

    /// Whether an index lies beside each shard.
    pub(crate) const fn has_index(self) -> bool {
        self.framing().is_some()
    }

    /// Of shards of samples, what lies around each.
    pub(crate) const fn framing(self) -> Option<Framing> {
        match self {
            Self::Tar => Some(Framing::Tar),
            Self::Tfrecord => Some(Framing::Tfrecord),
            _ => None,
        }
    }

    /// Of Parquet, how its pages are compressed.
    pub(crate) const fn compression(self) -> Option<Codec> {
        match self {
            Self::Parquet => Some(Codec::None),
            Self::ParquetSnappy => Some(Codec::Snappy),
            Self::ParquetLz4 => Some(Codec::Lz4),
            Self::ParquetZstd => Some(Codec::Zstd),
            Self::Rows | Self::Files | Self::Tar | Self::Tfrecord => None,
        }
    }
}

/// What lies around the samples of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Tar,
    Tfrecord,
}

/// How pages are compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Codec {
    None,
    Snappy,
    Lz4,
    Zstd,
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Self::UNCOMPRESSED,
            Codec::Snappy => Self::SNAPPY,
            Codec::Lz4 => Self::LZ4_RAW,
            Codec::Zstd => Self::ZSTD(ZstdLevel::default()),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|layout| layout.as_str() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("`{text}` is no layout; there is {names}")
        })
    }
}
