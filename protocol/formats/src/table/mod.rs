//! The feature-table file format: fixed-stride rows behind a self-describing, checksummed header.
//!
//! In: header bytes and row bytes. Out: a validated [`TableHeader`] and checked row payloads. No I/O.
//!
//! ```text
//! 0      8        magic "TLROWS02"
//! 8      4        CRC-32C of the header with this field zero, u32 LE
//! 12     4        stride: bytes from one row to the next, u32 LE
//! 16     8        header_len: where row 0 starts, a multiple of 4096, u64 LE
//! 24     8        rows, u64 LE
//! 32     8        first_id: the entity id of row 0; ids run first_id .. first_id + rows, i64 LE (0 with keys)
//! 40     4        rows_per_block: rows under one block checksum, u32 LE (0: blocks have none)
//! 44     4        schema_len: bytes of the JSON schema, u32 LE
//! 48     8        seed of the generator, u64 LE (0 for imported data)
//! 56     8        index_bytes: bytes of the index of keys, u64 LE (0 without keys)
//! 64     …        schema, JSON (`TableSchema`)
//! …      4 × n    CRC-32C of each block's bytes (padding included), u32 LE; n = ceil(rows / rows_per_block), or 0
//! …               zeros up to header_len
//! header_len      row 0, row 1, …
//! …               the index of keys ([`KeyIndex`]), where the schema has a `key`
//! ```
//! Entities have either consecutive ids, and their rows lie in that order, or keys (`key` in the schema): integers in
//! any order, texts, UUIDs. A row of a keyed table has its key after its columns, and its row number takes the place of
//! the entity id.
//! A row is its columns' little-endian bytes at the schema's offsets; its last four bytes are the CRC-32C, rotated right by
//! 15 bits, of the entity id (i64 LE) followed by every byte before those four. So a single row proves both its content and
//! its identity, and a whole block can be verified without parsing it.
//! The stride is a power of two up to 4096 and a multiple of 4096 above, so a row never straddles more device blocks
//! than necessary.

mod header;
mod index;
mod key;
mod schema;

use std::fmt::Display;

pub use header::{MAGIC, MAX_HEADER_BYTES, PRELUDE_BYTES, TableHeader, header_len};
pub use index::{BucketIndex, INDEX_MAGIC, IndexWriter, KeyHash, KeyIndex, MAX_BUCKET_BITS, MAX_INDEX_BYTES};
pub use key::{KeyColumn, KeyKind, MAX_KEY_BYTES, quoted};
pub use schema::{ALIGN, Column, MAX_STRIDE, TableSchema};

/// File extension on a tier: `features/NAME.rows`.
pub const EXTENSION: &str = "rows";

/// Error in a table: the position, the fault, and advice if there is any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TableError(String);

fn header_error(offset: usize, what: impl Display) -> TableError {
    TableError(format!("table header, offset {offset}: {what}"))
}

fn schema_error(column: &str, what: &str) -> TableError {
    TableError(format!("table schema, `{column}`: {what}"))
}

fn index_error(offset: usize, what: impl Display) -> TableError {
    TableError(format!("index of keys, offset {offset}: {what}"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
