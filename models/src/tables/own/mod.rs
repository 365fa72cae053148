//! Import of users' rows as feature tables: Parquet, Arrow IPC and CSV, with keys that are integers in any order, texts
//! or UUIDs.
//!
//! In: a request. Out: `NAME.rows`, the bad rows beside it, and a summary. Inputs go to buckets on disk by the hash of
//! their keys (`gather`); several processes may share this work, and it can be resumed. Then the buckets become the
//! table, one by one (`finish`). Memory is bounded, whatever the number of rows.

mod bad_rows;
mod batch;
mod convert;
mod csv_file;
mod finish;
mod gather;
mod inputs;
mod lakes;
mod layout;
mod listing;
mod numbers;
mod plan;
mod read;
mod remote;
mod request;
mod shards;
mod spill;
mod text_types;

pub use request::{
    ColumnRequest, CsvOptions, DuplicateRule, HashedColumn, ImportStep, NullRule, Part, Request, TypeOf, Vector,
};

use crate::error::ModelsError;
use crate::staged;
use crate::stop::Stop;
use arrow_schema::Schema;
use finish::{Finished, Finishing};
use gather::Gathering;
use inputs::{Input, Inputs};
use layout::Layout;
use plan::{Plan, Progressed};
use read::Opened;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tierlab_formats::model::is_plain_name;
use tierlab_formats::table::{EXTENSION, TableHeader};

/// Ratio of the memory limit to the size of a bucket on disk.
const BUCKETS_IN_MEMORY: u64 = 32;
/// Maximum number of buckets, as a power of two.
const MAX_BUCKET_BITS: u32 = 12;
/// Guessed bytes of a key, with the overhead of its record.
const KEY_GUESS_BYTES: u64 = 40;
/// Minimum memory limit.
const MIN_MEMORY_BYTES: u64 = 32 << 20;

/// Maximum files inspected to find one with rows, which determines the columns.
const SAMPLED_FILES: usize = 100;

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
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
    /// Files read.
    pub files: usize,
    /// Omitted inputs with reasons.
    pub left_out: Vec<String>,
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
pub fn import_table(request: &Request, stop: &Stop) -> Result<Imported, ModelsError> {
    let name = &request.columns.name;
    if !is_plain_name(name) {
        let what = format!("--name: `{name}` is no plain name (letters, digits, `.`, `_`, `-`)");
        return Err(ModelsError::Usage(what));
    }
    if request.memory_bytes < MIN_MEMORY_BYTES {
        return Err(ModelsError::Usage("--memory-mib: at least 32".to_owned()));
    }
    let target = request.out.join(format!("{name}.{EXTENSION}"));
    if target.exists() && !request.replace {
        return Err(ModelsError::bad(
            &target.display(),
            &"there is a table already; --replace writes it anew",
        ));
    }
    let folder = plan::folder(&request.out, name);
    if request.restart && folder.exists() {
        fs::remove_dir_all(&folder).map_err(ModelsError::io("remove", &folder))?;
    }
    let inputs = Inputs::find(&request.inputs, &request.csv.with_types_of(&request.columns), stop)?;
    if request.columns.key == request::ROW && inputs.files.len() > 1 {
        return Err(ModelsError::Usage(format!(
            "--key {}: rows are numbered within a file, and there are {} files; name a column that tells rows apart",
            request::ROW,
            inputs.files.len()
        )));
    }
    let began = Instant::now();
    let sample = Sample::take(request, &inputs, &folder)?;
    let plan = sample.plan(request, &inputs).agree(&folder)?;
    let schema = plan
        .layout
        .schema(name, 1)
        .map_err(|what| ModelsError::bad(&target.display(), &what))?;
    let offsets: Vec<usize> = schema.columns.iter().map(|column| column.offset as usize).collect();
    let payload_bytes = schema.key.as_ref().map_or(0, |key| key.offset as usize);
    if request.step != ImportStep::Finish {
        let part = plan::part_folder(&folder, request.part.number, request.part.of);
        let gathering = Gathering {
            plan: &plan,
            inputs: &inputs.files,
            schema: &sample.schema,
            folder: &part,
            memory_bytes: request.memory_bytes,
            max_bad_rows: request.max_bad_rows,
            offsets: &offsets,
            payload_bytes,
        };
        let units = gather::units(&inputs.files, &plan.csv, &sample.schema, stop)?;
        let progressed = gathering.run(&units, request.part, stop)?;
        if request.step == ImportStep::Read {
            return Ok(Imported {
                bad_file: part.join("bad.jsonl"),
                path: target,
                header: None,
                rows: progressed.rows,
                dropped: 0,
                bad: progressed.bad,
                files: inputs.files.len(),
                left_out: inputs.left_out,
                read_seconds: began.elapsed().as_secs_f64(),
                write_seconds: 0.0,
            });
        }
    }
    let read_seconds = began.elapsed().as_secs_f64();
    let (folders, parts) = all_parts(&folder, plan.parts)?;
    let began = Instant::now();
    let finishing = Finishing {
        plan: &plan,
        folders: &folders,
        parts: &parts,
        memory_bytes: request.memory_bytes,
        payload_bytes,
        target: &target,
    };
    let Finished { header, dropped } = finishing.run(stop)?;
    let bad_file = request.out.join(format!("{name}.bad.jsonl"));
    keep_bad_rows(&folders, &parts, &bad_file)?;
    fs::remove_dir_all(&folder).map_err(ModelsError::io("remove", &folder))?;
    Ok(Imported {
        path: target,
        header: Some(header),
        rows: parts.iter().map(|part| part.rows).sum(),
        dropped,
        bad: parts.iter().map(|part| part.bad).sum(),
        bad_file,
        files: inputs.files.len(),
        left_out: inputs.left_out,
        read_seconds,
        write_seconds: began.elapsed().as_secs_f64(),
    })
}

