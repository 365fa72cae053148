//! Files of a plan for an agent on another host. In: a plan. Out: absolute paths without `..`.
//!
//! These are the files that the plan makes requests of: `[inputs]`, `[keys]`, `[arrival]`, and the bodies of `[target]`. An agent has its
//! own certificates and tokens.

use super::check::below;
use super::{Plan, TargetPlan};
use std::io;
use std::path::Path;
use tierlab_load::arrivals::Process;
use tierlab_load::keys::KeyDistribution;
use tierlab_load::workers::PlanText;

/// Maximum files of one folder.
const MOST_IN_FOLDER: usize = 10_000;

impl Plan {
    /// Plan for load processes of this host.
    #[must_use]
    pub fn text_here(&self) -> PlanText {
        PlanText {
            file: self.file.clone(),
            text: self.text.clone(),
            files: Vec::new(),
        }
    }

    /// Plan for agents on other hosts, with absolute paths and its files.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn text_elsewhere(&self) -> io::Result<PlanText> {
        let here = std::env::current_dir()?;
        let base = self.file.parent().unwrap_or_else(|| Path::new(""));
        let mut named = self.input_files.clone();
        if let KeyDistribution::File { file, .. } = &self.keys {
            named.push(base.join(file));
        }
        if let Process::Trace { trace, .. } = &self.arrivals.process {
            named.push(base.join(&trace.file));
        }
        named.extend(self.target.iter().flat_map(TargetPlan::files));
        let mut files = Vec::new();
        for path in named {
            let path = below(&here, &path);
            if !path.is_dir() {
                files.push(path);
                continue;
            }
            for entry in std::fs::read_dir(&path)?.take(MOST_IN_FOLDER) {
                let entry = entry?.path();
                if entry.is_file() {
                    files.push(entry);
                }
            }
        }
        files.sort();
        files.dedup();
        Ok(PlanText {
            file: below(&here, &self.file),
            text: self.text.clone(),
            files,
        })
    }
}
