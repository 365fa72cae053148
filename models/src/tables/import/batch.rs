//! Batches of rows, independent of the file format: the output of readers, and a builder for formats without columns.
//! Knows no format.

use anyhow::{Result, anyhow};
use arrow_array::{ArrayRef, BinaryArray, Int64Array, ListArray, RecordBatch, StringArray, make_array, new_null_array};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// Maximum rows of a built batch, and approximate bytes of their values.
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 8 << 20;

/// Rows of a file.
pub(super) struct Batch {
    pub(super) rows: RecordBatch,
    /// Number of each row in the file, from 0.
    pub(super) numbers: Vec<u64>,
    /// Unreadable rows: number, fault and text.
    pub(super) bad: Vec<(u64, String, String)>,
    /// Approximate bytes of these rows in the file.
    pub(super) bytes: u64,
}

impl Batch {
    /// Returns the rows with their numbers as an additional column, unless there is one of that name.
    pub(super) fn with_numbers(&self, name: &str) -> Result<RecordBatch> {
        if self.rows.column_by_name(name).is_some() {
            return Ok(self.rows.clone());
        }
        let numbers = self.numbers.iter().map(|number| number.cast_signed());
        let mut fields = self.rows.schema().fields().to_vec();
        fields.push(Arc::new(Field::new(name, DataType::Int64, false)));
        let mut columns = self.rows.columns().to_vec();
        columns.push(Arc::new(Int64Array::from_iter_values(numbers)));
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
    }
}

/// Returns the positions of these columns in a schema, in its order.
pub(super) fn positions(schema: &Schema, columns: &[&str]) -> Vec<usize> {
    let fields = schema.fields().iter().enumerate();
    let wanted = fields.filter(|(_, field)| columns.contains(&field.name().as_str()));
    wanted.map(|(at, _)| at).collect()
}

/// Rows gathered for a batch.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<Column>,
    numbers: Vec<u64>,
    bad: Vec<(u64, String, String)>,
    /// Rows seen so far, bad ones included.
    pub(super) seen: u64,
}

impl BatchBuilder {
    /// Creates a builder of these columns of a schema, in the schema's order.
    pub(super) fn new(schema: &Schema, columns: &[&str]) -> Result<Self> {
        let schema = schema.project(&positions(schema, columns))?;
        let fields = schema.fields().iter();
        Ok(Self {
            columns: fields.map(|field| Column::new(field.data_type())).collect(),
            schema: Arc::new(schema),
            numbers: Vec::new(),
            bad: Vec::new(),
            seen: 0,
        })
    }

    /// Adds a row completely, or not at all. `value` appends the little-endian bytes of a column's value, and returns
    /// false for a null.
    ///
    /// # Errors
    /// The first error of `value`, with its column.
    pub(super) fn push(&mut self, mut value: impl FnMut(usize, &Field, &mut Vec<u8>) -> Result<bool>) -> Result<()> {
        for (at, field) in self.schema.fields().iter().enumerate() {
            let column = &mut self.columns[at];
            match value(at, field, &mut column.bytes) {
                Ok(is_valid) => column.end(is_valid),
                Err(what) => {
                    let what = anyhow!("column `{}`: {what}", field.name());
                    let rows = self.numbers.len();
                    self.columns.iter_mut().for_each(|column| column.truncate(rows));
                    return Err(what);
                }
            }
        }
        self.numbers.push(self.seen);
        self.seen += 1;
        Ok(())
    }

    /// Adds an unreadable row.
    pub(super) fn push_bad(&mut self, reason: String, text: String) {
        self.bad.push((self.seen, reason, text));
        self.seen += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        let bytes: usize = self.columns.iter().map(|column| column.bytes.len()).sum();
        self.numbers.len() + self.bad.len() >= BATCH_ROWS || bytes >= BATCH_BYTES
    }

    /// Returns the batch, with its bytes in the file, and begins the next one.
    pub(super) fn finish(&mut self, bytes: u64) -> Result<Batch> {
        let columns = self.columns.iter_mut().map(|column| {
            let next = Column::new(&column.arrow);
            std::mem::replace(column, next).finish()
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        Ok(Batch {
            rows: RecordBatch::try_new(Arc::clone(&self.schema), columns)?,
            numbers: std::mem::take(&mut self.numbers),
            bad: std::mem::take(&mut self.bad),
            bytes,
        })
    }
}

/// Column being built: the bytes of all values, and the end of each. A boolean takes a byte.
struct Column {
    arrow: DataType,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    valid: Vec<bool>,
}

impl Column {
    fn new(arrow: &DataType) -> Self {
        Self {
            arrow: arrow.clone(),
            bytes: Vec::new(),
            ends: Vec::new(),
            valid: Vec::new(),
        }
    }

    /// Ends a value whose bytes were appended.
    fn end(&mut self, is_valid: bool) {
        if !is_valid && !matches!(self.arrow, DataType::List(_) | DataType::Utf8 | DataType::Binary) {
            let width = self.arrow.primitive_width().unwrap_or(1);
            self.bytes.resize(self.bytes.len() + width, 0);
        }
        self.valid.push(is_valid);
        self.ends.push(self.bytes.len());
    }

    fn truncate(&mut self, rows: usize) {
        self.valid.truncate(rows);
        self.ends.truncate(rows);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    fn finish(self) -> Result<ArrayRef> {
        let nulls = Some(NullBuffer::from(self.valid));
        let offsets = |unit: usize| {
            let ends = self.ends.iter().map(|end| i32::try_from(end / unit));
            let offsets: Result<Vec<i32>, _> = std::iter::once(Ok(0)).chain(ends).collect();
            let offsets = offsets.map_err(|_| anyhow!("a batch of more than 2 GiB"))?;
            anyhow::Ok(OffsetBuffer::new(offsets.into()))
        };
        Ok(match &self.arrow {
            DataType::Null => new_null_array(&DataType::Null, self.ends.len()),
            DataType::Boolean => {
                let flags = elements(&DataType::UInt8, self.bytes, nulls)?;
                arrow_cast::cast(&flags, &DataType::Boolean)?
            }
            DataType::Utf8 => {
                let texts = StringArray::try_new(offsets(1)?, Buffer::from_vec(self.bytes), nulls);
                Arc::new(texts?)
            }
            DataType::Binary => {
                let values = BinaryArray::try_new(offsets(1)?, Buffer::from_vec(self.bytes), nulls);
                Arc::new(values?)
            }
            DataType::List(item) => {
                let offsets = offsets(item.data_type().primitive_width().unwrap_or(1))?;
                let values = elements(item.data_type(), self.bytes, None)?;
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?)
            }
            own => elements(own, self.bytes, nulls)?,
        })
    }
}

/// Creates an array of elements of one width.
fn elements(arrow: &DataType, bytes: Vec<u8>, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let len = bytes.len() / arrow.primitive_width().unwrap_or(1);
    let data = ArrayData::builder(arrow.clone()).len(len).nulls(nulls);
    let data = data.add_buffer(Buffer::from_vec(bytes)).align_buffers(true);
    Ok(make_array(data.build()?))
}
