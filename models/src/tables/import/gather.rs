//! First half of an import: distributes inputs to buckets on disk, on every core, in bounded memory, and can be
//! resumed. In: a plan and this process's part. Out: a part's folder with its buckets, its bad rows, and a journal.
//! Knows nothing of the table's file.

use super::batch::Batch;
use super::convert::{Rules, convert};
use super::inputs::{Input, Origin};
use super::layout::payload_bytes;
use super::plan::{Journal, PartProgress, Plan};
use super::read::{self, OpenedFile, Section, catch_panic};
use super::request::{CsvOptions, Part, ROW};
use super::spill::{Spill, SpillBuffers};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables::workers;
use anyhow::anyhow;
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::Schema;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tierlab_formats::table::TableSchema;

/// Units of work per line of the journal.
const UNITS_PER_JOURNAL_LINE: usize = 16;
/// Approximate bytes of rows converted at once, whatever the size of a file's batches.
const SLICE_BYTES: usize = 8 << 20;

/// Section of an input.
#[derive(Debug, Clone, Copy)]
struct Unit {
    input: usize,
    /// Section; `None` is all of a file that is fetched first.
    section: Option<Section>,
    bytes: u64,
}

/// Inputs of gathering.
pub(super) struct GatherPhase<'a> {
    pub(super) plan: &'a Plan,
    pub(super) inputs: &'a [Input],
    pub(super) schema: &'a Schema,
    /// Folder of the part.
    pub(super) folder: &'a Path,
    /// Columns of a row.
    pub(super) table: &'a TableSchema,
    pub(super) memory_bytes: u64,
    pub(super) max_bad_rows: u64,
}

/// Reason for which a batch ends the reading of a file.
pub(super) enum Halt {
    File(anyhow::Error),
    Other(ModelsError),
}

impl From<ModelsError> for Halt {
    fn from(error: ModelsError) -> Self {
        Self::Other(error)
    }
}

impl From<anyhow::Error> for Halt {
    fn from(what: anyhow::Error) -> Self {
        Self::File(what)
    }
}

/// Opens a file of rows; readers of foreign formats may panic on damage.
pub(super) fn open(
    path: &Path,
    input: &Input,
    csv: &CsvOptions,
    fixed_schema: Option<&Schema>,
) -> Result<OpenedFile, ModelsError> {
    let opened = catch_panic(|| read::open(path, csv, fixed_schema, input.columns.as_ref()));
    opened.map_err(|what| ModelsError::bad(&input.file.name, &what))
}

