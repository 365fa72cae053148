//! Header before the first row: writing, reading and checking it, and the positions of rows.

use super::index::MAX_INDEX_BYTES;
use super::schema::{ALIGN, MAX_STRIDE, ROW_CRC_BYTES, TableSchema};
use super::{TableError, header_error, u32_at, u64_at};
use std::ops::Range;

/// The first eight bytes of a table.
pub const MAGIC: [u8; 8] = *b"TLROWS02";
/// Bytes needed to learn the header's length: [`header_len`].
pub const PRELUDE_BYTES: usize = 64;
/// Maximum size of a header: about 16 million block checksums.
pub const MAX_HEADER_BYTES: u64 = 64 << 20;

/// Everything before the first row, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableHeader {
    /// Columns of a row.
    pub schema: TableSchema,
    /// Bytes from one row to the next.
    pub stride: u32,
    /// Number of rows.
    pub rows: u64,
    /// The entity id of row 0.
    pub first_id: i64,
    /// Rows under one block checksum; 0 if blocks do not have checksums, as in tables laid out at read time.
    pub rows_per_block: u32,
    /// Seed of the generator; 0 for imported data.
    pub seed: u64,
    /// CRC-32C of each block.
    pub block_crcs: Vec<u32>,
    /// Bytes of the index after the rows; 0 if entities do not have keys.
    pub index_bytes: u64,
    /// Minimum offset of row 0, in bytes. It exceeds the header's length if rows were written before they were counted.
    pub reserved_bytes: u64,
}

impl TableHeader {
    /// Creates the header of a table about to be written, its block checksums still zero. Blocks hold about 64 KiB of
    /// rows, and at least one.
    ///
    /// # Errors
    /// A schema that the format cannot hold, or ids beyond `i64`.
    pub fn new(schema: TableSchema, rows: u64, first_id: i64, seed: u64) -> Result<Self, TableError> {
        let rows_per_block = (65_536 / schema.stride()?).max(1);
        // Refused before memory is allocated: a row count may be from a command line.
        let blocks = usize::try_from(rows.div_ceil(u64::from(rows_per_block)))
            .ok()
            .filter(|&blocks| blocks as u64 <= MAX_HEADER_BYTES / 4)
            .ok_or_else(|| header_error(24, "too many rows: the header would be larger than 64 MiB"))?;
        let header = Self {
            rows_per_block,
            seed,
            block_crcs: vec![0; blocks],
            ..Self::without_blocks(schema, rows, first_id)?
        };
        header.check_limits()?;
        Ok(header)
    }

    /// Creates the header of a table whose rows are laid out when they are read: rows have checksums, blocks do not.
    ///
    /// # Errors
    /// A schema that the format cannot hold, or ids beyond `i64`.
    pub fn without_blocks(schema: TableSchema, rows: u64, first_id: i64) -> Result<Self, TableError> {
        schema.validate()?;
        let header = Self {
            stride: schema.stride()?,
            schema,
            rows,
            first_id,
            rows_per_block: 0,
            seed: 0,
            block_crcs: Vec::new(),
            index_bytes: 0,
            reserved_bytes: 0,
        };
        header.check_limits()?;
        Ok(header)
    }

    /// Returns the header with an index of keys of `index_bytes` bytes after the rows.
    ///
    /// # Errors
    /// An index although entities do not have keys, or one that is too large.
    pub fn with_index(self, index_bytes: u64) -> Result<Self, TableError> {
        let header = Self { index_bytes, ..self };
        header.check_limits()?;
        Ok(header)
    }

    /// Offset of row 0, in bytes.
    pub fn header_len(&self) -> u64 {
        let len = PRELUDE_BYTES + self.schema_json().len() + 4 * self.block_crcs.len();
        (len as u64).next_multiple_of(ALIGN).max(self.reserved_bytes)
    }

    /// The length of the whole file.
    pub fn file_len(&self) -> u64 {
        self.rows_end() + self.index_bytes
    }

    /// Offset of the end of the last row, in bytes.
    pub fn rows_end(&self) -> u64 {
        self.header_len() + self.rows * u64::from(self.stride)
    }

    /// Range of the key index; `None` if entities have no keys.
    pub fn index_range(&self) -> Option<Range<u64>> {
        self.schema.key.as_ref().map(|_| self.rows_end()..self.file_len())
    }

