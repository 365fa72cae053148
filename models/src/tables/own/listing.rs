//! Names in a folder, and the files chosen from it. Knows no disk and no store.

use super::lakes::columns::FileColumns;
use std::collections::HashMap;

/// Folder on disk or in a store, as a list of its files.
pub(super) struct Listing {
    /// Name of the folder in messages.
    pub(super) name: String,
    /// Names below it with slashes, sorted.
    pub(super) names: Vec<String>,
    /// Bytes of each file.
    pub(super) bytes: Vec<u64>,
}

/// Files chosen from a folder.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chosen {
    pub(super) names: Vec<String>,
    pub(super) left_out: Vec<String>,
    /// Columns of the files that do not define their own, by name.
    pub(super) columns: HashMap<String, FileColumns>,
}

impl Chosen {
    /// Chooses the files of one version of a table, whose log lies below `log`.
    pub(super) fn of_version(
        folder: &Listing,
        log: &str,
        columns: HashMap<String, FileColumns>,
        version: &str,
    ) -> Self {
        let is_left = |name: &&String| !name.starts_with(log) && !columns.contains_key(*name);
        let left = folder.names.iter().filter(is_left).count();
        let mut names: Vec<String> = columns.keys().cloned().collect();
        names.sort();
        Self {
            names,
            columns,
            left_out: vec![format!(
                "{}: a table of {version}: {left} files beside its log are not in this version",
                folder.name
            )],
        }
    }
}

/// Decodes a percent-encoded path.
pub(super) fn decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
