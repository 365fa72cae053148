//! First half of an import: distributes inputs to buckets on disk, on every core, in bounded memory, and can be
//! resumed. In: a plan and this process's part. Out: a part's folder with its buckets, its bad rows, and a journal.
//! Knows nothing of the table's file.

use super::batch::Batch;
use super::convert::{Rules, convert};
use super::inputs::{Input, Origin};
use super::layout::payload_bytes;
use super::plan::{Journal, Plan, Progressed};
use super::read::{self, Opened, Stretch, unless_it_panics};
use super::request::{CsvOptions, Part, ROW};
use super::spill::{Spill, SpillBuffers};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables::workers;
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::Schema;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tierlab_formats::table::TableSchema;

/// Units of work per line of the journal.
const UNITS_PER_NOTE: usize = 16;
/// Approximate bytes of rows converted at once, whatever the size of a file's batches.
const SLICE_BYTES: usize = 8 << 20;

/// Section of an input.
#[derive(Debug, Clone, Copy)]
struct Unit {
    input: usize,
    /// Section; `None` is all of a file that is fetched first.
    stretch: Option<Stretch>,
    bytes: u64,
}

/// Inputs of gathering.
pub(super) struct Gathering<'a> {
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
    File(String),
    Other(ModelsError),
}

impl From<ModelsError> for Halt {
    fn from(error: ModelsError) -> Self {
        Self::Other(error)
    }
}

impl From<String> for Halt {
    fn from(what: String) -> Self {
        Self::File(what)
    }
}

/// Opens a file of rows; readers of foreign formats may panic on damage.
pub(super) fn open(
    path: &Path,
    input: &Input,
    csv: &CsvOptions,
    known: Option<&Schema>,
) -> Result<Opened, ModelsError> {
    let opened = unless_it_panics(|| read::open(path, csv, known, input.columns.as_ref()));
    opened.map_err(|what| ModelsError::bad(&input.about.name, &what))
}