impl GatherPhase<'_> {
    /// Returns the units of all inputs, in order. Files on disk are split if possible; others are read whole.
    fn units(&self, stop: &Stop) -> Result<Vec<Unit>, ModelsError> {
        let mut units = Vec::new();
        for (at, input) in self.inputs.iter().enumerate() {
            stop.check()?;
            let sections = match &input.origin {
                Origin::Store { .. } => vec![None],
                Origin::Disk(path) => {
                    let opened = open(path, input, &self.plan.csv, Some(self.schema))?;
                    opened.sections(input.file.bytes).into_iter().map(Some).collect()
                }
            };
            units.extend(sections.into_iter().map(|section| Unit {
                input: at,
                section,
                bytes: section.map_or(input.file.bytes, |section| section.bytes),
            }));
        }
        Ok(units)
    }

    /// Reads the remaining units of a part.
    ///
    /// # Errors
    /// An input that is damaged or has changed; too many bad rows; a full disk; a stop, after which the same command
    /// continues.
    pub(super) fn run(&self, part: Part, stop: &Stop) -> Result<PartProgress, ModelsError> {
        let units = self.units(stop)?;
        let (mut journal, mut part_progress) = Journal::open(self.folder, 1 << self.plan.bucket_bits)?;
        if part_progress.done {
            return Ok(part_progress);
        }
        let spill = Spill::open(self.folder, &part_progress.lengths)?;
        let bad = self.folder.join("bad.jsonl");
        let bad = BadRows::open(&bad, part_progress.bad, part_progress.bad_bytes, self.max_bad_rows)?;
        let (first, step) = (part.number as usize - 1, part.count as usize);
        let units: Vec<Unit> = units.into_iter().skip(first).step_by(step).collect();
        let total = units.iter().map(|unit| unit.bytes).sum();
        let label = match (part.number, part.count) {
            (_, 1) => "reading".to_owned(),
            (number, of) => format!("reading part {number} of {of}"),
        };
        let mut progress = Progress::bytes(&label, total);
        progress.advance(units.iter().take(part_progress.units).map(|unit| unit.bytes).sum());
        if part_progress.units > 0 {
            progress.show(&format!("going on after {} rows", part_progress.rows));
        }
        while part_progress.units < units.len() {
            let next = &units[part_progress.units..units.len().min(part_progress.units + UNITS_PER_JOURNAL_LINE)];
            let (rows, longest) = self.read_units(next, &spill, &bad, &mut progress, stop)?;
            let (bad_count, bad_bytes) = bad.totals();
            part_progress = PartProgress {
                units: part_progress.units + next.len(),
                rows: part_progress.rows + rows,
                bad: bad_count,
                bad_bytes,
                longest_key: part_progress.longest_key.max(longest),
                lengths: spill.lengths(),
                done: false,
            };
            journal.append(&part_progress)?;
        }
        part_progress.done = true;
        journal.append(&part_progress)?;
        Ok(part_progress)
    }

    /// Reads units on every core; returns their rows and the longest key.
    fn read_units(
        &self,
        units: &[Unit],
        spill: &Spill,
        bad: &BadRows,
        progress: &mut Progress,
        stop: &Stop,
    ) -> Result<(u64, usize), ModelsError> {
        // Object stores are slow to respond, so more objects than cores are read at once.
        let is_remote = |unit: &Unit| matches!(self.inputs[unit.input].origin, Origin::Store { .. });
        let max_workers = match units.iter().any(is_remote) {
            true => workers::MAX_WORKERS,
            false => workers::worker_count(),
        };
        let workers = max_workers.min(units.len());
        let memory_bytes = self.memory_bytes / 4 / workers as u64;
        let progress = Mutex::new(progress);
        let done = workers::run(
            (workers, units.len()),
            || SpillBuffers::new(spill, self.plan.bucket_bits, memory_bytes),
            |buffers, at| self.read_unit(units[at], buffers, bad, &progress, stop),
            |mut buffers| buffers.flush().map(|()| (buffers.rows, buffers.longest_key)),
        )?;
        let sums = done.into_iter();
        Ok(sums.fold((0, 0), |(rows, longest), of| (rows + of.0, longest.max(of.1))))
    }

    fn read_unit(
        &self,
        unit: Unit,
        buffers: &mut SpillBuffers<'_>,
        bad: &BadRows,
        progress: &Mutex<&mut Progress>,
        stop: &Stop,
    ) -> Result<(), ModelsError> {
        let input = &self.inputs[unit.input];
        let name = &input.file.name;
        let path = fetch(input, self.folder, unit.input)?;
        let opened = open(&path, input, &self.plan.csv, Some(self.schema))?;
        if opened.has_no_columns() {
            return Ok(());
        }
        let checked = self.plan.layout.check_schema(&opened.schema(), &self.plan.columns);
        checked.map_err(|what| ModelsError::bad(name, &what))?;
        let columns: Vec<&str> = self.plan.layout.input_columns().collect();
        let sections = match unit.section {
            Some(section) => vec![section],
            None => opened.sections(input.file.bytes),
        };
        for section in sections {
            let mut on_batch = |batch: Batch| -> Result<(), Halt> {
                stop.check()?;
                let bytes = batch.bytes;
                self.convert(unit.input, &batch, buffers, bad)?;
                progress.lock().advance(bytes);
                Ok(())
            };
            let section = (section, payload_bytes(self.table));
            match catch_panic(|| opened.read(&path, section, &columns, &mut on_batch)) {
                Ok(()) => {}
                Err(Halt::Other(e)) => return Err(e),
                Err(Halt::File(what)) => return Err(ModelsError::bad(name, &what)),
            }
        }
        input.is_unchanged()?;
        if let Origin::Store { .. } = input.origin {
            // Best effort: a remaining file is removed with the folder.
            let _ = std::fs::remove_file(&path);
        }
        Ok(())
    }

    fn convert(&self, input: usize, batch: &Batch, buffers: &mut SpillBuffers<'_>, bad: &BadRows) -> Result<(), Halt> {
        let name = &self.inputs[input].file.name;
        for (row, reason, text) in &batch.bad {
            bad.push(name, *row, reason, &text.as_str().into())?;
        }
        let rules = Rules {
            layout: &self.plan.layout,
            table: self.table,
            nulls: self.plan.columns.nulls,
            max_key_bytes: usize::from(self.plan.columns.max_key_bytes),
        };
        let batch_rows = match self.plan.layout.key == ROW {
            true => &batch.with_numbers(ROW)?,
            false => &batch.rows,
        };
        let step = (SLICE_BYTES / payload_bytes(self.table).max(1)).max(1);
        for start in (0..batch_rows.num_rows()).step_by(step) {
            let slice = batch_rows.slice(start, step.min(batch_rows.num_rows() - start));
            let number = |row: usize| batch.numbers[start + row];
            let rows = convert(rules, &slice)
                .map_err(|(row, reason)| Halt::File(anyhow!("row {}: {reason}", number(row) + 1)))?;
            for (&row, reason) in &rows.bad {
                let values = values_of(&batch.rows, start + row);
                bad.push(name, number(row), reason, &values)?;
            }
            buffers.add(&rows, input, &number)?;
        }
        Ok(())
    }
}