    /// Returns the ids of the table; if entities have keys, the row numbers.
    pub fn ids(&self) -> Range<i64> {
        self.first_id..self.first_id + self.rows.cast_signed()
    }

    /// Returns the byte range of an entity's row; `None` if the table does not have the id.
    pub fn row_range(&self, id: i64) -> Option<Range<u64>> {
        if !self.ids().contains(&id) {
            return None;
        }
        let start = self.header_len() + id.abs_diff(self.first_id) * u64::from(self.stride);
        Some(start..start + u64::from(self.stride))
    }

    /// Returns the byte range of a block and its expected checksum.
    pub fn block(&self, index: u64) -> Option<(Range<u64>, u32)> {
        let crc = *self.block_crcs.get(usize::try_from(index).ok()?)?;
        let first = index * u64::from(self.rows_per_block);
        let last = (first + u64::from(self.rows_per_block)).min(self.rows);
        let at = |row: u64| self.header_len() + row * u64::from(self.stride);
        Some((at(first)..at(last), crc))
    }

    /// Seals a row in place: writes its checksum into its last four bytes.
    ///
    /// # Panics
    /// When `row` is not [`TableHeader::stride`] bytes long.
    pub fn seal_row(&self, id: i64, row: &mut [u8]) {
        assert_eq!(row.len(), self.stride as usize, "a row is one stride long");
        let at = row.len() - ROW_CRC_BYTES;
        let crc = row_crc(id, &row[..at]);
        row[at..].copy_from_slice(&crc.to_le_bytes());
    }

    /// Checks that `row` is the undamaged row of `id`.
    ///
    /// # Errors
    /// A row of another length or with a wrong checksum.
    pub fn check_row(&self, id: i64, row: &[u8]) -> Result<(), TableError> {
        let what = match row.split_last_chunk::<ROW_CRC_BYTES>() {
            _ if row.len() != self.stride as usize => "not one stride long",
            Some((payload, sum)) if row_crc(id, payload) == u32::from_le_bytes(*sum) => return Ok(()),
            _ => "checksum does not fit",
        };
        let offset = self.row_range(id).map_or(0, |range| range.start);
        let row = self.schema.key.as_ref().map_or("row of entity", |_| "row");
        Err(TableError(format!("{row} {id}, offset {offset}: {what}")))
    }