impl Gathering<'_> {
    /// Returns the units of all inputs, in order. Files on disk are split if possible; others are read whole.
    fn units(&self, stop: &Stop) -> Result<Vec<Unit>, ModelsError> {
        let mut units = Vec::new();
        for (at, input) in self.inputs.iter().enumerate() {
            stop.check()?;
            let stretches = match &input.from {
                Origin::Store { .. } => vec![None],
                Origin::Disk(path) => {
                    let opened = open(path, input, &self.plan.csv, Some(self.schema))?;
                    opened.stretches(input.about.bytes).into_iter().map(Some).collect()
                }
            };
            units.extend(stretches.into_iter().map(|stretch| Unit {
                input: at,
                stretch,
                bytes: stretch.map_or(input.about.bytes, |stretch| stretch.bytes),
            }));
        }
        Ok(units)
    }

    /// Reads the remaining units of a part.
    ///
    /// # Errors
    /// An input that is damaged or has changed; too many bad rows; a full disk; a stop, after which the same command
    /// continues.
    pub(super) fn run(&self, part: Part, stop: &Stop) -> Result<Progressed, ModelsError> {
        let units = self.units(stop)?;
        let (mut journal, mut progressed) = Journal::open(self.folder, 1 << self.plan.bucket_bits)?;
        if progressed.done {
            return Ok(progressed);
        }
        let spill = Spill::open(self.folder, &progressed.lengths)?;
        let bad = self.folder.join("bad.jsonl");
        let bad = BadRows::open(&bad, progressed.bad, progressed.bad_bytes, self.max_bad_rows)?;
        let (first, step) = (part.number as usize - 1, part.of as usize);
        let units: Vec<Unit> = units.into_iter().skip(first).step_by(step).collect();
        let total = units.iter().map(|unit| unit.bytes).sum();
        let label = match (part.number, part.of) {
            (_, 1) => "reading".to_owned(),
            (number, of) => format!("reading part {number} of {of}"),
        };
        let mut progress = Progress::bytes(&label, total);
        progress.advance(units.iter().take(progressed.units).map(|unit| unit.bytes).sum());
        if progressed.units > 0 {
            progress.say(&format!("going on after {} rows", progressed.rows));
        }
        while progressed.units < units.len() {
            let next = &units[progressed.units..units.len().min(progressed.units + UNITS_PER_NOTE)];
            let (rows, longest) = self.read_units(next, &spill, &bad, &mut progress, stop)?;
            let (bad_count, bad_bytes) = bad.kept();
            progressed = Progressed {
                units: progressed.units + next.len(),
                rows: progressed.rows + rows,
                bad: bad_count,
                bad_bytes,
                longest_key: progressed.longest_key.max(longest),
                lengths: spill.lengths(),
                done: false,
            };
            journal.note(&progressed)?;
        }
        progressed.done = true;
        journal.note(&progressed)?;
        Ok(progressed)
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
        let is_remote = |unit: &Unit| matches!(self.inputs[unit.input].from, Origin::Store { .. });
        let most = match units.iter().any(is_remote) {
            true => workers::MAX_WORKERS,
            false => workers::of_cores(),
        };
        let workers = most.min(units.len());
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
        let name = &input.about.name;
        let path = fetch(input, self.folder, unit.input)?;
        let opened = open(&path, input, &self.plan.csv, Some(self.schema))?;
        if opened.is_void() {
            return Ok(());
        }
        let fits = self.plan.layout.fits(&opened.schema(), &self.plan.columns);
        fits.map_err(|what| ModelsError::bad(name, &what))?;
        let columns: Vec<&str> = self.plan.layout.inputs().collect();
        let stretches = match unit.stretch {
            Some(stretch) => vec![stretch],
            None => opened.stretches(input.about.bytes),
        };
        for stretch in stretches {
            let mut each = |batch: Batch| -> Result<(), Halt> {
                stop.check()?;
                let bytes = batch.bytes;
                self.take(unit.input, &batch, buffers, bad)?;
                progress.lock().unwrap_or_else(PoisonError::into_inner).advance(bytes);
                Ok(())
            };
            let stretch = (stretch, payload_bytes(self.table));
            match unless_it_panics(|| opened.read(&path, stretch, &columns, &mut each)) {
                Ok(()) => {}
                Err(Halt::Other(e)) => return Err(e),
                Err(Halt::File(what)) => return Err(ModelsError::bad(name, &what)),
            }
        }
        input.is_unchanged()?;
        if let Origin::Store { .. } = input.from {
            // Best effort: a remaining file is removed with the folder.
            let _ = std::fs::remove_file(&path);
        }
        Ok(())
    }

    fn take(&self, input: usize, batch: &Batch, buffers: &mut SpillBuffers<'_>, bad: &BadRows) -> Result<(), Halt> {
        let name = &self.inputs[input].about.name;
        for (row, why, text) in &batch.bad {
            bad.keep(name, *row, why, &text.as_str().into())?;
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
            let rows =
                convert(rules, &slice).map_err(|(row, why)| Halt::File(format!("row {}: {why}", number(row) + 1)))?;
            for (&row, why) in &rows.bad {
                let values = values_of(&batch.rows, start + row);
                bad.keep(name, number(row), why, &values)?;
            }
            buffers.add(&rows, input, &number)?;
        }
        Ok(())
    }
}

/// Downloads an input, unless it is on disk.
pub(super) fn fetch(input: &Input, folder: &Path, number: usize) -> Result<PathBuf, ModelsError> {
    match &input.from {
        Origin::Disk(path) => Ok(path.clone()),
        Origin::Store { store, key } => {
            std::fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
            let ending = input.about.name.rsplit_once('.').map_or("", |(_, ending)| ending);
            let ending = if ending.contains('/') { "" } else { ending };
            let path = folder.join(format!("fetched-{number}.{ending}"));
            store.fetch(key, &path, &input.about)?;
            Ok(path)
        }
    }
}

/// Maximum characters of a value in the file.
const KEPT_CHARS: usize = 200;

/// File of bad rows, shared by several threads.
struct BadRows {
    path: PathBuf,
    limit: u64,
    state: Mutex<State>,
}

struct State {
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
            state: Mutex::new(State { file, count, bytes }),
        })
    }

    /// Adds a bad row; `row` counts from 0.
    fn keep(&self, file: &str, row: u64, why: &str, values: &serde_json::Value) -> Result<(), ModelsError> {
        let line = serde_json::json!({"file": file, "row": row + 1, "why": why, "values": values});
        let line = format!("{line}\n");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        if state.count > self.limit {
            let (row, limit, path) = (row + 1, self.limit, self.path.display());
            let what = format!(
                "row {row}: {why}; that is one bad row more than {limit} (--max-bad-rows); the others are in {path}"
            );
            return Err(ModelsError::bad(&file, &what));
        }
        state.bytes += line.len() as u64;
        let written = state.file.write_all(line.as_bytes());
        written.map_err(ModelsError::io("write", &self.path))
    }

    /// Returns the rows in the file, and its bytes.
    fn kept(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
            false => text.chars().take(KEPT_CHARS).collect::<String>().into(),
        };
        (field.name().clone(), value)
    });
    serde_json::Value::Object(values.collect())
}
