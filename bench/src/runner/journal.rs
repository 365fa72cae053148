//! Finished repeats of a run, in a folder with the plan that they are of. In: entries. Out: a file that outlives an interrupt.

use super::record::Entry;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use tierlab_instrument::journal::{self as lines, FILE};

const PLAN: &str = "plan.toml";

/// The journal of a run.
pub(super) struct Journal {
    lines: lines::Journal,
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Begins a journal in a folder, creating the folder if absent.
    pub(super) fn begin(folder: &Path, plan: &str) -> Result<Self> {
        let why = || format!("cannot write results to {}: choose another --out", folder.display());
        std::fs::create_dir_all(folder).with_context(why)?;
        ensure!(
            !folder.join(FILE).exists(),
            "{} holds a run: resume it with --resume, or choose another --out",
            folder.display()
        );
        std::fs::write(folder.join(PLAN), plan).with_context(why)?;
        Self::open(folder)
    }

    /// Resumes a journal of the same plan.
    pub(super) fn resume(folder: &Path, plan: &str) -> Result<Self> {
        let why = || format!("{} holds no run to resume", folder.display());
        let kept = std::fs::read_to_string(folder.join(PLAN)).with_context(why)?;
        std::fs::metadata(folder.join(FILE)).with_context(why)?;
        ensure!(
            kept == plan,
            "{}: the run has another plan; give that plan, or leave out --resume",
            folder.join(PLAN).display()
        );
        Self::open(folder)
    }

    fn open(folder: &Path) -> Result<Self> {
        let (lines, entries) = lines::Journal::open(folder)?;
        Ok(Self { lines, entries })
    }

    pub(super) fn keep(&mut self, entry: Entry) -> Result<()> {
        self.lines.append(&entry)?;
        self.entries.push(entry);
        Ok(())
    }
}
