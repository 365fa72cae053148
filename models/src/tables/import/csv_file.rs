//! CSV as batches: types from the first rows, empty fields as nulls, and misfit rows separated. In: a file and its CSV
//! options. Out: batches. Knows nothing of keys or tables.

use super::batch::{Batch, BatchBuilder, positions};
use super::request::{CsvOptions, declared, is_rounded_by_floats};
use super::text_types::{TypeGuess, has_leading_zeros, is_null, parse_bool, parse_date, parse_integer, parse_micros};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use csv::{ByteRecord, Reader, ReaderBuilder};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Take};
use std::path::Path;
use std::sync::Arc;

/// Rows from which types are detected.
const SAMPLED_ROWS: u64 = 10_000;
/// Maximum bytes of a record, because an unclosed quote would take the rest of the file into one.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Maximum characters of a bad row.
const MAX_RECORD_CHARS: usize = 2000;
/// Key of a field's metadata with advice for a column of text, or the reason for which its files cannot be read.
pub(super) const ADVICE: &str = "advice";

/// CSV file: its options and its columns.
#[derive(Debug)]
pub(super) struct CsvFile {
    delimiter: u8,
    has_header: bool,
    pub(super) schema: SchemaRef,
    /// True if the file has a row.
    pub(super) has_rows: bool,
    null_values: Vec<String>,
    /// True for each column with a declared type, which may round and which takes digits behind a zero.
    declared: Vec<bool>,
}

impl CsvFile {
    /// Takes the columns from the header line or the given names, their types from `fixed_schema` or the first rows.
    pub(super) fn open(path: &Path, options: &CsvOptions, fixed_schema: Option<&Schema>) -> Result<Self> {
        let is_tsv = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("tsv"));
        let delimiter = options.delimiter.unwrap_or(if is_tsv { b'\t' } else { b',' });
        let has_header = options.names.is_empty();
        let mut reader = open_reader(path, delimiter, has_header)?;
        let mut names = options.names.clone();
        if has_header {
            let bad = |e: &dyn std::fmt::Display| anyhow!("its header cannot be read: {e}");
            let header = reader.headers().map_err(|e| bad(&e))?;
            names = header.iter().map(str::to_owned).collect();
            check_length(&reader).map_err(|e| bad(&e))?;
        }
        if let Some(duplicate) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            bail!("its header has the column `{}` twice", duplicate.1);
        }
        let mut guesses = vec![TypeGuess::default(); names.len()];
        let mut record = ByteRecord::new();
        let mut has_rows = fixed_schema.is_some();
        for row in 0..SAMPLED_ROWS {
            // Reading reports unreadable records later, with the row number.
            if fixed_schema.is_some() || !next_record(&mut reader, &mut record).unwrap_or(false) {
                break;
            }
            has_rows = true;
            for (guess, field) in guesses.iter_mut().zip(&record) {
                guess.add(row, field, &options.null_values);
            }
        }
        let is_declared = |name: &String| !options.is_key(name) && declared(&options.types, name).is_some();
        let fixed_type = |name: &str| Some(fixed_schema?.field_with_name(name).ok()?.data_type().clone());
        let fields = names.iter().zip(&guesses).map(|(name, guess)| {
            let arrow = fixed_type(name).unwrap_or_else(|| guess.arrow(name, options));
            let advice = guess.advice(name).map(|advice| (ADVICE.to_owned(), advice));
            Field::new(name, arrow, true).with_metadata(HashMap::from_iter(advice))
        });
        Ok(Self {
            delimiter,
            has_header,
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            has_rows,
            null_values: options.null_values.clone(),
            declared: names.iter().map(is_declared).collect(),
        })
    }

    /// Passes all rows to `on_batch`.
    pub(super) fn read<E: From<anyhow::Error>>(
        &self,
        path: &Path,
        columns: &[&str],
        on_batch: &mut dyn FnMut(Batch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = open_reader(path, self.delimiter, self.has_header)?;
        let wanted = positions(&self.schema, columns);
        let mut rows = BatchBuilder::new(&self.schema, columns)?;
        let mut record = ByteRecord::new();
        let mut position = 0;
        loop {
            let is_record = next_record(&mut reader, &mut record)
                .map_err(|e| anyhow!("row {}: it cannot be read: {e}", rows.seen + 1))?;
            if is_record && let Err(reason) = self.push_record(&record, &wanted, &mut rows) {
                rows.push_bad(reason.to_string(), record_text(&record, self.delimiter));
            }
            if !is_record || rows.is_full() {
                let at = reader.position().byte();
                on_batch(rows.finish(at - std::mem::replace(&mut position, at))?)?;
            }
            if !is_record {
                return Ok(());
            }
        }
    }

    /// Adds a record completely, or not at all.
    fn push_record(&self, record: &ByteRecord, wanted: &[usize], rows: &mut BatchBuilder) -> Result<()> {
        let columns = self.schema.fields().len();
        let count = record.len();
        ensure!(count == columns, "{count} fields, the header has {columns}");
        rows.push(|at, field, bytes| {
            let text = std::str::from_utf8(&record[wanted[at]]).map_err(|_| anyhow!("no UTF-8"))?;
            if is_null(text, &self.null_values) {
                return Ok(false);
            }
            let (arrow, name) = (field.data_type(), field.name());
            if *arrow == Arrow::Float64 && !self.declared[wanted[at]] && is_rounded_by_floats(text) {
                let text = text.trim();
                bail!("FP64 rounds {text}: pass --as {name}=FP64 to allow it");
            }
            // 007 in a column of integers may be a key whose zeros count.
            if arrow.is_integer() && !self.declared[wanted[at]] && has_leading_zeros(text.trim()) {
                bail!("leading zeros make it text, but the rows before it are integers");
            }
            put(text, arrow, bytes).map(|()| true)
        })
    }
}

