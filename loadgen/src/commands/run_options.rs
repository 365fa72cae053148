//! Flags of every run, and the folder of its result.

use super::agents_options::AgentsOptions;
use crate::error::RunError;
use crate::plan::Plan;
use crate::selfcheck::certificate::CertificateStore;
use crate::store::new_folder::{Claim, claim, new_folder};
use crate::store::resume::StoppedRun;
use clap::Args;
use std::path::PathBuf;
use tierlab_load::workers;

/// Options of `lab` and `sweep`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Parent folder of the results
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Name of the result's folder [default: the plan's name and the time]
    #[arg(long)]
    name: Option<String>,
    /// Folder of a stopped run to continue, with the same plan and files; excludes --out and --name
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = ["out", "name"])]
    resume: Option<PathBuf>,
    /// Maximum seconds for searches, overriding the plan's `search.limit_s`
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=604_800))]
    pub search_limit_s: Option<u32>,
    /// Load processes on this host; each sends an interleaved share of every step
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(workers::MOST)))]
    pub workers: u32,
    /// Prints every table and remark before the answer
    #[arg(long, short)]
    pub verbose: bool,
    /// Agents that send instead of this host.
    #[command(flatten)]
    pub agents: AgentsOptions,
    /// Store of the self-check's certificate.
    #[command(flatten)]
    pub certificates: CertificateStore,
}

/// Stopped run to continue, if any, with the exclusive use of its folder.
pub(super) struct Resumed {
    pub(super) earlier: Option<StoppedRun>,
    claim: Option<Claim>,
}

impl RunOptions {
    /// Claims and reads the run of `--resume`.
    pub(super) fn resumed(&self, plan: &Plan) -> Result<Resumed, RunError> {
        let folder = self.resume.as_deref();
        Ok(Resumed {
            claim: folder.map(claim).transpose()?,
            earlier: folder.map(|folder| StoppedRun::open(folder, plan)).transpose()?,
        })
    }

    /// Returns the folder of the result, which no other run uses while the claim is held, and the run to resume.
    pub(super) fn folder(
        &self,
        plan: &Plan,
        resumed: Resumed,
    ) -> Result<(PathBuf, Option<Claim>, Option<StoppedRun>), RunError> {
        match resumed.earlier {
            Some(earlier) => Ok((earlier.folder.clone(), resumed.claim, Some(earlier))),
            None => {
                let (folder, claim) = new_folder(&self.out, self.name.as_deref(), plan)?;
                Ok((folder, Some(claim), None))
            }
        }
    }
}
