//! CSV as batches: types from the first rows, empty fields as nulls, and rows that do not fit set apart. In: a file and how it is written. Out:
//! batches. Knows nothing of keys or tables.

use super::batch::{Batch, Numbers, positions};
use super::request::CsvOptions;
use super::text_types::{Guess, date, has_leading_zeros, integer, is_null, micros, truth};
use arrow_array::RecordBatch;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Date32Builder, Float64Builder, Int64Builder, NullBuilder, StringBuilder,
    TimestampMicrosecondBuilder, UInt64Builder, make_builder,
};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use csv::{ByteRecord, ReaderBuilder};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Rows that types are taken from.
const SAMPLED_ROWS: u64 = 10_000;
/// Rows of a batch, and bytes of their text, about.
const BATCH_ROWS: usize = 4096;
const BATCH_BYTES: usize = 8 << 20;
/// Bytes of a record at most. A quote that is not closed would take the rest of the file into one.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Characters of a bad row that are kept.
const KEPT_CHARS: usize = 2000;
/// Key of a field's metadata: advice for a column that is text.
pub(super) const ADVICE: &str = "advice";

/// A CSV file: how it is written, and what its columns are.
#[derive(Debug)]
pub(super) struct CsvFile {
    delimiter: u8,
    has_header: bool,
    schema: SchemaRef,
    has_rows: bool,
    null_values: Vec<String>,
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
        let mut guesses = vec![Guess::default(); names.len()];
        let mut record = ByteRecord::new();
        let mut has_rows = known.is_some();
        for row in 0..SAMPLED_ROWS {
            left.set(MAX_RECORD_BYTES);
            // What cannot be read is an error of the reading, which knows its row.
            if known.is_some() || !reader.read_byte_record(&mut record).unwrap_or(false) {
                break;
            }
            has_rows = true;
            for (guess, field) in guesses.iter_mut().zip(&record) {
                guess.add(row, field, &options.null_values);
            }
        }
        let of_known = |name: &str| Some(known?.field_with_name(name).ok()?.data_type().clone());
        let fields: Vec<Field> = names
            .iter()
            .zip(&guesses)
            .map(|(name, guess)| {
                let arrow = of_known(name).unwrap_or_else(|| guess.arrow(name, options));
                let advice = guess.advice(name).map(|advice| (ADVICE.to_owned(), advice));
                Field::new(name, arrow, true)
                    .with_metadata(advice.into_iter().collect::<std::collections::HashMap<_, _>>())
            })
            .collect();
        Ok(Self {
            delimiter,
            has_header,
            schema: Arc::new(Schema::new(fields)),
            has_rows,
            null_values: options.null_values.clone(),
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
        let wanted = positions(&self.schema, columns);
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
            let is_null = is_null(text, &self.null_values);
            let value = value_of(text, field.data_type(), is_null).map_err(|what| bad(&what))?;
            values.push(value);
        }
        for (column, value) in making.0.iter_mut().zip(values) {
            Making::push(&mut **column, value);
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

/// A field's value; `None` is null.
#[derive(Clone, Copy)]
enum Value<'a> {
    Null,
    Bool(Option<bool>),
    Int(Option<i64>),
    Uint(Option<u64>),
    Float(Option<f64>),
    Days(Option<i32>),
    Micros(Option<i64>),
    Text(Option<&'a str>),
}

/// A field as a value of its column's type.
fn value_of<'a>(field: &'a str, arrow: &Arrow, is_null: bool) -> Result<Value<'a>, String> {
    fn some<T>(is_null: bool, read: impl FnOnce() -> Result<T, String>) -> Result<Option<T>, String> {
        if is_null { Ok(None) } else { read().map(Some) }
    }
    let text = field.trim();
    let no = |what: &str| {
        format!(
            "`{}` is no {what}, which the column is by --as or by its first rows",
            kept_text(text)
        )
    };
    // 007 in a column of integers is 7 to nobody but a parser, and may be a key.
    if !is_null && arrow.is_integer() && has_leading_zeros(text) {
        return Err("digits behind a zero are text, and the rows before it are integers".to_owned());
    }
    Ok(match arrow {
        Arrow::Utf8 => Value::Text((!is_null).then_some(field)),
        Arrow::Int64 => Value::Int(some(is_null, || integer(text).ok_or_else(|| no("integer")))?),
        Arrow::UInt64 => Value::Uint(some(is_null, || text.parse().map_err(|_| no("integer from 0 on")))?),
        Arrow::Float64 => Value::Float(some(is_null, || {
            let number = text.parse::<f64>().map_err(|_| no("number"))?;
            // `inf` is one to whoever wrote it; 1e400 is not.
            if number.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
                return Err("beyond the largest number of 64 bits".to_owned());
            }
            Ok(number)
        })?),
        Arrow::Boolean => Value::Bool(some(is_null, || match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => truth(text).ok_or_else(|| no("truth value")),
        })?),
        Arrow::Date32 => Value::Days(some(is_null, || date(text).ok_or_else(|| no("date")))?),
        Arrow::Timestamp(..) => Value::Micros(some(is_null, || micros(text).ok_or_else(|| no("time")))?),
        _ if is_null => Value::Null,
        _ => return Err("its first rows are all empty: say what it is with --as, or leave it out".to_owned()),
    })
}

fn kept_text(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Columns being built.
struct Making(Vec<Box<dyn ArrayBuilder>>);

impl Making {
    fn new(schema: &Schema) -> Self {
        let fields = schema.fields().iter();
        Self(fields.map(|field| make_builder(field.data_type(), 0)).collect())
    }

    fn push(column: &mut dyn ArrayBuilder, value: Value<'_>) {
        macro_rules! append {
            ($builder:ty, $value:expr) => {
                if let Some(builder) = column.as_any_mut().downcast_mut::<$builder>() {
                    builder.append_option($value);
                }
            };
        }
        match value {
            Value::Null => {
                if let Some(builder) = column.as_any_mut().downcast_mut::<NullBuilder>() {
                    builder.append_null();
                }
            }
            Value::Bool(value) => append!(BooleanBuilder, value),
            Value::Int(value) => append!(Int64Builder, value),
            Value::Uint(value) => append!(UInt64Builder, value),
            Value::Float(value) => append!(Float64Builder, value),
            Value::Days(value) => append!(Date32Builder, value),
            Value::Micros(value) => append!(TimestampMicrosecondBuilder, value),
            Value::Text(value) => append!(StringBuilder, value),
        }
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, String> {
        let columns = self.0.iter_mut().map(ArrayBuilder::finish);
        RecordBatch::try_new(Arc::clone(schema), columns.collect()).map_err(|e| e.to_string())
    }
}
