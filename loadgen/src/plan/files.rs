//! Files that decide what a plan sends: `[inputs]`, `[keys]`, `[arrival]`, a demand's trace, and the bodies of its servers. In: a plan.
//! Out: their paths, and the plan with them for load processes. An agent has its own certificates and tokens.

use super::check::below;
use super::{Plan, TargetPlan, redacted};
use std::io;
use std::path::{Path, PathBuf};
use tierlab_load::endpoint::TargetSpec;
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
            has_secrets: redacted::has_secrets(&self.text),
            files: Vec::new(),
        }
    }

    /// Plan for agents on other hosts, with its files and absolute paths without `..`.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn text_elsewhere(&self) -> io::Result<PlanText> {
        let files = self.request_files()?;
        Ok(PlanText {
            file: absolute(&self.file),
            files: files.iter().map(|file| absolute(file)).collect(),
            ..self.text_here()
        })
    }

    /// Files that decide what is sent, and those in its folders.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn request_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.files {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            for entry in std::fs::read_dir(path)?.take(MOST_IN_FOLDER) {
                let entry = entry?.path();
                if entry.is_file() {
                    files.push(entry);
                }
            }
        }
        files.sort();
        files.dedup();
        Ok(files)
    }
}

impl TargetPlan {
    /// Target of a load process, with an absolute path of its bodies; `None` without an address.
    #[must_use]
    pub fn spec(&self) -> Option<TargetSpec> {
        let mut custom = self.custom.clone();
        if let Some(file) = custom.as_mut().and_then(|custom| custom.body.file_mut()) {
            *file = absolute(file);
        }
        Some(TargetSpec {
            others: Vec::new(),
            url: self.url.clone()?,
            grpc_url: self.grpc_url.clone(),
            model_version: self.model_version.clone(),
            access: self.access.clone(),
            custom,
        })
    }
}

fn absolute(path: &Path) -> PathBuf {
    below(&std::env::current_dir().unwrap_or_default(), path)
}
