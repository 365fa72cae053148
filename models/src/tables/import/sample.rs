//! First look at the inputs, which determines the columns and the number of buckets. In: a request and its inputs. Out: a
//! plan. Reads a few batches.

use super::batch::Batch;
use super::gather::{self, Halt};
use super::inputs::{Input, Inputs, Origin};
use super::layout::Layout;
use super::plan::Plan;
use super::read::{OpenedFile, catch_panic};
use super::request::{ColumnRequest, TableRequest};
use crate::error::ModelsError;
use arrow_array::Array as _;
use arrow_array::cast::AsArray as _;
use arrow_schema::{DataType as Arrow, FieldRef, Schema};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Ratio of the memory limit to the size of a bucket on disk.
const MEMORY_TO_BUCKET_RATIO: u64 = 32;
/// Maximum number of buckets, as a power of two.
const MAX_BUCKET_BITS: u32 = 12;
/// Guessed bytes of a key, with the overhead of its record.
const KEY_GUESS_BYTES: u64 = 40;
/// Maximum files inspected to find one with rows, which determines the columns.
const SAMPLED_FILES: usize = 100;
/// Rows inspected for the length of a list, and guessed bytes of each.
const LIST_ROWS: usize = 65_536;
const LIST_GUESS_BYTES: usize = 64 << 10;

/// Takes the columns from the first file with rows, and returns its schema and the plan of the import.
///
/// # Errors
/// No input, an input that cannot be read, or columns that do not fit the request.
pub(super) fn plan(request: &TableRequest, inputs: &Inputs, part_folder: &Path) -> Result<(Schema, Plan), ModelsError> {
    let csv = request.csv.with_column_types(&request.columns);
    let fetched = part_folder.join(format!("sample-{}", std::process::id()));
    // A part without rows, as clusters write them, shows no types.
    let mut first: Option<(&Input, OpenedFile)> = None;
    let mut lengths = Lengths::new();
    for (number, input) in inputs.files.iter().take(SAMPLED_FILES).enumerate() {
        let path = gather::fetch(input, &fetched, number)?;
        let opened = gather::open(&path, input, &csv, None)?;
        let has_rows = opened.has_rows();
        if has_rows {
            for (name, length) in list_lengths(&opened, &path, &input.file.name, &request.columns)? {
                let known = lengths.entry(name).or_default();
                *known = known.or(length);
            }
        }
        let is_better = first.as_ref().is_none_or(|(_, first)| has_rows && !first.has_rows());
        if is_better {
            first = Some((input, opened));
        }
        if has_rows && lengths.values().all(Option::is_some) {
            break;
        }
    }
    let (first, opened) =
        first.ok_or_else(|| ModelsError::Usage("name a file, a folder or a URL of rows".to_owned()))?;
    if opened.has_no_columns() {
        return Err(ModelsError::bad(&first.file.name, &"it is empty"));
    }
    let schema = opened.schema().as_ref().clone();
    let measured = |column: &str| lengths.get(column).copied().flatten();
    let layout = Layout::new(&schema, &request.columns, &measured);
    let layout = layout.map_err(|what| ModelsError::bad(&first.file.name, &what))?;
    let recorded = rows(&opened);
    // For text and IPC: no row is shorter than its key.
    let rows_per_byte = match recorded {
        Some(rows) => rows as f64 / first.file.bytes.max(1) as f64,
        None => 1.0 / (8 + 2 * layout.columns.len()) as f64,
    };
    let mut all_rows = 0.0;
    for input in &inputs.files {
        let exact = match &input.origin {
            // Files of one table compress differently.
            Origin::Disk(path) if recorded.is_some() => rows(&gather::open(path, input, &csv, Some(&schema))?),
            _ => None,
        };
        all_rows += exact.map_or(input.file.bytes as f64 * rows_per_byte, |rows| rows as f64);
    }
    // Best effort: it is removed with the import's folder.
    let _ = fs::remove_dir_all(&fetched);
    let plan = Plan {
        columns: request.columns.clone(),
        csv,
        inputs: inputs.files.iter().map(|input| input.file.clone()).collect(),
        bucket_bits: bucket_bits(&layout, all_rows, request.memory_mib << 20),
        layout,
        parts: request.part.unwrap_or_default().count,
    };
    Ok((schema, plan))
}

/// Returns the number of buckets for about this many rows, as a power of two.
fn bucket_bits(layout: &Layout, rows: f64, memory_bytes: u64) -> u32 {
    let columns = layout.columns.iter().map(|column| {
        let count = column.shape.iter().product::<i64>().unsigned_abs();
        count * column.dtype.size().unwrap_or(8) as u64
    });
    let row_bytes: u64 = columns.sum();
    let spilled = rows * (row_bytes + KEY_GUESS_BYTES) as f64;
    let buckets = spilled / (memory_bytes / MEMORY_TO_BUCKET_RATIO) as f64;
    (buckets.max(1.0).log2().ceil() as u32).clamp(4, MAX_BUCKET_BITS)
}

/// Returns the rows of a file that records them.
fn rows(opened: &OpenedFile) -> Option<u64> {
    opened.sections(0).iter().map(|section| section.rows).sum()
}

/// Length of the lists of each column; `None` without a value.
type Lengths = BTreeMap<String, Option<usize>>;

/// Returns the length of each requested column's lists, from the first non-null value. Reads a few batches.
fn list_lengths(opened: &OpenedFile, path: &Path, name: &str, request: &ColumnRequest) -> Result<Lengths, ModelsError> {
    let schema = opened.schema();
    let is_list = |field: &&FieldRef| matches!(field.data_type(), Arrow::List(_) | Arrow::LargeList(_));
    let lists = schema.fields().iter().filter(is_list);
    let lists = lists.map(|field| field.name().as_str());
    let lists: Vec<&str> = lists.filter(|name| request.takes(name)).collect();
    let mut lengths: Lengths = lists.iter().map(|name| ((*name).to_owned(), None)).collect();
    let Some(first) = opened.sections(0).into_iter().next().filter(|_| !lists.is_empty()) else {
        return Ok(lengths);
    };
    let mut seen = 0;
    let mut on_batch = |batch: Batch| -> Result<(), Halt> {
        for (field, column) in batch.rows.schema().fields().iter().zip(batch.rows.columns()) {
            let first = (0..column.len()).find(|&row| column.is_valid(row));
            let length = match (first, column.data_type()) {
                (Some(row), Arrow::List(_)) => column.as_list::<i32>().value(row).len(),
                (Some(row), Arrow::LargeList(_)) => column.as_list::<i64>().value(row).len(),
                _ => continue,
            };
            lengths.entry(field.name().clone()).or_default().get_or_insert(length);
        }
        seen += batch.rows.num_rows();
        if lengths.values().all(Option::is_some) || seen >= LIST_ROWS {
            // Ends the reading.
            return Err(Halt::Other(ModelsError::Interrupted));
        }
        Ok(())
    };
    match catch_panic(|| opened.read(path, (first, LIST_GUESS_BYTES), &lists, &mut on_batch)) {
        Err(Halt::File(what)) => Err(ModelsError::bad(&name, &what)),
        Ok(()) | Err(Halt::Other(_)) => Ok(lengths),
    }
}
