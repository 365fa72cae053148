//! A table as a file in the rows format, in memory. In: a kind and a seed, or a path. Out: the file's bytes, and its rows.

use anyhow::{Context, Result};
use bytes::Bytes;
use std::path::Path;
use tierlab_formats::table::{TableHeader, header_len};
use tierlab_models::tables::RowSource;

/// File in the rows format.
pub(super) struct RowsFile {
    pub(super) header: TableHeader,
    pub(super) bytes: Bytes,
}

impl RowsFile {
    /// Generates a table from a seed.
    ///
    /// # Errors
    /// More rows than the format holds.
    pub(super) fn generate(source: &dyn RowSource, rows: u64, seed: u64) -> Result<Self> {
        let mut header = TableHeader::new(source.schema().clone(), rows, 0, seed)?;
        let stride = header.stride as usize;
        let mut bytes = vec![0_u8; stride * usize::try_from(rows)?];
        for (id, row) in (0_i64..).zip(bytes.chunks_exact_mut(stride)) {
            source.fill(id, row);
            header.seal_row(id, row);
        }
        let block = stride * header.rows_per_block as usize;
        header.block_crcs = bytes.chunks(block).map(crc32c::crc32c).collect();
        let mut file = header.encode();
        file.extend_from_slice(&bytes);
        Ok(Self {
            header,
            bytes: file.into(),
        })
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file cannot be read, or its header is damaged.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let read = || -> Result<Self> {
            let file = std::fs::read(path)?;
            let length = usize::try_from(header_len(&file)?)?;
            let head = file.get(..length).context("the table is truncated in its header")?;
            Ok(Self {
                header: TableHeader::decode(head, file.len() as u64)?,
                bytes: file.into(),
            })
        };
        read().with_context(|| format!("cannot read {}", path.display()))
    }

    /// Rows in the order of the file.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let rows = self.bytes.get(self.header.header_len() as usize..).unwrap_or_default();
        rows.chunks_exact(self.header.stride as usize)
            .take(self.header.rows as usize)
    }

    /// Row of an entity, by its index in the file.
    pub(super) fn row(&self, index: usize) -> Option<&[u8]> {
        self.rows().nth(index)
    }
}
