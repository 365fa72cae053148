//! Some rows of a file, whatever its format: what readers hand on. Knows no format.

use arrow_array::RecordBatch;

/// Some rows of a file.
pub(super) struct Batch {
    pub(super) rows: RecordBatch,
    /// The number in the file of each row, from 0.
    pub(super) numbers: Numbers,
    /// Rows that could not be read: their number, what is wrong, and the text.
    pub(super) bad: Vec<(u64, String, String)>,
    /// Bytes of the file that they took, about.
    pub(super) bytes: u64,
}

/// The numbers of a batch's rows.
pub(super) enum Numbers {
    From(u64),
    These(Vec<u64>),
}

impl Numbers {
    pub(super) fn of(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + row as u64,
            Self::These(numbers) => numbers[row],
        }
    }
}
