//! A Flight server's table in the form of a file of rows. In: its FlightInfo. Out: an object with its header, the rows
//! that a range touches, and the bytes of a range.

use super::schema::to_table;
use crate::limits::buffer_for;
use crate::{ErrorKind, Object, ObjectPath, StorageError};
use arrow_flight::FlightInfo;
use bytes::Bytes;
use std::ops::Range;
use tierlab_formats::table::TableHeader;

/// Metadata key of a schema's version.
pub(super) const VERSION_KEY: &str = "version";

/// Looked-up table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) object: Object,
    pub(super) header: TableHeader,
    head: Bytes,
    /// `version` of the schema's metadata.
    pub(super) version: Option<String>,
}

impl Table {
    /// Reads a description. The error says what is wrong with it.
    pub(super) fn describe(name: &str, path: &ObjectPath, id_column: &str, info: FlightInfo) -> Result<Self, String> {
        let (records, metadata) = (info.total_records, info.app_metadata.clone());
        let schema = info.try_decode_schema();
        let schema = schema.map_err(|e| format!("invalid schema: {e}"))?;
        let found = to_table(name, id_column, &schema)?;
        let rows = found.rows.or_else(|| u64::try_from(records).ok());
        let rows =
            rows.ok_or("unknown number of rows: set `rows` in the schema's metadata, or the info's total_records")?;
        let header = TableHeader::without_blocks(found.schema, rows, found.first_id).map_err(|e| e.to_string())?;
        let head = header.encode();
        let version = schema.metadata().get(VERSION_KEY).cloned();
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), &metadata);
        Ok(Self {
            name: name.to_owned(),
            object: Object {
                path: path.clone(),
                size: header.file_len(),
                version: format!("{sum:08x}-{}", version.as_deref().unwrap_or_default()),
            },
            header,
            head: head.into(),
            version,
        })
    }

    /// Rows that a range touches.
    pub(super) fn rows_of(&self, range: &Range<u64>) -> Range<u64> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        if range.end <= head || range.is_empty() {
            return 0..0;
        }
        range.start.saturating_sub(head) / stride..(range.end - head).div_ceil(stride)
    }

    /// Ids of rows. Fails if they do not fit into memory.
    pub(super) fn ids(&self, rows: &[Range<u64>]) -> Result<Vec<i64>, StorageError> {
        let count: u64 = rows.iter().map(|rows| rows.end - rows.start).sum();
        let mut ids = Vec::new();
        ids.try_reserve_exact(count as usize).map_err(|_| {
            let detail = format!("no memory for {count} ids; read it in smaller ranges");
            ErrorKind::Unavailable.error(&self.object.path, detail)
        })?;
        let id = |row: u64| self.header.first_id + row.cast_signed();
        ids.extend(rows.iter().cloned().flatten().map(id));
        Ok(ids)
    }

    /// Bytes of a range, from the header and the rows that it touches; `first` is the first of these rows.
    pub(super) fn part<'a>(
        &self,
        range: &Range<u64>,
        first: u64,
        rows: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Bytes, StorageError> {
        let (head, stride) = (self.head.len() as u64, u64::from(self.header.stride));
        if range.end <= head {
            return Ok(self.head.slice(range.start as usize..range.end as usize));
        }
        let mut part = buffer_for(self.object.path.as_str(), range.end - range.start)?;
        if range.start < head {
            part.extend_from_slice(&self.head[range.start as usize..]);
        }
        let mut at = head + first * stride;
        for row in rows {
            let from = range.start.saturating_sub(at);
            part.extend_from_slice(&row[from as usize..(range.end - at).min(stride) as usize]);
            at += stride;
        }
        Ok(part.freeze())
    }
}
