//! Sources of a table's rows.

use tierlab_formats::table::TableSchema;

/// Source of rows.
pub trait RowSource: Sync {
    /// Columns of the rows.
    fn schema(&self) -> &TableSchema;

    /// Seed in the header.
    fn seed(&self) -> u64;

    /// Writes the columns of entity `id` into `row`, one zeroed stride. The last four bytes are reserved for the
    /// checksum.
    fn fill(&self, id: i64, row: &mut [u8]);
}
