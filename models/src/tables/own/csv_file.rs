//! CSV as batches: types from the first rows, empty fields as nulls, and rows that do not fit set apart. In: a file and how it is written. Out:
//! batches. Knows nothing of keys or tables.

use super::batch::{Batch, Numbers};
use super::request::CsvOptions;
use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use csv::{ByteRecord, ReaderBuilder};
use std::path::Path;
use std::sync::Arc;

/// Rows that types are taken from.
const SAMPLED_ROWS: usize = 10_000;
const BATCH_ROWS: usize = 4096;
/// Characters of a bad row that are kept.
const KEPT_CHARS: usize = 2000;

/// A CSV file: how it is written, and what its columns are.
#[derive(Debug)]
pub(super) struct CsvFile {
    delimiter: u8,
    has_header: bool,
    schema: SchemaRef,
}

impl CsvFile {
    /// Takes the columns from the header line or the names given, and their types from what is known, or from the first rows.
    pub(super) fn open(path: &Path, options: &CsvOptions, known: Option<&Schema>) -> Result<Self, String> {
        let is_tsv = path.extension().is_some_and(|ending| ending == "tsv");
        let delimiter = options.delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' });
        let has_header = options.names.is_empty();
        let mut reader = builder(delimiter, has_header)
            .from_path(path)
            .map_err(|e| format!("cannot open it: {e}"))?;
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
        for _ in 0..SAMPLED_ROWS {
            if known.is_some() || !reader.read_byte_record(&mut record).unwrap_or(false) {
                break;
            }
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
        })
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Hands all rows to `each`.
    pub(super) fn read<E: From<String>>(
        &self,
        path: &Path,
        columns: &[&str],
        each: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = builder(self.delimiter, self.has_header)
            .from_path(path)
            .map_err(|e| format!("cannot open it: {e}"))?;
        let wanted: Vec<usize> = (0..self.schema.fields().len())
            .filter(|&at| columns.contains(&self.schema.field(at).name().as_str()))
            .collect();
        let schema = Arc::new(self.schema.project(&wanted).map_err(|e| e.to_string())?);
        let mut record = ByteRecord::new();
        let (mut row, mut position) = (0, 0);
        loop {
            let mut making = Making::new(&schema);
            let (mut numbers, mut bad) = (Vec::new(), Vec::new());
            let mut ended = false;
            while numbers.len() < BATCH_ROWS && bad.len() < BATCH_ROWS {
                match reader.read_byte_record(&mut record) {
                    Ok(true) => {}
                    Ok(false) => {
                        ended = true;
                        break;
                    }
                    Err(e) => return Err(format!("row {}: it cannot be read: {e}", row + 1).into()),
                }
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
                Arrow::Int64 => Value::Int(
                    text.trim()
                        .parse()
                        .map_err(|_| bad("no integer, as the rows before it"))?,
                ),
                Arrow::Float64 => Value::Float(
                    text.trim()
                        .parse()
                        .map_err(|_| bad("no number, as the rows before it"))?,
                ),
                _ => Value::Text(text),
            });
        }
        for (column, value) in making.0.iter_mut().zip(values) {
            column.push(value);
        }
        Ok(())
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

/// The narrowest kind that holds what was there and this field; empty fields say nothing.
fn wider(kind: Option<Kind>, field: &[u8]) -> Option<Kind> {
    let text = std::str::from_utf8(field).unwrap_or("?").trim();
    if text.is_empty() {
        return kind;
    }
    let digits = text.trim_start_matches('-');
    // 00123 is no number, but a key whose zeros count.
    let this = if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()) {
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
