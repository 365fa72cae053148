//! The system's files, below a folder that stands for `/`: the real one, or one that a test has made up. In: paths without
//! their first slash. Out: their text.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of one file at most; those of the kernel are far shorter.
const MOST: u64 = 1 << 20;
/// Entries of one folder at most.
const MOST_ENTRIES: usize = 4096;

/// Where the system's files lie.
#[derive(Debug, Clone)]
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The text of a file without blanks at its ends; none where it is not there or cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut text = String::new();
        let file = std::fs::File::open(self.path(path)).ok()?;
        file.take(MOST).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// A file that holds a number.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, in order; empty where it is not there.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MOST_ENTRIES).collect();
        names.sort();
        names
    }

    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The last part of where a link leads.
    pub(super) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let to = std::fs::read_link(self.path(path)).ok()?;
        Some(to.file_name()?.to_str()?.to_owned())
    }
}
