//! A column of rows that lie in device memory.

/// The bytes of a row that belong to one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Offset in the row, in bytes.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}