fn open_reader(path: &Path, delimiter: u8, has_header: bool) -> Result<Reader<Take<File>>> {
    let file = File::open(path).map_err(|e| anyhow!("cannot open it: {e}"))?;
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).has_headers(has_header).flexible(true);
    Ok(builder.from_reader(file.take(MAX_RECORD_BYTES)))
}

/// Reads a record; false at the end of the file.
fn next_record(reader: &mut Reader<Take<File>>, record: &mut ByteRecord) -> Result<bool> {
    reader.get_mut().set_limit(MAX_RECORD_BYTES);
    let is_record = reader.read_byte_record(record)?;
    check_length(reader).map(|()| is_record)
}

/// Refuses a record that used up the bytes of one: the file seemed to end inside of it.
fn check_length(reader: &Reader<Take<File>>) -> Result<()> {
    match reader.get_ref().limit() {
        0 => bail!("a row of more than {MAX_RECORD_BYTES} bytes: is a quote not closed?"),
        _ => Ok(()),
    }
}

/// Returns a bad record as text.
fn record_text(record: &ByteRecord, delimiter: u8) -> String {
    let fields: Vec<_> = record.iter().map(String::from_utf8_lossy).collect();
    let text = fields.join(&char::from(delimiter).to_string());
    text.chars().take(MAX_RECORD_CHARS).collect()
}

/// Appends a field as a value of its column's type.
fn put(field: &str, arrow: &Arrow, bytes: &mut Vec<u8>) -> Result<()> {
    let text = field.trim();
    let mismatch = |what: &str| {
        let text: String = text.chars().take(100).collect();
        format!("`{text}` is not a valid {what}, the type of the column by --as or its first rows")
    };
    match arrow {
        Arrow::Utf8 => bytes.extend_from_slice(field.as_bytes()),
        Arrow::Int64 => bytes.extend(parse_integer(text).with_context(|| mismatch("integer"))?.to_le_bytes()),
        Arrow::UInt64 => {
            let number: Option<u64> = text.parse().ok().or_else(|| parse_integer(text)?.try_into().ok());
            bytes.extend(number.with_context(|| mismatch("integer from 0 on"))?.to_le_bytes());
        }
        Arrow::Float64 => {
            let number: f64 = text.parse().ok().with_context(|| mismatch("number"))?;
            // The text `inf` means infinity; 1e400 does not.
            if number.is_infinite() && text.bytes().any(|byte| byte.is_ascii_digit()) {
                bail!("beyond the largest number of 64 bits");
            }
            bytes.extend(number.to_le_bytes());
        }
        Arrow::Boolean => bytes.push(match text {
            "0" => 0,
            "1" => 1,
            _ => parse_bool(text).with_context(|| mismatch("truth value"))?.into(),
        }),
        Arrow::Date32 => bytes.extend(parse_date(text).with_context(|| mismatch("date"))?.to_le_bytes()),
        Arrow::Timestamp(..) => bytes.extend(parse_micros(text).with_context(|| mismatch("time"))?.to_le_bytes()),
        _ => bail!("its first rows are all empty: set its type with --as, or leave it out"),
    }
    Ok(())
}
