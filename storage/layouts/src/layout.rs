//! The layouts that a table can have.

use anyhow::{Context as _, Result};
use parquet::basic::{Compression, ZstdLevel};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tierlab_formats::LAYOUTS;

/// Storage layout of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Rows of a fixed stride in order: a row's number gives its position, and no index is read.
    Rows,
    /// An object for each entity, which holds its row.
    Files,
    /// Tar archives with a file for each column of each entity, named `KEY.COLUMN`, and an index beside each.
    Tar,
    /// `TFRecord` files with a `tf.train.Example` for each entity, and an index beside each.
    Tfrecord,
    /// Parquet without compression; its footer and page index give the positions of rows.
    Parquet,
    /// Parquet, each page compressed with Snappy.
    ParquetSnappy,
    /// Parquet, each page compressed with LZ4.
    ParquetLz4,
    /// Parquet, each page compressed with Zstandard.
    ParquetZstd,
    /// Arrow IPC files, read in place; their footer gives the positions of batches.
    Arrow,
    /// Arrow IPC, each buffer compressed with LZ4.
    ArrowLz4,
    /// Arrow IPC, each buffer compressed with Zstandard.
    ArrowZstd,
}

impl Layout {
    /// Layouts in the order of the enum and of [`LAYOUTS`], with the encodings of their shards.
    const TABLE: [(Self, Coding); LAYOUTS.len()] = [
        (Self::Rows, Coding::Rows),
        (Self::Files, Coding::Files),
        (Self::Tar, Coding::Samples(Framing::Tar)),
        (Self::Tfrecord, Coding::Samples(Framing::Tfrecord)),
        (Self::Parquet, Coding::Parquet(Codec::None)),
        (Self::ParquetSnappy, Coding::Parquet(Codec::Snappy)),
        (Self::ParquetLz4, Coding::Parquet(Codec::Lz4)),
        (Self::ParquetZstd, Coding::Parquet(Codec::Zstd)),
        (Self::Arrow, Coding::Arrow(Codec::None)),
        (Self::ArrowLz4, Coding::Arrow(Codec::Lz4)),
        (Self::ArrowZstd, Coding::Arrow(Codec::Zstd)),
    ];

    /// Every layout.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        Self::TABLE.into_iter().map(|(layout, _)| layout)
    }

    /// Name in manifests and on command lines.
    pub const fn as_str(self) -> &'static str {
        LAYOUTS[self as usize]
    }

    /// Encoding of the shards.
    pub(crate) const fn coding(self) -> Coding {
        Self::TABLE[self as usize].1
    }

    /// File name extension of a shard.
    pub(crate) const fn extension(self) -> &'static str {
        match self.coding() {
            Coding::Parquet(_) => "parquet",
            Coding::Arrow(_) => "arrow",
            Coding::Rows | Coding::Files | Coding::Samples(_) => self.as_str(),
        }
    }

    /// True if each shard has an index beside it.
    pub(crate) const fn has_index(self) -> bool {
        matches!(self.coding(), Coding::Samples(_))
    }
}

/// Encoding of a layout's shards.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Coding {
    /// Rows of a fixed stride.
    Rows,
    /// Folders of a file for each entity.
    Files,
    /// Samples, with an index beside them.
    Samples(Framing),
    Parquet(Codec),
    Arrow(Codec),
}

/// Container format of a shard's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Tar,
    Tfrecord,
}

/// Compression of pages and buffers.
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
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::all()
            .find(|layout| layout.as_str() == text)
            .with_context(|| format!("unknown layout: `{text}`; use one of {}", LAYOUTS.join(", ")))
    }
}