/// Downloads an input, unless it is on disk.
pub(super) fn fetch(input: &Input, folder: &Path, number: usize) -> Result<PathBuf, ModelsError> {
    match &input.origin {
        Origin::Disk(path) => Ok(path.clone()),
        Origin::Store { store, key } => {
            std::fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
            let ending = input.file.name.rsplit_once('.').map_or("", |(_, ending)| ending);
            let ending = if ending.contains('/') { "" } else { ending };
            let path = folder.join(format!("fetched-{number}.{ending}"));
            store.fetch(key, &path, &input.file)?;
            Ok(path)
        }
    }
}

/// Maximum characters of a value in the file.
const MAX_VALUE_CHARS: usize = 200;

/// File of bad rows, shared by several threads.
struct BadRows {
    path: PathBuf,
    limit: u64,
    state: Mutex<BadRowsState>,
}

struct BadRowsState {
    file: File,
    count: u64,
    bytes: u64,
}

impl BadRows {
    /// Opens the file at this length and count, and truncates the rest. More than `limit` rows end the import.
    fn open(path: &Path, count: u64, bytes: u64, limit: u64) -> Result<Self, ModelsError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(ModelsError::io("open", path))?;
        file.set_len(bytes).map_err(ModelsError::io("cut", path))?;
        Ok(Self {
            path: path.to_owned(),
            limit,
            state: Mutex::new(BadRowsState { file, count, bytes }),
        })
    }

    /// Adds a bad row; `row` counts from 0.
    fn push(&self, file: &str, row: u64, reason: &str, values: &serde_json::Value) -> Result<(), ModelsError> {
        let line = serde_json::json!({"file": file, "row": row + 1, "why": reason, "values": values});
        let line = format!("{line}\n");
        let mut state = self.state.lock();
        state.count += 1;
        if state.count > self.limit {
            let (row, limit, path) = (row + 1, self.limit, self.path.display());
            let what = format!(
                "row {row}: {reason}; that is one bad row more than {limit} (--max-bad-rows); the others are in {path}"
            );
            return Err(ModelsError::bad(&file, &what));
        }
        state.bytes += line.len() as u64;
        let written = state.file.write_all(line.as_bytes());
        written.map_err(ModelsError::io("write", &self.path))
    }

    /// Returns the rows in the file, and its bytes.
    fn totals(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.count, state.bytes)
    }
}

/// Returns a row's values as text, by column.
fn values_of(batch: &RecordBatch, row: usize) -> serde_json::Value {
    let schema = batch.schema();
    let values = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        let text = arrow_cast::display::array_value_to_string(column, row).unwrap_or_default();
        let value = match column.is_null(row) {
            true => serde_json::Value::Null,
            false => text.chars().take(MAX_VALUE_CHARS).collect::<String>().into(),
        };
        (field.name().clone(), value)
    });
    serde_json::Value::Object(values.collect())
}