/// Properties of the first file with rows.
struct Sample {
    schema: Schema,
    layout: Layout,
    /// Approximate rows per byte of a file.
    rows_per_byte: f64,
}

impl Sample {
    fn take(request: &Request, inputs: &Inputs, folder: &Path) -> Result<Self, ModelsError> {
        let csv = request.csv.with_types_of(&request.columns);
        let fetched = folder.join(format!("sample-{}", std::process::id()));
        // A part without rows, as clusters write them, shows no types.
        let mut first: Option<(&Input, Opened)> = None;
        let mut lengths: Vec<(String, usize)> = Vec::new();
        for (number, input) in inputs.files.iter().take(SAMPLED_FILES).enumerate() {
            let path = gather::fetch(input, &fetched, number)?;
            let opened = gather::open(&path, input, &csv, None)?;
            let has_rows = opened.has_rows();
            if has_rows {
                let own = gather::list_lengths(&opened, &path, &input.about.name)?;
                lengths.extend(
                    own.into_iter()
                        .filter(|(name, _)| !lengths.iter().any(|(known, _)| known == name))
                        .collect::<Vec<_>>(),
                );
            }
            let is_better = first.as_ref().is_none_or(|(_, first)| has_rows && !first.has_rows());
            if is_better {
                first = Some((input, opened));
            }
            let lists = first
                .as_ref()
                .map_or(0, |(_, first)| gather::lists(&first.schema()).len());
            if has_rows && lengths.len() >= lists {
                break;
            }
        }
        let (first, opened) =
            first.ok_or_else(|| ModelsError::Usage("name a file, a folder or a URL of rows".to_owned()))?;
        let name = &first.about.name;
        let measured = |column: &str| Some(lengths.iter().find(|(name, _)| name == column)?.1);
        let layout =
            Layout::of(&opened.schema(), &request.columns, &measured).map_err(|what| ModelsError::bad(name, &what))?;
        let stretches = opened.stretches(first.about.bytes);
        let rows: Option<u64> = stretches.iter().map(|stretch| stretch.rows).sum();
        // For text and IPC: no row is shorter than its key.
        let rows = rows.unwrap_or(first.about.bytes / (8 + 2 * layout.columns.len() as u64));
        let schema = opened.schema().as_ref().clone();
        // Best effort: it is removed with the import's folder.
        let _ = fs::remove_dir_all(&fetched);
        Ok(Self {
            schema,
            layout,
            rows_per_byte: rows as f64 / first.about.bytes.max(1) as f64,
        })
    }

    fn plan(&self, request: &Request, inputs: &Inputs) -> Plan {
        let bytes: u64 = inputs.files.iter().map(|input| input.about.bytes).sum();
        let row_bytes: u64 = self
            .layout
            .columns
            .iter()
            .map(|column| column.shape.iter().product::<i64>().unsigned_abs() * column.dtype.size().unwrap_or(8) as u64)
            .sum();
        let spilled = bytes as f64 * self.rows_per_byte * (row_bytes + KEY_GUESS_BYTES) as f64;
        let buckets = spilled / (request.memory_bytes / BUCKETS_IN_MEMORY) as f64;
        let bits = (buckets.max(1.0).log2().ceil() as u32).clamp(4, MAX_BUCKET_BITS);
        Plan {
            columns: request.columns.clone(),
            csv: request.csv.with_types_of(&request.columns),
            inputs: inputs.files.iter().map(|input| input.about.clone()).collect(),
            layout: self.layout.clone(),
            bucket_bits: bits,
            parts: request.part.of,
        }
    }
}

/// Returns the folders of all parts, each of which must be complete.
fn all_parts(folder: &Path, parts: u32) -> Result<(Vec<PathBuf>, Vec<Progressed>), ModelsError> {
    let mut folders = Vec::new();
    let mut all = Vec::new();
    let mut missing = Vec::new();
    for number in 1..=parts {
        let part = plan::part_folder(folder, number, parts);
        match plan::progressed(&part)? {
            Some(progressed) if progressed.done => all.push(progressed),
            _ => missing.push(number.to_string()),
        }
        folders.push(part);
    }
    if missing.is_empty() {
        return Ok((folders, all));
    }
    let what = format!(
        "part {} of {parts} is not read yet: run the same command with --part {}/{parts}",
        missing.join(", "),
        missing[0]
    );
    Err(ModelsError::bad(&folder.display(), &what))
}

/// Puts the bad rows of all parts beside the table; without any, removes the file.
fn keep_bad_rows(folders: &[PathBuf], parts: &[Progressed], to: &Path) -> Result<(), ModelsError> {
    let mut lines = Vec::new();
    for (folder, part) in folders.iter().zip(parts).filter(|(_, part)| part.bad > 0) {
        let path = folder.join("bad.jsonl");
        lines.extend(fs::read(&path).map_err(ModelsError::io("read", &path))?);
        debug_assert!(part.bad_bytes > 0, "a bad row has a line");
    }
    if lines.is_empty() {
        return match fs::remove_file(to) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ModelsError::io("remove", to)(e)),
            _ => Ok(()),
        };
    }
    staged::write_whole(to, &lines)
}
