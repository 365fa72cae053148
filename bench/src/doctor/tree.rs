//! System files below a root: `/`, or a folder of a test. In: paths without their first slash. Out: text.

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum size of a file; the kernel's are far smaller.
const MOST: u64 = 1 << 20;
/// Maximum entries of a folder.
const MOST_ENTRIES: usize = 4096;

/// Root of the files.
#[derive(Debug, Clone)]
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Text of a file, trimmed; `None` if it cannot be read.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut text = String::new();
        let file = std::fs::File::open(self.0.join(path)).ok()?;
        file.take(MOST).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    }

    /// Number in a file.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Sorted names in a folder; empty if it cannot be read.
    pub(super) fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.0.join(path)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MOST_ENTRIES).collect();
        names.sort();
        names
    }

    pub(super) fn has(&self, path: impl AsRef<Path>) -> bool {
        self.0.join(path).exists()
    }

    /// Last part of a link's target.
    pub(super) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let to = std::fs::read_link(self.0.join(path)).ok()?;
        Some(to.file_name()?.to_str()?.to_owned())
    }
}

/// Selected word of a kernel list, such as `mq-deadline` in `none [mq-deadline]`.
pub(super) fn bracketed(text: &str) -> Option<&str> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}
