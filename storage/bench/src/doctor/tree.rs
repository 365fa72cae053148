//! Files of the system, below a folder that stands for `/`: the real root, or one made by a test. In: paths without
//! their first slash. Out: their text.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum bytes of one file; those of the kernel are far shorter.
const MOST: u64 = 1 << 20;
/// Maximum entries of one folder.
const MOST_ENTRIES: usize = 4096;

/// Root of the system's files.
#[derive(Debug, Clone)]
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Returns the trimmed text of a file; `None` if it is missing or unreadable.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut text = String::new();
        let file = std::fs::File::open(self.path(path)).ok()?;
        file.take(MOST).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the number in a file.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in a folder, sorted; empty if it is missing.
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

    /// Returns the last component of a link's target.
    pub(super) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let to = std::fs::read_link(self.path(path)).ok()?;
        Some(to.file_name()?.to_str()?.to_owned())
    }
}
