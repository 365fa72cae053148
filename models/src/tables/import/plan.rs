//! Plan and progress of an import: `.NAME.import/plan.json`, and `journal.jsonl` in each part's folder. In: a request.
//! Out: the same plan for every process, and the place to resume.

use super::layout::Layout;
use super::request::{ColumnRequest, CsvOptions, NullRule, Part};
use crate::error::ModelsError;
use crate::repository::{entries, read_if_exists};
use crate::staged;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Plan of an import. Every participating process must compute the same plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) columns: ColumnRequest,
    pub(super) csv: CsvOptions,
    pub(super) inputs: Vec<InputFile>,
    pub(super) layout: Layout,
    pub(super) bucket_bits: u32,
    pub(super) parts: u32,
}

/// File of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InputFile {
    /// Name in messages: a path, or a URL.
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Modification time, or the store's tag.
    pub(super) version: String,
    /// Digest of its columns, if the table or the file's folder defines them.
    pub(super) columns: Option<String>,
}

/// Folder of an import.
pub(super) fn folder(out: &Path, name: &str) -> PathBuf {
    out.join(format!(".{name}.import"))
}

/// Folder of a part.
pub(super) fn part_folder(folder: &Path, part: Part) -> PathBuf {
    folder.join(format!("part-{:04}-of-{:04}", part.number, part.count))
}

/// Removes an import, if there is one.
///
/// # Errors
/// Another process that reads one of its parts.
pub(super) fn remove(folder: &Path) -> Result<(), ModelsError> {
    if !folder.exists() {
        return Ok(());
    }
    for part in entries(folder)? {
        let journal = OpenOptions::new().append(true).open(part.join("journal.jsonl"));
        if journal.is_ok_and(|journal| matches!(journal.try_lock(), Err(TryLockError::WouldBlock))) {
            return Err(ModelsError::bad(&part.display(), &READ_BY_ANOTHER));
        }
    }
    fs::remove_dir_all(folder).map_err(ModelsError::io("remove", folder))
}

/// Refusal of a part whose journal is locked.
const READ_BY_ANOTHER: &str = "another process reads this part; wait for it, or stop it";

impl Plan {
    /// Adopts the existing plan, or writes this one by way of the part's folder.
    ///
    /// # Errors
    /// A plan of another import.
    pub(super) fn adopt_or_write(self, folder: &Path, part_folder: &Path) -> Result<Self, ModelsError> {
        fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
        let path = folder.join("plan.json");
        let text = |plan: &Self| serde_json::to_vec_pretty(plan).map_err(|e| ModelsError::bad(&path.display(), &e));
        let Some(found) = read_if_exists(&path)? else {
            // Another process may do the same, on another host even with the same id: then one of both writes the plan, and
            // the other reads it.
            let temporary = part_folder.join(format!("plan.{}", std::process::id()));
            staged::write_atomically(&temporary, &text(&self)?)?;
            let linked = fs::hard_link(&temporary, &path);
            let _ = fs::remove_file(&temporary);
            return match linked {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => self.adopt_or_write(folder, part_folder),
                Err(e) => Err(ModelsError::io("write", &path)(e)),
                Ok(()) => Ok(self),
            };
        };
        let found: Self = serde_json::from_slice(&found)
            .map_err(|e| ModelsError::bad(&path.display(), &format!("no plan of an import: {e}; use --restart")))?;
        // Rows read under a rule that refuses are the same under every other rule.
        if let Some(merged) = found.resumed_with(&self) {
            if merged != found {
                staged::write_atomically(&path, &text(&merged)?)?;
            }
            return Ok(merged);
        }
        let what = match () {
            () if found.inputs != self.inputs => "its inputs are other files, or were written since",
            () if found.parts != self.parts => "it is cut into another number of parts",
            () if found.columns != self.columns || found.csv != self.csv => "it has other columns or rules",
            () => "its columns have other types",
        };
        let what =
            format!("an unfinished import only continues with the same settings: {what}; start over with --restart");
        Err(ModelsError::bad(&path.display(), &what))
    }

