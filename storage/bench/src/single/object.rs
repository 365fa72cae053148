//! Object to read: an existing one, or one written for the measurement and removed afterwards.

use super::options::Options;
use crate::content::name_of_run;
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_storage::conformance::content;
use tierlab_storage::{Body, Object, ObjectPath, Tier};

/// Content seed of objects written here.
const CONTENT_SEED: u64 = 7;
/// Bytes of content generated at a time.
const PIECE: u64 = 1 << 20;

/// Object under measurement.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) object: Object,
    /// True if it was written here: then its content is known, and it is removed afterwards.
    pub(crate) own: bool,
}

impl Subject {
    /// Checks the first bytes of a read at an offset: enough to detect a misplaced read, cheap enough for every read.
    /// The content of existing objects is unknown, and not checked.
    pub(crate) fn looks_right(&self, offset: u64, bytes: &[u8]) -> bool {
        let checked = bytes.len().min(8);
        !self.own || bytes[..checked] == content(CONTENT_SEED, offset..offset + checked as u64)
    }

    pub(crate) async fn remove(&self, tier: &Arc<dyn Tier>) -> Result<()> {
        if self.own {
            tier.delete(&self.object.path)
                .await
                .context("cannot remove the object that was measured")?;
        }
        Ok(())
    }
}

pub(crate) async fn prepare(tier: &Arc<dyn Tier>, options: &Options) -> Result<Subject> {
    if let Some(path) = &options.object {
        let object = tier
            .stat(&ObjectPath::new(path)?)
            .await
            .context("cannot measure this object")?;
        ensure!(object.size > 0, "{path} is empty: there is nothing to measure");
        return Ok(Subject { object, own: false });
    }
    let name = name_of_run();
    let path = ObjectPath::new(&format!("storage-bench/{name}.bin"))?;
    let local = LocalFile(std::env::temp_dir().join(format!("tierlab-storage-bench-{name}.bin")));
    write_content(&local.0, options.size).with_context(|| format!("cannot write {}", local.0.display()))?;
    let object = tier
        .put(&path, Body::File(local.0.clone()))
        .await
        .context("cannot write an object to measure")?;
    Ok(Subject { object, own: true })
}

fn write_content(file: &Path, size: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create_new(file)?;
    let mut at = 0;
    while at < size {
        let end = (at + PIECE).min(size);
        file.write_all(&content(CONTENT_SEED, at..end))?;
        at = end;
    }
    Ok(())
}

/// Temporary file, removed on drop.
struct LocalFile(PathBuf);

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("warning: {} was left behind: {error}", self.0.display());
        }
    }
}
