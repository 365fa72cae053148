//! Manifests of Iceberg: Avro files that list manifests, and files of rows. In: their bytes. Out: their entries.

use super::super::read::unless_it_panics;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch, StringArray, StructArray};
use arrow_avro::reader::ReaderBuilder;
use arrow_cast::display::array_value_to_string;
use std::collections::HashMap;
use std::io::Cursor;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Maximum time to read a manifest, beside [`READ_TIME_PER_MIB`].
const READ_TIME: Duration = Duration::from_secs(5);
const READ_TIME_PER_MIB: Duration = Duration::from_secs(1);
/// Status of a removed file; other files were added or exist.
const GONE: i32 = 2;

/// Returns the records of an Avro file.
///
/// # Errors
/// Damage, on which the reader may panic or never end.
pub(super) fn records_of(bytes: Vec<u8>) -> Result<Vec<RecordBatch>, String> {
    let mebibytes = u32::try_from(bytes.len() >> 20).unwrap_or(u32::MAX);
    records_within(bytes, READ_TIME + READ_TIME_PER_MIB.saturating_mul(mebibytes))
}

fn records_within(bytes: Vec<u8>, limit: Duration) -> Result<Vec<RecordBatch>, String> {
    let (sender, receiver) = mpsc::channel();
    // A reader past the limit cannot be stopped: its thread ends with the process.
    thread::spawn(move || {
        let read = unless_it_panics(|| {
            let reader = ReaderBuilder::new()
                .build(Cursor::new(bytes))
                .map_err(|e| e.to_string())?;
            reader.map(|batch| batch.map_err(|e| e.to_string())).collect()
        });
        let _ = sender.send(read);
    });
    let read = receiver.recv_timeout(limit);
    let read = read.unwrap_or_else(|_| Err(format!("its reader does not end within {limit:?}")));
    read.map_err(|what: String| format!("it is damaged, or no Avro: {what}"))
}

/// Manifest of a list.
pub(super) struct Manifest {
    pub(super) address: String,
    /// 1 if its files list deleted rows.
    pub(super) content: i32,
    /// Partition spec of its files.
    pub(super) spec: i32,
}

/// Returns the manifests of a list.
pub(super) fn manifests_of(batches: &[RecordBatch]) -> Result<Vec<Manifest>, String> {
    let mut manifests = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let paths = texts(&batch, "manifest_path")?;
        for row in 0..batch.len() {
            manifests.push(Manifest {
                address: paths.value(row).to_owned(),
                content: small(&batch, "content", row),
                spec: small(&batch, "partition_spec_id", row),
            });
        }
    }
    Ok(manifests)
}

/// Existing file of a manifest.
pub(super) struct File {
    pub(super) address: String,
    pub(super) format: String,
    pub(super) bytes: u64,
    /// Partition values as text, by field name; `None` is null.
    pub(super) partition: HashMap<String, Option<String>>,
}

pub(super) fn files_of(batches: &[RecordBatch]) -> Result<Vec<File>, String> {
    let mut files = Vec::new();
    for batch in batches {
        let batch = StructArray::from(batch.clone());
        let file = batch
            .column_by_name("data_file")
            .and_then(|column| column.as_struct_opt());
        let file = file.ok_or("no records of `data_file`: it is no manifest")?;
        let (paths, formats) = (texts(file, "file_path")?, texts(file, "file_format")?);
        let sizes = file.column_by_name("file_size_in_bytes");
        let sizes = sizes.and_then(|column| column.as_primitive_opt::<Int64Type>());
        let sizes = sizes.ok_or("no `file_size_in_bytes`: it is no manifest")?;
        let partitions = file
            .column_by_name("partition")
            .and_then(|column| column.as_struct_opt());
        for row in 0..batch.len() {
            if small(&batch, "status", row) != GONE {
                files.push(File {
                    address: paths.value(row).to_owned(),
                    format: formats.value(row).to_owned(),
                    bytes: u64::try_from(sizes.value(row)).unwrap_or(0),
                    partition: partitions.map_or_else(HashMap::new, |partitions| partition_of(partitions, row)),
                });
            }
        }
    }
    Ok(files)
}

/// Returns the values of a partition, except those without a text form.
fn partition_of(partitions: &StructArray, row: usize) -> HashMap<String, Option<String>> {
    let columns = partitions.fields().iter().zip(partitions.columns());
    let values = columns.filter_map(|(field, column)| {
        let text = column.is_valid(row).then(|| array_value_to_string(column, row));
        Some((field.name().clone(), text.transpose().ok()?))
    });
    values.collect()
}

fn texts<'a>(records: &'a StructArray, name: &str) -> Result<&'a StringArray, String> {
    let column = records
        .column_by_name(name)
        .and_then(|column| column.as_string_opt::<i32>());
    let column = column.filter(|column| column.null_count() == 0);
    column.ok_or_else(|| format!("no texts `{name}`"))
}

/// Returns a small number; 0 if it is missing, as in the first version of the format.
fn small(records: &StructArray, name: &str, row: usize) -> i32 {
    let column = records.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<Int32Type>());
    column
        .filter(|column| column.is_valid(row))
        .map_or(0, |column| column.value(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file with one record, a long, and bytes after it in the same block.
    fn avro(behind: &[u8]) -> Vec<u8> {
        let schema = br#"{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}"#;
        let sync = [7; 16];
        // Counts and lengths below 64 are one byte, twice the number; this schema's length is two.
        let length = [(schema.len() as u8 * 2) | 0x80, (schema.len() >> 6) as u8];
        let block = [2, (1 + behind.len() as u8) * 2, 84];
        [
            &b"Obj\x01\x02\x16avro.schema"[..],
            &length,
            schema,
            &[0],
            &sync,
            &block,
            behind,
            &sync,
        ]
        .concat()
    }

    #[test]
    fn a_reader_that_does_not_end_is_given_up() {
        let whole = records_of(avro(&[])).unwrap();
        assert_eq!(whole.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        let error = records_within(avro(&[84]), Duration::from_millis(500)).unwrap_err();
        assert!(error.contains("damaged") && error.contains("does not end"), "{error}");
    }
}
