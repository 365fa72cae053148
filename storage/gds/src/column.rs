//! A column of rows that lie in device memory.

/// The bytes of a row that belong to one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Where in a row it begins.
    pub offset: usize,
    /// Its length in bytes.
    pub len: usize,
}
