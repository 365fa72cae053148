//! Flags of every run: the folder of its result, and its agents with their credentials.

use crate::error::RunError;
use crate::plan::Plan;
use crate::selfcheck::certificate::CertificateStore;
use crate::store::folder::{Claim, claim, new_folder};
use crate::store::resume::StoppedRun;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_load::endpoint::{Identity, TokenSource, connector};
use tierlab_load::workers::handshake::Token;
use tierlab_load::workers::{self, Agents, MOST};

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
    /// Keeps every request as a row of a Parquet file below `requests` in the run's folder (`keep_requests` in the plan)
    #[arg(long)]
    pub keep_requests: bool,
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
pub(super) type Resumed = Option<(StoppedRun, Claim)>;

impl RunOptions {
    /// Claims and reads the run of `--resume`.
    pub(super) fn resumed(&self, plan: &Plan) -> Result<Resumed, RunError> {
        let Some(folder) = self.resume.as_deref() else {
            return Ok(None);
        };
        let claim = claim(folder)?;
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

/// Agents on other hosts, which send a run's requests.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Agents")]
pub struct AgentsOptions {
    /// Agents that send every step together, each an interleaved share: HOST:PORT of every `tierlab-loadgen agent`,
    /// separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', conflicts_with = "workers")]
    agents: Vec<String>,
    /// Environment variable with the agents' token
    #[arg(long, value_name = "NAME", conflicts_with = "agents_token_file", requires = "agents")]
    agents_token_env: Option<String>,
    /// File with the agents' token in its first line
    #[arg(long, value_name = "FILE", requires = "agents")]
    agents_token_file: Option<PathBuf>,
    /// CA of the agents' certificates, a PEM file; enables TLS
    #[arg(long, value_name = "FILE", requires = "agents")]
    agents_ca: Option<PathBuf>,
    /// Certificate of this run for agents that require one, a PEM file
    #[arg(long, value_name = "FILE", requires_all = ["agents_key", "agents_ca"])]
    agents_cert: Option<PathBuf>,
    /// Key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "agents_cert")]
    agents_key: Option<PathBuf>,
    /// Seconds to wait at the start for agents that are not reachable yet
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    agents_start_wait_s: u32,
    /// Seconds to wait for a lost agent before the run ends with its finished steps
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86_400))]
    agents_wait_s: u32,
}

impl AgentsOptions {
    /// Number of agents.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.agents.len()
    }

    /// True if this host sends all requests itself.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Returns the agents with their credentials; `None` without agents.
    ///
    /// # Errors
    /// A duplicate address or one without a port, a token or a certificate that cannot be read.
    pub fn open(&self) -> Result<Option<Agents>, RunError> {
        if self.agents.is_empty() {
            return Ok(None);
        }
        for (index, address) in self.agents.iter().enumerate() {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                return Err(RunError::Usage(format!("--agents: `{address}` is no HOST:PORT")));
            }
            if self.agents[..index].contains(address) {
                return Err(RunError::Usage(format!("--agents: {address} stands there twice")));
            }
        }
        if self.agents.len() > MOST as usize {
            return Err(RunError::Usage(format!("--agents: more than {MOST} agents")));
        }
        let token = token(self.agents_token_env.as_ref(), self.agents_token_file.as_ref())?;
        let own = self.agents_cert.clone().zip(self.agents_key.clone());
        let own = own.map(|(cert, key)| Identity { cert, key });
        let tls = self.agents_ca.as_deref().map(|ca| connector(ca, own.as_ref()));
        Ok(Some(Agents {
            addresses: self.agents.clone(),
            token,
            tls: tls.transpose().map_err(RunError::Usage)?,
            start_wait: Duration::from_secs(self.agents_start_wait_s.into()),
            wait: Duration::from_secs(self.agents_wait_s.into()),
            run: hex::encode(rand::random::<[u8; 16]>()),
        }))
    }
}

/// Reads a token from a variable or a file.
///
/// # Errors
/// A token that is missing or too short.
pub(super) fn token(env: Option<&String>, file: Option<&PathBuf>) -> Result<Option<Token>, RunError> {
    let source = env.cloned().map(TokenSource::Env);
    let source = source.or_else(|| file.cloned().map(TokenSource::File));
    let token = source.map(|source| Token::new(&source.read()?));
    token.transpose().map_err(RunError::Usage)
}