    /// Returns this plan with the rules of another, if the other would have read the same rows.
    fn resumed_with(&self, other: &Self) -> Option<Self> {
        let mut merged = self.clone();
        if self.columns.nulls == NullRule::Refuse {
            merged.columns.nulls = other.columns.nulls;
        }
        // Only the writing of the table handles duplicates.
        merged.columns.duplicates = other.columns.duplicates;
        let wanted = Self {
            // The first process decides the number of buckets.
            bucket_bits: self.bucket_bits,
            ..other.clone()
        };
        (merged == wanted).then_some(merged)
    }
}

/// Progress of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartProgress {
    /// Finished units of work.
    pub(super) units: usize,
    /// Rows written.
    pub(super) rows: u64,
    /// Number of bad rows.
    pub(super) bad: u64,
    /// Bytes of the file of bad rows.
    pub(super) bad_bytes: u64,
    /// Bytes of the longest key.
    pub(super) longest_key: usize,
    /// Bytes of each bucket.
    pub(super) lengths: Vec<u64>,
    /// True if the part is complete.
    pub(super) done: bool,
}

/// Journal of a part.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens a part's journal and returns its progress.
    ///
    /// # Errors
    /// Another process that works on this part; an invalid line.
    pub(super) fn open(folder: &Path, buckets: usize) -> Result<(Self, PartProgress), ModelsError> {
        fs::create_dir_all(folder).map_err(ModelsError::io("make the folder", folder))?;
        let path = folder.join("journal.jsonl");
        let file = OpenOptions::new().append(true).create(true).open(&path);
        let file = file.map_err(ModelsError::io("open", &path))?;
        // File systems without locks are written without one.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(ModelsError::bad(&folder.display(), &READ_BY_ANOTHER));
        }
        let (mut progress, end) = read_progress(folder)?.unwrap_or_default();
        // An incomplete line of a killed process would spoil the next one.
        file.set_len(end).map_err(ModelsError::io("cut", &path))?;
        if progress.lengths.is_empty() {
            progress.lengths = vec![0; buckets];
        }
        if progress.lengths.len() != buckets {
            let what = "it is of another number of buckets: use --restart";
            return Err(ModelsError::bad(&path.display(), &what));
        }
        Ok((Self { file, path }, progress))
    }

    /// Records the progress of the part.
    pub(super) fn append(&mut self, progress: &PartProgress) -> Result<(), ModelsError> {
        let mut line = serde_json::to_vec(progress).map_err(|e| ModelsError::bad(&self.path.display(), &e))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(ModelsError::io("write", &self.path))
    }
}

/// Returns the progress of a part, by the last complete line of its journal, and the bytes up to the end of that line;
/// `None` if it was not begun.
pub(super) fn read_progress(folder: &Path) -> Result<Option<(PartProgress, u64)>, ModelsError> {
    let path = folder.join("journal.jsonl");
    let Some(text) = read_if_exists(&path)? else {
        return Ok(None);
    };
    // Text after the last line end was left by a killed process.
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let last = text[..end].split_inclusive(|&byte| byte == b'\n').next_back();
    let last = last.map_or(Ok(PartProgress::default()), serde_json::from_slice);
    last.map(|progress| Some((progress, end as u64)))
        .map_err(|e| ModelsError::bad(&path.display(), &format!("no journal of an import: {e}; use --restart")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_was_cut_off_says_what_was_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, mut at) = Journal::open(folder.path(), 4).unwrap();
        assert_eq!((at.units, at.lengths.len()), (0, 4));
        assert!(Journal::open(folder.path(), 4).is_err(), "two processes at one part");
        for units in 1..3 {
            at.units = units;
            journal.append(&at).unwrap();
        }
        drop(journal);
        let path = folder.path().join("journal.jsonl");
        let mut text = fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"units\":3,\"ro");
        fs::write(&path, &text).unwrap();
        assert_eq!(read_progress(folder.path()).unwrap().unwrap().0.units, 2);
        text.extend_from_slice(b"\n");
        fs::write(&path, &text).unwrap();
        assert!(read_progress(folder.path()).is_err());
        assert!(Journal::open(folder.path(), 8).is_err());
    }

    #[test]
    fn an_import_that_is_read_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&part_folder(folder.path(), Part::default()), 4).unwrap();
        assert!(
            remove(folder.path())
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        drop(journal);
        remove(folder.path()).unwrap();
        assert!(!folder.path().exists());
    }
}
