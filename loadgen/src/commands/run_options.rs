//! Flags of every run: the folder of its result, and its agents with their credentials.

use crate::error::RunError;
use crate::plan::{Plan, PlanError};
use crate::selfcheck::certificate::CertificateStore;
use crate::store::folder::{Claim, claim, new_folder};
use crate::store::resume::StoppedRun;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_agents::MOST;
use tierlab_agents::options::AgentsOptions;
use tierlab_agents::remote::Agents;

/// Name that identifies this program's runs and agents to each other.
pub(super) const PROGRAM: &str = "tierlab-loadgen";

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
    search_limit_s: Option<u32>,
    /// Load processes on this host; each sends an interleaved share of every step
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "agents", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    pub workers: u32,
    /// Keeps every request as a row of a Parquet file below `requests` in the run's folder (`keep_requests` in the plan)
    #[arg(long)]
    keep_requests: bool,
    /// Prints every table and remark before the answer
    #[arg(long, short)]
    pub verbose: bool,
    /// Agents that send instead of this host.
    #[command(flatten)]
    pub agents: AgentsOptions,
    /// Seconds to wait for a lost agent before the run ends with its finished steps
    #[arg(long, value_name = "SECONDS", help_heading = "Agents", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    agents_wait_s: u32,
    /// Store of the self-check's certificate.
    #[command(flatten)]
    pub certificates: CertificateStore,
}

/// Stopped run to continue, if any, with the exclusive use of its folder.
pub(super) type Resumed = Option<(StoppedRun, Claim)>;

impl RunOptions {
    /// Returns the agents with their credentials; `None` without agents.
    pub(super) fn open_agents(&self) -> Result<Option<Agents>, RunError> {
        let wait = Duration::from_secs(self.agents_wait_s.into());
        let agents = self.agents.open(PROGRAM).map_err(RunError::Usage)?;
        Ok(agents.map(|agents| Agents { wait, ..agents }))
    }

    /// Returns a plan with these options.
    ///
    /// # Errors
    /// Requests that cannot be sent with them.
    pub(super) fn over(&self, plan: Plan) -> Result<Plan, PlanError> {
        let several = match (self.agents.is_empty(), self.workers) {
            (false, _) => Some("--agents"),
            (true, 0 | 1) => None,
            (true, _) => Some("--workers"),
        };
        plan.with_options(self.search_limit_s, self.keep_requests, several)
    }

    /// Claims and reads the run of `--resume`.
    pub(super) fn resumed(&self, plan: &Plan) -> Result<Resumed, RunError> {
        let Some(folder) = self.resume.as_deref() else {
            return Ok(None);
        };
        let claim = claim(folder, "--name")?;
        Ok(Some((StoppedRun::open(folder, plan)?, claim)))
    }

    /// Returns the folder of the result, which no other run uses while the claim is held, and the run to resume.
    pub(super) fn folder(
        &self,
        plan: &Plan,
        resumed: Resumed,
    ) -> Result<(PathBuf, Claim, Option<StoppedRun>), RunError> {
        match resumed {
            Some((earlier, claim)) => Ok((earlier.folder.clone(), claim, Some(earlier))),
            None => {
                let (folder, claim) = new_folder(&self.out, self.name.as_deref(), plan)?;
                Ok((folder, claim, None))
            }
        }
    }
}
