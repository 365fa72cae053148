//! Where the rows of a table come from.

use tierlab_formats::table::TableSchema;

/// Where rows come from.
pub trait RowSource: Sync {
    /// The columns.
    fn schema(&self) -> &TableSchema;

    /// The seed that goes into the header.
    fn seed(&self) -> u64;

    /// Writes the columns of entity `id` into `row`, one zeroed stride. The last four bytes are the writer's.
    fn fill(&self, id: i64, row: &mut [u8]);
}