    /// Returns the header's bytes, [`TableHeader::header_len`] of them.
    pub fn encode(&self) -> Vec<u8> {
        let schema = self.schema_json();
        let len = self.header_len();
        let mut out = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        out.extend(MAGIC);
        out.extend([0; 4]);
        out.extend(self.stride.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(self.rows.to_le_bytes());
        out.extend(self.first_id.to_le_bytes());
        out.extend(self.rows_per_block.to_le_bytes());
        out.extend(u32::try_from(schema.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(self.seed.to_le_bytes());
        out.extend(self.index_bytes.to_le_bytes());
        out.extend(schema);
        out.extend(self.block_crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        out.resize(usize::try_from(len).unwrap_or(out.len()), 0);
        let crc = crc32c::crc32c(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header from the first [`header_len`] bytes of a file of `file_len` bytes.
    ///
    /// # Errors
    /// The fault and its offset: another magic, a wrong checksum, contradictory fields, or a file that is shorter or longer
    /// than its header says.
    pub fn decode(bytes: &[u8], file_len: u64) -> Result<Self, TableError> {
        let expected = header_len(bytes)?;
        let bytes = usize::try_from(expected)
            .ok()
            .and_then(|len| bytes.get(..len))
            .ok_or_else(|| header_error(bytes.len(), format!("the header is cut off: {expected} bytes expected")))?;
        let sum = u32_at(bytes, 8);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &[0; 4]);
        let crc = crc32c::crc32c_append(crc, &bytes[12..]);
        if sum != crc {
            return Err(header_error(8, format!("header checksum {sum:08x} is not {crc:08x}")));
        }
        let schema_len = u32_at(bytes, 44) as usize;
        let schema = bytes[PRELUDE_BYTES..]
            .get(..schema_len)
            .ok_or_else(|| header_error(44, "the schema is longer than the header"))?;
        let schema: TableSchema =
            serde_json::from_slice(schema).map_err(|e| header_error(PRELUDE_BYTES, format!("schema: {e}")))?;
        schema.validate()?;
        let rows = u64_at(bytes, 24);
        let rows_per_block = u32_at(bytes, 40);
        let blocks = match rows_per_block {
            0 => 0,
            rows_per_block => rows.div_ceil(u64::from(rows_per_block)),
        };
        let crc_bytes = usize::try_from(blocks)
            .ok()
            .and_then(|blocks| blocks.checked_mul(4))
            .and_then(|len| bytes[PRELUDE_BYTES + schema_len..].get(..len))
            .ok_or_else(|| header_error(24, "more rows than the header has block checksums for"))?;
        let mut header = Self {
            schema,
            stride: u32_at(bytes, 12),
            rows,
            first_id: u64_at(bytes, 32).cast_signed(),
            rows_per_block,
            seed: u64_at(bytes, 48),
            block_crcs: crc_bytes.chunks_exact(4).map(|crc| u32_at(crc, 0)).collect(),
            index_bytes: u64_at(bytes, 56),
            reserved_bytes: 0,
        };
        if header.schema.key.is_some() && header.header_len() < expected {
            header.reserved_bytes = expected;
        }
        header.check_limits()?;
        if header.header_len() != expected {
            let what = format!("header length {expected} is not {}", header.header_len());
            return Err(header_error(16, what));
        }
        if header.file_len() != file_len {
            let expected = header.file_len();
            let what = format!("table is {file_len} bytes long, its header says {expected}: truncated or overwritten");
            return Err(TableError(what));
        }
        Ok(header)
    }

    fn schema_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.schema).unwrap_or_default()
    }

    fn check_limits(&self) -> Result<(), TableError> {
        let is_valid_stride = match u64::from(self.stride) {
            small @ ..=ALIGN => small.is_power_of_two(),
            large => large.is_multiple_of(ALIGN) && self.stride <= MAX_STRIDE,
        };
        let keyed = self.schema.key.is_some();
        let (offset, what) = if !is_valid_stride {
            let what = "the stride is neither a power of two up to 4096 nor a multiple of 4096 up to 64 MiB";
            (12, what)
        } else if self.stride < self.schema.stride()? {
            (12, "the stride is smaller than the columns")
        } else if self.header_len() > MAX_HEADER_BYTES {
            (16, "the header is larger than 64 MiB")
        } else if self.index_bytes > MAX_INDEX_BYTES || !keyed && self.index_bytes > 0 {
            let what = "the index of keys is larger than 1 GiB, or the table does not have keys";
            (56, what)
        } else if keyed && self.first_id != 0 {
            (32, "a table with keys has a first id other than 0")
        } else if !self.is_in_range() {
            (24, "row count or ids out of range")
        } else {
            return Ok(());
        };
        Err(header_error(offset, what))
    }

    /// True if ids and offsets of all rows fit their types.
    fn is_in_range(&self) -> bool {
        // In 128 bits, because a sum may not fit 64.
        let last = i128::from(self.first_id) + i128::from(self.rows);
        let rows = i128::from(self.rows) * i128::from(self.stride);
        let bytes = rows + i128::from(self.header_len()) + i128::from(self.index_bytes);
        last.max(bytes) <= i128::from(i64::MAX)
    }
}

/// Returns the length of the header of a file that begins with `prelude` ([`PRELUDE_BYTES`] or more).
///
/// # Errors
/// Bytes that are not a table, or an invalid length.
pub fn header_len(prelude: &[u8]) -> Result<u64, TableError> {
    if prelude.len() < PRELUDE_BYTES {
        return Err(header_error(prelude.len(), "the file ends inside the header"));
    }
    if prelude[..8] != MAGIC {
        return Err(header_error(
            0,
            "not a feature table of this version: it does not begin with TLROWS02; write the table again with tierlab-models",
        ));
    }
    let len = u64_at(prelude, 16);
    if len == 0 || !len.is_multiple_of(ALIGN) || len > MAX_HEADER_BYTES {
        let what = format!("header length {len} is not a multiple of 4096 up to 64 MiB");
        return Err(header_error(16, what));
    }
    Ok(len)
}

fn row_crc(id: i64, payload: &[u8]) -> u32 {
    // Rotated, because the checksum of a block of rows with plain checksums does not depend on their values.
    crc32c::crc32c_append(crc32c::crc32c(&id.to_le_bytes()), payload).rotate_right(15)
}
