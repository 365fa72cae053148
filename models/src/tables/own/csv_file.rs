//! CSV as batches: types from the first rows, empty fields as nulls, and rows that do not fit set apart. In: a file and how it is written. Out:
//! batches. Knows nothing of keys or tables.

use super::batch::{Batch, Numbers};
use super::request::CsvOptions;
use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use csv::{ByteRecord, ReaderBuilder};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Rows that types are taken from.
const SAMPLED_ROWS: usize = 10_000;
/// Rows of a batch, and bytes of their text, about.
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 8 << 20;
/// Bytes of a record at most. A quote that is not closed would take the rest of the file into one.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Characters of a bad row that are kept.
const KEPT_CHARS: usize = 2000;

/// A CSV file: how it is written, and what its columns are.
#[derive(Debug)]
pub(super) struct CsvFile {
    delimiter: u8,
    has_header: bool,
    schema: SchemaRef,
    has_rows: bool,
}

impl CsvFile {
    /// Takes the columns from the header line or the names given, and their types from what is known, or from the first rows.
    pub(super) fn open(path: &Path, options: &CsvOptions, known: Option<&Schema>) -> Result<Self, String> {
        let is_tsv = path.extension().is_some_and(|ending| ending == "tsv");
        let delimiter = options.delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' });
        let has_header = options.names.is_empty();
        let (file, left) = BoundedRecords::open(path)?;
        let mut reader = builder(delimiter, has_header).from_reader(file);
        let names: Vec<String> = if has_header {
            let header = reader
                .headers()
                .map_err(|e| format!("its header cannot be read: {e}"))?;
            header.iter().map(str::to_owned).collect()
        } else {
            options.names.clone()
        };
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(format!("its header has the column `{}` twice", twice.1));
        }
        let mut kinds = vec![None; names.len()];
        let mut record = ByteRecord::new();
        let mut has_rows = known.is_some();
        for _ in 0..SAMPLED_ROWS {
            left.set(MAX_RECORD_BYTES);
            // What cannot be read is an error of the reading, which knows its row.
            if known.is_some() || !reader.read_byte_record(&mut record).unwrap_or(false) {
                break;
            }
            has_rows = true;
            for (kind, field) in kinds.iter_mut().zip(&record) {
                *kind = wider(*kind, field);
            }
        }
        let of_known = |name: &str| Some(known?.field_with_name(name).ok()?.data_type().clone());
        let fields: Vec<Field> = names
            .iter()
            .zip(kinds)
            .map(|(name, kind)| {
                let told = |list: &[String]| list.contains(name);
                let kind = match kind {
                    _ if told(&options.texts) => Some(Kind::Text),
                    Some(Kind::Int) if told(&options.floats) => Some(Kind::Float),
                    kind => kind,
                };
                let arrow = of_known(name).unwrap_or(match kind {
                    Some(Kind::Int) => Arrow::Int64,
                    Some(Kind::Float) => Arrow::Float64,
                    Some(Kind::Text) | None => Arrow::Utf8,
                });
                Field::new(name, arrow, true)
            })
            .collect();
        Ok(Self {
            delimiter,
            has_header,
            schema: Arc::new(Schema::new(fields)),
            has_rows,
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Whether a row was seen.
    pub(super) const fn has_rows(&self) -> bool {
        self.has_rows
    }

    /// Hands all rows to `each`.
    pub(super) fn read<E: From<String>>(
        &self,
        path: &Path,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let (file, left) = BoundedRecords::open(path)?;
        let mut reader = builder(self.delimiter, self.has_header).from_reader(file);
        let wanted: Vec<usize> = (0..self.schema.fields().len())
            .filter(|&at| columns.contains(&self.schema.field(at).name().as_str()))
            .collect();
        let schema = Arc::new(self.schema.project(&wanted).map_err(|e| e.to_string())?);
        let mut record = ByteRecord::new();
        let (mut row, mut position) = (0, 0);
        loop {
            let mut making = Making::new(&schema);
            let (mut numbers, mut bad) = (Vec::new(), Vec::new());
            let (mut ended, mut taken) = (false, 0);
            while numbers.len() < BATCH_ROWS && bad.len() < BATCH_ROWS && taken < BATCH_BYTES {
                left.set(MAX_RECORD_BYTES);
                match reader.read_byte_record(&mut record) {
                    Ok(true) => {}
                    Ok(false) => {
                        ended = true;
                        break;
                    }
                    Err(e) => return Err(format!("row {}: it cannot be read: {e}", row + 1).into()),
                }
                taken += record.as_slice().len();
                match self.take(&record, &wanted, &mut making) {
                    Ok(()) => numbers.push(row),
                    Err(why) => bad.push((row, why, kept(&record, self.delimiter))),
                }
                row += 1;
            }
            let at = reader.position().byte();
            each(Batch {
                rows: making.finish(&schema)?,
                numbers: Numbers::These(numbers),
                bad,
                bytes: at - std::mem::replace(&mut position, at),
            })?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Takes a record whole, or not at all.
    fn take(&self, record: &ByteRecord, wanted: &[usize], making: &mut Making) -> Result<(), String> {
        let columns = self.schema.fields().len();
        if record.len() != columns {
            return Err(format!("{} fields, the header has {columns}", record.len()));
        }
        let mut values = Vec::with_capacity(wanted.len());
        for &at in wanted {
            let field = self.schema.field(at);
            let bad = |what: &str| format!("column `{}`: {what}", field.name());
            let text = std::str::from_utf8(&record[at]).map_err(|_| bad("no UTF-8"))?;
            values.push(match field.data_type() {
                _ if text.is_empty() => Value::Null,
                // 007 in a column of integers is 7 to nobody but a parser, and may be a key.
                Arrow::Int64 if has_leading_zeros(text.trim()) => {
                    return Err(bad(
                        "digits behind a zero are text, and the rows before it are integers",
                    ));
                }
                Arrow::Int64 => Value::Int(
                    text.trim()
                        .parse()
                        .map_err(|_| bad("no integer, as the rows before it"))?,
                ),
                Arrow::Float64 => {
                    let number = text.trim().parse::<f64>();
                    let number = number.map_err(|_| bad("no number, as the rows before it"))?;
                    // `inf` is one to whoever wrote it; 1e400 is not.
                    if number.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
                        return Err(bad("beyond the largest number of 64 bits"));
                    }
                    Value::Float(number)
                }
                _ => Value::Text(text),
            });
        }
        for (column, value) in making.0.iter_mut().zip(values) {
            column.push(value);
        }
        Ok(())
    }
}

/// A file whose records are bounded: it may be read for so many bytes until it is said that a new record begins.
struct BoundedRecords {
    file: File,
    left: Rc<Cell<u64>>,
}

impl BoundedRecords {
    /// The file, and what the reader of its records sets anew before each.
    fn open(path: &Path) -> Result<(Self, Rc<Cell<u64>>), String> {
        let file = File::open(path).map_err(|e| format!("cannot open it: {e}"))?;
        let left = Rc::new(Cell::new(MAX_RECORD_BYTES));
        let own = Rc::clone(&left);
        Ok((Self { file, left: own }, left))
    }
}

impl Read for BoundedRecords {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(left) = self.left.get().checked_sub(buffer.len() as u64) else {
            let what = format!("a row of more than {MAX_RECORD_BYTES} bytes: is a quote not closed?");
            return Err(io::Error::other(what));
        };
        self.left.set(left);
        self.file.read(buffer)
    }
}

fn builder(delimiter: u8, has_header: bool) -> ReaderBuilder {
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).has_headers(has_header).flexible(true);
    builder
}

/// A bad record as text.
fn kept(record: &ByteRecord, delimiter: u8) -> String {
    let fields: Vec<String> = record
        .iter()
        .map(|field| String::from_utf8_lossy(field).into_owned())
        .collect();
    let text = fields.join(&char::from(delimiter).to_string());
    text.chars().take(KEPT_CHARS).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Int,
    Float,
    Text,
}

/// 00123 is no number, but a key whose zeros count.
fn has_leading_zeros(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The narrowest kind that holds what was there and this field; empty fields say nothing.
fn wider(kind: Option<Kind>, field: &[u8]) -> Option<Kind> {
    let text = std::str::from_utf8(field).unwrap_or("?").trim();
    if text.is_empty() {
        return kind;
    }
    let this = if has_leading_zeros(text) {
        Kind::Text
    } else if text.parse::<i64>().is_ok() {
        Kind::Int
    } else if text.parse::<f64>().is_ok() {
        Kind::Float
    } else {
        Kind::Text
    };
    Some(kind.map_or(this, |kind| kind.max(this)))
}

enum Value<'a> {
    Null,
    Int(i64),
    Float(f64),
    Text(&'a str),
}

/// Columns being built.
struct Making(Vec<Column>);

enum Column {
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringBuilder),
}

impl Column {
    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Int(column), Value::Int(value)) => column.append_value(value),
            (Self::Int(column), _) => column.append_null(),
            (Self::Float(column), Value::Float(value)) => column.append_value(value),
            (Self::Float(column), _) => column.append_null(),
            (Self::Text(column), Value::Text(value)) => column.append_value(value),
            (Self::Text(column), _) => column.append_null(),
        }
    }
}

impl Making {
    fn new(schema: &Schema) -> Self {
        let column = |field: &Arc<Field>| match field.data_type() {
            Arrow::Int64 => Column::Int(Int64Builder::new()),
            Arrow::Float64 => Column::Float(Float64Builder::new()),
            _ => Column::Text(StringBuilder::new()),
        };
        Self(schema.fields().iter().map(column).collect())
    }

    fn finish(self, schema: &SchemaRef) -> Result<RecordBatch, String> {
        let columns = self.0.into_iter().map(|column| match column {
            Column::Int(mut column) => Arc::new(column.finish()) as ArrayRef,
            Column::Float(mut column) => Arc::new(column.finish()),
            Column::Text(mut column) => Arc::new(column.finish()),
        });
        RecordBatch::try_new(Arc::clone(schema), columns.collect()).map_err(|e| e.to_string())
    }
}
