//! Some rows of a file, whatever its format: what readers hand on. Knows no format.

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;

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

impl Batch {
    /// Its rows, with their numbers as one column more, unless there is one of that name.
    pub(super) fn with_numbers(&self, name: &str) -> Result<RecordBatch, String> {
        if self.rows.column_by_name(name).is_some() {
            return Ok(self.rows.clone());
        }
        let numbers = (0..self.rows.num_rows()).map(|row| self.numbers.of(row).cast_signed());
        let schema = self.rows.schema();
        let own = schema.fields().iter().map(Arc::clone);
        let fields: Vec<_> = own
            .chain([Arc::new(Field::new(name, DataType::Int64, false))])
            .collect();
        let mut columns = self.rows.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| e.to_string())
    }
}

/// Positions of these columns in a schema, in its order.
pub(super) fn positions(schema: &Schema, columns: &[&str]) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    let wanted = fields.filter(|(_, field)| columns.contains(&field.name().as_str()));
    wanted.map(|(at, _)| at).collect()
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
