//! Why bytes are no table.

/// Why bytes are no usable table or row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The header cannot be used.
    #[error("table header, offset {offset}: {what}")]
    Header {
        /// Byte offset in the file.
        offset: u64,
        /// Error message.
        what: String,
    },
    /// A column cannot be used.
    #[error("table schema, `{name}`: {what}")]
    Schema {
        /// The column or table.
        name: String,
        /// Error message.
        what: String,
    },
    /// The file is shorter or longer than its header says.
    #[error("table is {found} bytes long, its header says {wanted}: truncated or overwritten")]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        wanted: u64,
    },
    /// The index of keys cannot be used.
    #[error("index of keys, offset {offset}: {what}")]
    Index {
        /// Byte offset in the index.
        offset: u64,
        /// Error message.
        what: String,
    },
    /// A row of a keyed table is damaged, or is another row.
    #[error("row {row}, offset {offset}: {what}")]
    KeyedRow {
        /// The row's number.
        row: i64,
        /// Byte offset of the row in the file.
        offset: u64,
        /// Error message.
        what: &'static str,
    },
    /// A row is damaged, or is another row.
    #[error("row of entity {id}, offset {offset}: {what}")]
    Row {
        /// The entity id asked for.
        id: i64,
        /// Byte offset of the row in the file.
        offset: u64,
        /// Error message.
        what: &'static str,
    },
}

pub(super) fn header_error(offset: usize, what: impl Into<String>) -> TableError {
    TableError::Header {
        offset: offset as u64,
        what: what.into(),
    }
}

pub(super) fn schema_error(column: &str, what: &str) -> TableError {
    TableError::Schema {
        name: column.to_owned(),
        what: what.to_owned(),
    }
}

pub(super) fn index_error(offset: usize, what: impl Into<String>) -> TableError {
    TableError::Index {
        offset: offset as u64,
        what: what.into(),
    }
}
