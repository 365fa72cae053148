//! The object to read: one of the tier, or one written for the measurement and removed afterwards.

use super::options::Options;
use crate::content::{body, name_of_run};
use anyhow::{Context, Result, ensure};
use std::ops::Range;
use std::sync::Arc;
use tierlab_storage::conformance::content;
use tierlab_storage::{Object, ObjectPath, Tier};

/// Content seed of objects written here.
const CONTENT_SEED: u64 = 7;
/// Bytes at the start of a range that are checked: enough to see a misplaced read, cheap enough for each of them.
const CHECKED: usize = 8;

/// Object under measurement.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) object: Object,
    /// True if it was written here. Then its content is known, and it is removed afterwards.
    pub(crate) own: bool,
}

impl Subject {
    /// Checks a range of which `len` bytes came: its length, and of an own object the first bytes.
    pub(crate) fn check(&self, range: &Range<u64>, part: &[u8], len: usize) -> Result<()> {
        let checked = part.len().min(CHECKED);
        let is_content =
            || !self.own || part[..checked] == content(CONTENT_SEED, range.start..range.start + checked as u64);
        ensure!(
            len as u64 == range.end - range.start && is_content(),
            "{}: the bytes {range:?} are wrong",
            self.object.path
        );
        Ok(())
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
    let path = ObjectPath::new(&format!("storage-bench/{}.bin", name_of_run()))?;
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let object = tier
        .put(&path, body(scratch.path(), 0, CONTENT_SEED, options.size)?)
        .await
        .context("cannot write an object to measure")?;
    Ok(Subject { object, own: true })
}
