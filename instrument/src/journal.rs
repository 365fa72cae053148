//! Journal of JSON lines: the finished entries of an unfinished run.
//!
//! In: finished entries. Out: the same entries after a kill. Each line is written whole and synced. A last line without its line end
//! was cut by a kill and is dropped, so that a kill loses only the entry being written. A damaged line before the last is an
//! error, and the file is not changed. Independent of an entry's content.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// File name of a journal in the folder of its run.
pub const FILE: &str = "journal.jsonl";

/// The journal cannot be read or written, or a line before the last is damaged.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct JournalError {
    path: PathBuf,
    what: String,
}

impl JournalError {
    fn new(path: &Path, what: &impl Display) -> Self {
        Self {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a folder for this process alone, creating it if absent, and returns its entries. Cuts off a last line
    /// without its end.
    ///
    /// # Errors
    /// The file cannot be read or written, a line before the last is damaged, or another process has it open.
    pub fn open<T: DeserializeOwned>(folder: &Path) -> Result<(Self, Vec<T>), JournalError> {
        let path = folder.join(FILE);
        let at = |error: io::Error| JournalError::new(&path, &error);
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(at)?;
        // File systems without locks are written without one.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            let problem = "another run is being written there; wait for its end, or choose another folder";
            return Err(JournalError::new(&path, &problem));
        }
        let (entries, complete_len) = read_complete(&path)?;
        file.set_len(complete_len).map_err(at)?;
        Ok((Self { path, file }, entries))
    }

    /// Appends an entry and syncs the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, entry: &impl Serialize) -> Result<(), JournalError> {
        let written = serde_json::to_vec(entry).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(|error| JournalError::new(&self.path, &error))
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(self) -> Result<(), JournalError> {
        std::fs::remove_file(&self.path).map_err(|error| JournalError::new(&self.path, &error))
    }
}

/// Returns the entries in the journal of a folder; empty without a journal.
///
/// # Errors
/// Same as [`Journal::open`].
pub fn read<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>, JournalError> {
    read_complete(&folder.join(FILE)).map(|(entries, _)| entries)
}

/// Entries, and the number of bytes of their lines.
fn read_complete<T: DeserializeOwned>(path: &Path) -> Result<(Vec<T>, u64), JournalError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(JournalError::new(path, &error)),
    };
    let complete_len = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = text[..complete_len].split(|byte| *byte == b'\n').enumerate();
    let entries = lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        let what = |error| format!("entry {}: {error}; restore the file, or measure again", number + 1);
        serde_json::from_slice(line).map_err(|error| JournalError::new(path, &what(error)))
    });
    Ok((entries.collect::<Result<_, _>>()?, complete_len as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder_with(entries: &[Vec<u32>]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, before) = Journal::open::<Vec<u32>>(folder.path()).unwrap();
        assert!(before.is_empty());
        entries.iter().for_each(|entry| journal.append(entry).unwrap());
        folder
    }

    #[test]
    fn damage_before_the_last_line_is_named_and_left_as_it_is() {
        let folder = folder_with(&[vec![1], vec![2], vec![3]]);
        let path = folder.path().join(FILE);
        std::fs::write(&path, "[1]\n[x]\n[3]\n[4").unwrap();
        let error = Journal::open::<Vec<u32>>(folder.path()).unwrap_err().to_string();
        assert!(error.contains("journal.jsonl: entry 2: "), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[1]\n[x]\n[3]\n[4");
    }

    #[test]
    fn two_runs_do_not_write_one_journal() {
        let folder = folder_with(&[vec![1]]);
        let open = || Journal::open::<Vec<u32>>(folder.path());
        let first = open().unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("journal.jsonl: another run"), "{error}");
        drop(first);
        assert_eq!(open().unwrap().1, [[1]]);
    }

    #[test]
    fn a_removed_journal_has_no_entries() {
        let folder = folder_with(&[vec![1]]);
        assert_eq!(read::<Vec<u32>>(folder.path()).unwrap(), [[1]]);
        let (journal, _) = Journal::open::<Vec<u32>>(folder.path()).unwrap();
        journal.remove().unwrap();
        assert!(read::<Vec<u32>>(folder.path()).unwrap().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_cut_loses_the_line_that_it_cuts(
            entries in proptest::collection::vec(proptest::collection::vec(0_u32..1000, 0..4), 1..6),
            cut in 0.0_f64..1.0,
        ) {
            let folder = folder_with(&entries);
            let path = folder.path().join(FILE);
            let text = std::fs::read(&path).unwrap();
            let cut = (cut * text.len() as f64) as usize;
            std::fs::write(&path, &text[..cut]).unwrap();
            let complete_len = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            let (mut journal, recovered) = Journal::open::<Vec<u32>>(folder.path()).unwrap();
            prop_assert_eq!(&recovered[..], &entries[..complete_len]);
            journal.append(&entries[0]).unwrap();
            let again: Vec<Vec<u32>> = read(folder.path()).unwrap();
            prop_assert_eq!(again.len(), complete_len + 1);
            prop_assert_eq!(&again[complete_len], &entries[0]);
        }
    }
}
