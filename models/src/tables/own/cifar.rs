//! CIFAR's binaries as batches: records of one or two labels and 32x32 pixels in three planes. In: a file, and which of the two it is.
//! Out: batches. The layout is that of Krizhevsky's page on CIFAR-10 and CIFAR-100 ("binary version"). Knows nothing of keys or tables.

use super::batch::{Batch, Numbers, positions};
use arrow_array::{ArrayRef, FixedSizeBinaryArray, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;
use std::sync::Arc;

/// Red, green and blue, each row by row.
const IMAGE_BYTES: usize = 3 * 32 * 32;
const BATCH_ROWS: u64 = 1024;

/// A file of records.
#[derive(Debug)]
pub(super) struct CifarFile {
    labels: usize,
    schema: SchemaRef,
    rows: u64,
}

impl CifarFile {
    /// Looks at a file whose records begin with these labels.
    pub(super) fn open(path: &Path, labels: &[&str]) -> Result<Self, String> {
        let about = std::fs::metadata(path).map_err(|e| format!("cannot look at it: {e}"))?;
        let record = (labels.len() + IMAGE_BYTES) as u64;
        let rest = about.len() % record;
        if rest != 0 || about.len() == 0 {
            return Err(format!(
                "{} bytes are no whole records of {record} bytes ({} labels and {IMAGE_BYTES} of pixels): the last begins at {} and has \
                 {rest}; is it the binary version, unpacked, of the data set that --preset names?",
                about.len(),
                labels.len(),
                about.len() - rest
            ));
        }
        let mut fields: Vec<Field> = labels
            .iter()
            .map(|name| Field::new(*name, Arrow::UInt8, false))
            .collect();
        fields.push(Field::new("image", Arrow::FixedSizeBinary(IMAGE_BYTES as i32), false));
        Ok(Self {
            labels: labels.len(),
            schema: Arc::new(Schema::new(fields)),
            rows: about.len() / record,
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Hands all rows to `each`.
    pub(super) fn read<E: From<String>>(
        &self,
        path: &Path,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let file = File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
        let mut file = BufReader::new(file);
        let wanted = positions(&self.schema, columns);
        let record = self.labels + IMAGE_BYTES;
        let mut row = 0;
        while row < self.rows {
            let count = BATCH_ROWS.min(self.rows - row);
            let mut bytes = vec![0; record * count as usize];
            file.read_exact(&mut bytes)
                .map_err(|e| format!("row {}: it cannot be read: {e}", row + 1))?;
            let whole = self.batch(&bytes).map_err(|e| e.to_string())?;
            each(Batch {
                rows: whole.project(&wanted).map_err(|e| e.to_string())?,
                numbers: Numbers::From(row),
                bad: Vec::new(),
                bytes: bytes.len() as u64,
            })?;
            row += count;
        }
        Ok(())
    }

    fn batch(&self, bytes: &[u8]) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let records = || bytes.chunks_exact(self.labels + IMAGE_BYTES);
        let label = |at: usize| Arc::new(UInt8Array::from_iter_values(records().map(|record| record[at]))) as ArrayRef;
        let mut columns: Vec<ArrayRef> = (0..self.labels).map(label).collect();
        let images = records().map(|record| &record[self.labels..]);
        columns.push(Arc::new(FixedSizeBinaryArray::try_from_iter(images)?));
        RecordBatch::try_new(self.schema(), columns)
    }
}
