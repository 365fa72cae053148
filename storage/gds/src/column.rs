//! Column of rows in device memory.

/// Bytes of a row that belong to one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Offset in the row, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}
