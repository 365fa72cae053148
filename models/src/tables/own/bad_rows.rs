//! Rows that cannot be used: a line of JSON for each, with its file, row and reason. In: bad rows. Out: a readable
//! file.

use crate::error::ModelsError;
use arrow_array::{Array as _, RecordBatch};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Maximum characters of a value in the file.
const KEPT_CHARS: usize = 200;

/// File of bad rows, shared by several threads.
pub(super) struct BadRows {
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
    pub(super) fn open(path: &Path, count: u64, bytes: u64, limit: u64) -> Result<Self, ModelsError> {
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
    pub(super) fn keep(&self, file: &str, row: u64, why: &str, values: &serde_json::Value) -> Result<(), ModelsError> {
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
    pub(super) fn kept(&self) -> (u64, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.count, state.bytes)
    }
}

/// Returns a row's values as text, by column.
pub(super) fn values_of(batch: &RecordBatch, row: usize) -> serde_json::Value {
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
