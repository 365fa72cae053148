//! Self-describing tables: Delta by its log, Iceberg by its metadata, folders by their `column=value` names. In: the
//! names below a folder and its small files. Out: the files of the table, and its columns in each of them. Reads no
//! rows.

pub(super) mod columns;
pub(super) mod delta;
pub(super) mod hive;
pub(super) mod iceberg;
mod manifests;
mod types;

use columns::FileColumns;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Folder on disk or in a store, as a list of its files.
pub(super) struct Listing {
    /// Name of the folder in messages.
    pub(super) name: String,
    /// Bytes of each file, by its name below the folder with slashes.
    pub(super) files: BTreeMap<String, u64>,
}

/// Files chosen from a folder.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chosen {
    /// Columns of each file that does not define its own, by its name below the folder.
    pub(super) files: BTreeMap<String, Option<FileColumns>>,
    /// Omitted files with reasons, in words.
    pub(super) left_out: Vec<String>,
}

impl Chosen {
    /// Chooses the files of one version of a table, whose log lies below `log`.
    fn of_version(folder: &Listing, log: &str, files: BTreeMap<String, FileColumns>, version: &str) -> Self {
        let is_left = |name: &&String| !name.starts_with(log) && !files.contains_key(*name);
        let left = folder.files.keys().filter(is_left).count();
        let what = format!(
            "{}: a table of {version}: {left} files beside its log are not in this version",
            folder.name
        );
        Self {
            files: files.into_iter().map(|(name, columns)| (name, Some(columns))).collect(),
            left_out: vec![what],
        }
    }
}

/// Decodes a percent-encoded path.
fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}
