//! What a run has finished, a line for each repeat. In: entries. Out: a file that outlives an interrupt.

use crate::record::Entry;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const NAME: &str = "journal.jsonl";
const PLAN: &str = "plan.toml";

/// The journal of a run.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    pub(super) entries: Vec<Entry>,
}

impl Journal {
    /// Begins one in a folder that is made for it.
    pub(super) fn begin(folder: &Path, plan: &str) -> Result<Self> {
        let why = || format!("cannot write results to {}: choose another --out", folder.display());
        std::fs::create_dir_all(folder).with_context(why)?;
        let path = folder.join(NAME);
        ensure!(
            !path.exists(),
            "{} holds a run: go on with it by --resume, or choose another --out",
            folder.display()
        );
        std::fs::write(folder.join(PLAN), plan).with_context(why)?;
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .with_context(why)?;
        Ok(Self {
            path,
            file,
            entries: Vec::new(),
        })
    }

    /// Goes on with one. A last line without its end was cut by a kill and is taken away; any other damage is named.
    pub(super) fn resume(folder: &Path, plan: &str) -> Result<Self> {
        let path = folder.join(NAME);
        let why = || format!("{} holds no run that can be gone on with", folder.display());
        let kept = std::fs::read_to_string(folder.join(PLAN)).with_context(why)?;
        ensure!(
            kept == plan,
            "{}: the plan is another than that of the run; start it anew",
            folder.join(PLAN).display()
        );
        let text = std::fs::read(&path).with_context(why)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = text[..whole].split(|byte| *byte == b'\n').enumerate();
        let entries = lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(number, line)| {
                serde_json::from_slice(line).map_err(|error| {
                    anyhow!(
                        "{}: entry {}: {error}; restore the file, or measure again",
                        path.display(),
                        number + 1
                    )
                })
            })
            .collect::<Result<_>>()?;
        let file = OpenOptions::new().append(true).open(&path).with_context(why)?;
        file.set_len(whole as u64).with_context(why)?;
        Ok(Self { path, file, entries })
    }

    /// Keeps an entry.
    pub(super) fn keep(&mut self, entry: Entry) -> Result<()> {
        let mut line = serde_json::to_string(&entry)?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.entries.push(entry);
        Ok(())
    }
}
