//! Import of users' rows as feature tables: Parquet, Arrow IPC and CSV, with keys that are integers in any order, texts
//! or UUIDs.
//!
//! In: a request. Out: `NAME.rows`, the bad rows beside it, and a summary. Inputs go to buckets on disk by the hash of
//! their keys (`gather`); several processes may share this work, and it can be resumed. Then the buckets become the
//! table, one by one (`finish`). Memory is bounded, whatever the number of rows.

mod batch;
mod convert;
mod csv_file;
mod finish;
mod gather;
mod inputs;
mod lakes;
mod layout;
mod plan;
mod read;
mod remote;
mod request;
mod sample;
mod shards;
mod spill;
mod text_types;

pub use request::{
    ColumnRequest, ColumnType, CsvOptions, DuplicateRule, HashedColumn, NullRule, Part, TableRequest, Vector,
};

use crate::error::ModelsError;
use crate::staged;
use crate::stop::Stop;
use finish::FinishPhase;
use gather::GatherPhase;
use inputs::Inputs;
use plan::PartProgress;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_formats::model::is_plain_name;
use tierlab_formats::table::{EXTENSION, TableHeader};

/// Result of an import.
#[derive(Debug, Default)]
pub struct ImportedTable {
    /// Path of the table, existing or future.
    pub path: PathBuf,
    /// Header of the table, once it is written.
    pub header: Option<TableHeader>,
    /// Rows read, without bad rows.
    pub rows: u64,
    /// Rows dropped because of a duplicate key.
    pub dropped: u64,
    /// Number of bad rows.
    pub bad: u64,
    /// File of the bad rows.
    pub bad_file: PathBuf,
    /// Omitted inputs with reasons.
    pub skipped: Vec<String>,
    /// Seconds of reading.
    pub read_seconds: f64,
    /// Seconds of writing.
    pub write_seconds: f64,
}

/// Imports a table, or performs its step of the import. Blocks on disks and networks: must not be called from an async
/// task.
///
/// # Errors
/// A fault of the request, an input or the disk, with file, row and column. Finished work stays, and the same request
/// continues.
pub fn import_table(request: &TableRequest, stop: &Stop) -> Result<ImportedTable, ModelsError> {
    let name = &request.columns.name;
    let target = target(request)?;
    let folder = plan::folder(&request.out, name);
    if request.restart {
        plan::remove(&folder)?;
    }
    let part = request.part.unwrap_or_default();
    let part_folder = plan::part_folder(&folder, part);
    let inputs = find_inputs(request, stop)?;
    let started = Instant::now();
    let (schema, plan) = sample::plan(request, &inputs, &part_folder)?;
    let plan = plan.adopt_or_write(&folder, &part_folder)?;
    let table = plan.layout.schema(name, 1);
    let table = table.map_err(|what| ModelsError::bad(&target.display(), &what))?;
    let mut imported = ImportedTable {
        skipped: inputs.skipped,
        ..ImportedTable::default()
    };
    if !request.finish {
        let gather_phase = GatherPhase {
            plan: &plan,
            inputs: &inputs.files,
            schema: &schema,
            folder: &part_folder,
            table: &table,
            memory_bytes: request.memory_mib << 20,
            max_bad_rows: request.max_bad_rows.max(request.allow_bad_rows),
        };
        let progress = gather_phase.run(part, stop)?;
        imported.read_seconds = started.elapsed().as_secs_f64();
        if request.part.is_some() {
            return Ok(ImportedTable {
                path: target,
                rows: progress.rows,
                bad: progress.bad,
                bad_file: part_folder.join("bad.jsonl"),
                ..imported
            });
        }
    }
    let parts = all_parts(&folder, plan.parts)?;
    let started = Instant::now();
    let finish_phase = FinishPhase {
        plan: &plan,
        parts: &parts,
        memory_bytes: request.memory_mib << 20,
        target: &target,
    };
    let (header, dropped) = finish_phase.run(stop)?;
    let bad_file = request.out.join(format!("{name}.bad.jsonl"));
    write_bad_rows(&parts, &bad_file)?;
    fs::remove_dir_all(&folder).map_err(ModelsError::io("remove", &folder))?;
    Ok(ImportedTable {
        path: target,
        header: Some(header),
        rows: parts.iter().map(|(_, part)| part.rows).sum(),
        dropped,
        bad: parts.iter().map(|(_, part)| part.bad).sum(),
        bad_file,
        write_seconds: started.elapsed().as_secs_f64(),
        ..imported
    })
}

/// Returns the path of the table, which must be free or replaceable.
fn target(request: &TableRequest) -> Result<PathBuf, ModelsError> {
    let name = &request.columns.name;
    if !is_plain_name(name) {
        let what = format!("--name: invalid name `{name}`: use letters, digits, `.`, `_` and `-`");
        return Err(ModelsError::Usage(what));
    }
    let target = request.out.join(format!("{name}.{EXTENSION}"));
    if target.exists() && !request.replace {
        let what = "the table exists: pass --replace to overwrite it";
        return Err(ModelsError::bad(&target.display(), &what));
    }
    Ok(target)
}

fn find_inputs(request: &TableRequest, stop: &Stop) -> Result<Inputs, ModelsError> {
    let inputs = Inputs::find(&request.inputs, &request.csv.with_column_types(&request.columns), stop)?;
    let (row, count) = (request::ROW, inputs.files.len());
    if request.columns.key == row && count > 1 {
        return Err(ModelsError::Usage(format!(
            "--key {row}: rows are numbered within one file, not {count}; name a column of unique keys"
        )));
    }
    Ok(inputs)
}

/// Returns all parts with their folders; each must be complete.
fn all_parts(folder: &Path, parts: u32) -> Result<Vec<(PathBuf, PartProgress)>, ModelsError> {
    let mut all = Vec::new();
    let mut missing = Vec::new();
    for number in 1..=parts {
        let part = plan::part_folder(folder, Part { number, count: parts });
        match plan::read_progress(&part)? {
            Some((progress, _)) if progress.done => all.push((part, progress)),
            _ => missing.push(number.to_string()),
        }
    }
    if missing.is_empty() {
        return Ok(all);
    }
    let (all, first) = (missing.join(", "), &missing[0]);
    let what = format!("part {all} of {parts} is not read yet: run the same command with --part {first}/{parts}");
    Err(ModelsError::bad(&folder.display(), &what))
}

/// Puts the bad rows of all parts beside the table; without any, removes the file.
fn write_bad_rows(parts: &[(PathBuf, PartProgress)], to: &Path) -> Result<(), ModelsError> {
    let mut lines = Vec::new();
    for (folder, _) in parts.iter().filter(|(_, part)| part.bad > 0) {
        let path = folder.join("bad.jsonl");
        lines.extend(fs::read(&path).map_err(ModelsError::io("read", &path))?);
    }
    if lines.is_empty() {
        return match fs::remove_file(to) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ModelsError::io("remove", to)(e)),
            _ => Ok(()),
        };
    }
    staged::write_atomically(to, &lines)
}
