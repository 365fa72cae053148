//! The suite that each tier and wrapper must pass. In: a [`Suite`] naming a tier that can be written, and places to
//! write to. Out: nothing, or every case that failed and why. Knows nothing of any tier.
//!
//! Contents depend on the position ([`content`](tierlab_storage::content::content)), so that a wrong, shifted or mixed byte is seen.
//!
//! | case | memory | nvme | nfs | s3 | redis | gds | emulated | staged | cache |
//! |---|---|---|---|---|---|---|---|---|---|
//! | stat, ranges, empty, past-end, many-at-once, concurrent, cancelled | x | x | x | x | x | x | x | x | x |
//! | changed, removed | x | x | x | x | x | x | x | 1 | 1 |
//! | racing, versions, cost | x | x | x | x | x | x | x | x | x |
//! | names, long-names, put-replaces, list, big | x | x | x | x | x | x | x | x | x |
//! | links (out of the root) | 2 | x | x | x | 2 | 3 | 4 | 4 | 4 |
//! | denied | 2 | x | x | x | 2 | 3 | 4 | 4 | 4 |
//! | damaged (checksum failure) | 5 | 5 | 5 | 5 | 5 | 5 | 5 | x | 5 |
//!
//! `x` is tested. Elsewhere the case does not apply, or in a weaker form:
//! 1. Copies of the version that was looked up stay readable after it is gone; bytes of another one never appear.
//! 2. There is no file system behind it.
//! 3. Its files are opened as those of nvme are; the suite runs where there is a GPU.
//! 4. A wrapper opens no path of its own; the tier inside refuses.
//! 5. It keeps no checksums of its own: what the store holds is what is read. The server proves every feature row and
//!    every model file by theirs, and has what lies around the tier drop the bytes that fail ([`Tier::forget`]).
//!
//! A server that refuses for its own reasons is tested beside each tier: S3 and Redis with wrong credentials,
//! nfs-ganesha with another user's files. A tier that cannot be written has tests of its own in place of this suite.

#![allow(dead_code, reason = "each crate of tests runs a part of it")]

mod cases;
mod changes;
mod reach;
mod running;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::{ObjectPath, Tier};

pub(crate) use cases::Case;
pub(crate) use reach::Reach;

/// Time after which a case counts as hung.
pub(crate) const CASE_LIMIT: Duration = Duration::from_secs(60);

/// A tier under test.
#[derive(Clone)]
pub(crate) struct Suite {
    /// The tier.
    pub(crate) tier: Arc<dyn Tier>,
    /// The folder on the tier that the cases write below; each case in a folder of its own. Must be unused.
    pub(crate) folder: ObjectPath,
    /// A local folder for the file that is streamed to the tier.
    pub(crate) scratch: PathBuf,
    /// If true, the tier checks at each read that the object is still the version looked up. A cache need not: its
    /// bytes of that version stay valid. Bytes of another version are never accepted.
    pub(crate) notices_changes: bool,
}

/// The cases that failed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Failures(pub(crate) Vec<(Case, String)>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} conformance cases failed:", self.0.len(), Case::ALL.len())?;
        for (case, error) in &self.0 {
            write!(f, "\n  {}: {error}", case.name())?;
        }
        Ok(())
    }
}

/// Same as `Display`, so that `unwrap` in a test names the failed cases.
impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failures {}

impl Suite {
    /// Runs every case that needs only the tier, in order.
    ///
    /// # Errors
    /// The failed cases, each with its unexpected result.
    pub(crate) async fn run(&self) -> Result<(), Failures> {
        self.run_with(&Reach::default()).await
    }

    /// Runs every case, including cases that access the storage behind the tier.
    ///
    /// # Errors
    /// The failed cases, each with its unexpected result.
    pub(crate) async fn run_with(&self, reach: &Reach) -> Result<(), Failures> {
        let mut failures = Vec::new();
        for (case, _) in Case::ALL {
            if let Err(error) = self.run_case(case, reach).await {
                failures.push((case, error.to_string()));
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(Failures(failures))
        }
    }

    /// Runs one case.
    ///
    /// # Errors
    /// Describes the unexpected result.
    pub(crate) async fn run_case(&self, case: Case, reach: &Reach) -> anyhow::Result<()> {
        let running = Box::pin(cases::run(self, case, reach));
        match tokio::time::timeout(CASE_LIMIT, running).await {
            Ok(result) => result.map_err(|e| anyhow::anyhow!("{e:#}")),
            Err(_) => anyhow::bail!("not finished after {} s", CASE_LIMIT.as_secs()),
        }
    }
}
