//! Columns of a row and their positions in it.

use super::key::{KeyColumn, KeyKind};
use super::{TableError, schema_error};
use crate::model::is_plain_name;
use serde::{Deserialize, Serialize};
use tierlab_protocol::tensor::{DataType, element_count};

/// Alignment of the first row and of large rows, and the minimum useful size of a first read.
pub const ALIGN: u64 = 4096;
/// Maximum stride.
pub const MAX_STRIDE: u32 = 64 << 20;
/// Bytes of the checksum at the end of a row.
pub(super) const ROW_CRC_BYTES: usize = 4;

/// The columns of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSchema {
    /// Name of the table.
    pub name: String,
    /// Columns, in the order of their offsets.
    pub columns: Vec<Column>,
    /// Position of the key in a row. Tables without keys have consecutive ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyColumn>,
}

/// One column: a dense tensor per row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Element type; `BYTES` has no fixed size and is refused.
    pub dtype: DataType,
    /// Shape of one row's value, without the batch dimension.
    pub shape: Vec<i64>,
    /// Byte offset inside the row, a multiple of the element size.
    pub offset: u32,
}

impl Column {
    /// Bytes of one row's value; `None` if the type or shape has no fixed size.
    pub fn byte_len(&self) -> Option<usize> {
        element_count(&self.shape)?.checked_mul(self.dtype.size()?)
    }

    /// Returns the column's bytes in a row; `None` if the row is too short.
    pub fn of_row<'a>(&self, row: &'a [u8]) -> Option<&'a [u8]> {
        row.get(self.offset as usize..)?.get(..self.byte_len()?)
    }

    /// Same as [`Column::of_row`], for writing.
    pub fn of_row_mut<'a>(&self, row: &'a mut [u8]) -> Option<&'a mut [u8]> {
        row.get_mut(self.offset as usize..)?.get_mut(..self.byte_len()?)
    }
}

impl TableSchema {
    /// Lays columns out one after another, each aligned to its element size.
    ///
    /// # Errors
    /// A column without a fixed size, an invalid or duplicate name, or a row above [`MAX_STRIDE`].
    pub fn lay_out(name: &str, columns: &[(&str, DataType, &[i64])]) -> Result<Self, TableError> {
        let mut offset = 0_usize;
        let mut positioned = Vec::with_capacity(columns.len());
        for &(column, dtype, shape) in columns {
            offset = offset.next_multiple_of(dtype.size().unwrap_or(1));
            let column = Column {
                name: column.to_owned(),
                dtype,
                shape: shape.to_vec(),
                offset: u32::try_from(offset).map_err(|_| schema_error(column, "offset too large"))?,
            };
            // Columns without a fixed size are refused below.
            offset = offset.saturating_add(column.byte_len().unwrap_or(0));
            positioned.push(column);
        }
        let schema = Self {
            name: name.to_owned(),
            columns: positioned,
            key: None,
        };
        schema.validate()?;
        Ok(schema)
    }

    /// Same as [`TableSchema::lay_out`], with a key after the columns whose texts have at most `longest` bytes.
    ///
    /// # Errors
    /// Same as [`TableSchema::lay_out`]; a key that is too long.
    pub fn lay_out_keyed(
        name: &str,
        columns: &[(&str, DataType, &[i64])],
        (key, kind): (&str, KeyKind),
        longest: usize,
    ) -> Result<Self, TableError> {
        let mut schema = Self::lay_out(name, columns)?;
        let to_u32 = |bytes: usize| u32::try_from(bytes).map_err(|_| schema_error(key, "rows are larger than 64 MiB"));
        schema.key = Some(KeyColumn {
            name: key.to_owned(),
            kind,
            offset: to_u32(schema.payload_len().unwrap_or(usize::MAX))?,
            width: to_u32(kind.width(longest))?,
        });
        schema.validate()?;
        Ok(schema)
    }

    /// Returns a column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Bytes used by the columns and the key, without the row's checksum.
    fn payload_len(&self) -> Option<usize> {
        let key = self.key.as_ref();
        let key_end = key.map_or(Some(0), |key| (key.offset as usize).checked_add(key.width as usize))?;
        self.columns.iter().try_fold(key_end, |end, column| {
            Some(end.max((column.offset as usize).checked_add(column.byte_len()?)?))
        })
    }

    /// The smallest stride the format allows for these columns.
    ///
    /// # Errors
    /// A row above [`MAX_STRIDE`].
    pub fn stride(&self) -> Result<u32, TableError> {
        let too_large = || schema_error(&self.name, "rows are larger than 64 MiB");
        let used = self.payload_len().and_then(|len| len.checked_add(ROW_CRC_BYTES));
        let used = used.filter(|&used| used <= MAX_STRIDE as usize).ok_or_else(too_large)?;
        let stride = match used <= ALIGN as usize {
            true => used.next_power_of_two(),
            false => used.next_multiple_of(ALIGN as usize),
        };
        u32::try_from(stride).map_err(|_| too_large())
    }

    pub(super) fn validate(&self) -> Result<(), TableError> {
        if !is_plain_name(&self.name) {
            let what = "invalid name of the table: use letters, digits, `.`, `_` and `-`";
            return Err(schema_error(&self.name, what));
        }
        if self.columns.is_empty() {
            return Err(schema_error(&self.name, "a table needs a column"));
        }
        let mut end = 0_usize;
        for (i, column) in self.columns.iter().enumerate() {
            let bad = |what: &str| schema_error(&column.name, what);
            let size = column.dtype.size().ok_or_else(|| bad("BYTES has no fixed size"))?;
            let len = column.byte_len().ok_or_else(|| bad("no fixed size"))?;
            let offset = column.offset as usize;
            if !offset.is_multiple_of(size) || offset < end {
                return Err(bad("its offset is unaligned or overlaps the column before"));
            }
            end = offset.checked_add(len).ok_or_else(|| bad("too large"))?;
            if self.columns[..i].iter().any(|other| other.name == column.name) {
                return Err(bad("duplicate name"));
            }
        }
        match &self.key {
            Some(key) if (key.offset as usize) < end || !key.is_valid() => {
                let what = "the key overlaps a column, or its width is invalid for its kind";
                Err(schema_error(&key.name, what))
            }
            _ => Ok(()),
        }
    }
}
