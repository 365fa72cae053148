//! Manifests of Iceberg: files of Avro that list manifests, and files of rows. In: their bytes. Out: what they list.

use crate::panics::unless_it_panics;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, RecordBatch, StringArray, StructArray};
use arrow_avro::reader::ReaderBuilder;
use arrow_cast::display::array_value_to_string;
use std::collections::HashMap;
use std::io::Cursor;

/// Status of a file that is gone; others were added, or are there still.
const GONE: i32 = 2;

/// The records of a file of Avro. Its reader may panic on damage.
pub(super) fn records_of(bytes: &[u8]) -> Result<Vec<RecordBatch>, String> {
    let read = unless_it_panics(|| {
        let reader = ReaderBuilder::new()
            .build(Cursor::new(bytes))
            .map_err(|e| e.to_string())?;
        reader.map(|batch| batch.map_err(|e| e.to_string())).collect()
    });
    read.map_err(|what: String| format!("it is damaged, or no Avro: {what}"))
}

/// A manifest of a list.
pub(super) struct Manifest {
    pub(super) address: String,
    /// 1 if its files say which rows are deleted.
    pub(super) content: i32,
    /// Partition spec of its files.
    pub(super) spec: i32,
}

/// The manifests of a list.
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

/// A file of a manifest that is there.
pub(super) struct File {
    pub(super) address: String,
    pub(super) format: String,
    pub(super) bytes: u64,
    /// Partition values as text, by the name of their field; `None` is null.
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

/// Values of a partition. One that has no text is left out.
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

/// A small number; 0 where it is not there, as in the first version of the format.
fn small(records: &StructArray, name: &str, row: usize) -> i32 {
    let column = records.column_by_name(name);
    let column = column.and_then(|column| column.as_primitive_opt::<Int32Type>());
    column
        .filter(|column| column.is_valid(row))
        .map_or(0, |column| column.value(row))
}
