//! Flags of every run: the folder of its result, and its agents with their credentials. And an existing server of any make: flags of the
//! command line, which override a plan's `[target]`, and the measured target, with as much as the server reports of itself.

use crate::error::RunError;
use crate::plan::{Plan, PlanError, TargetPlan};
use crate::runner::load_process::PROGRAM;
use crate::runner::target::Target;
use crate::selfcheck::certificate::CertificateStore;
use crate::server::control::Control;
use crate::server::scrape::Scrape;
use crate::store::folder::{Claim, claim, new_folder};
use crate::store::resume::StoppedRun;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_agents::MAX_PROCESSES;
use tierlab_agents::options::AgentsOptions;
use tierlab_agents::remote::Agents;
use tierlab_agents::tls::Identity;
use tierlab_agents::token::TokenSource;
use tierlab_formats::model::is_plain_name;
use tierlab_load::endpoint::{AccessSpec, Header};
use tierlab_load::interrupt::Interrupt;

/// Options of `lab` and `sweep`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Parent folder of the results
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Name of the result's folder [default: the plan's name and the time]
    #[arg(long, value_parser = folder_name)]
    name: Option<String>,
    /// Folder of a stopped run to continue, with the same plan and files; excludes --out and --name
    #[arg(long, value_name = "RUN_FOLDER", conflicts_with_all = ["out", "name"])]
    resume: Option<PathBuf>,
    /// Maximum seconds for searches, overriding the plan's `search.limit_s`
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=604_800))]
    search_limit_s: Option<u32>,
    /// Load processes on this host; each sends an interleaved share of every step
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "agents", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PROCESSES)))]
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
        let agents = self.agents.open(PROGRAM)?;
        Ok(agents.map(|agents| Agents { wait, ..agents }))
    }

    /// Returns a plan with these options.
    ///
    /// # Errors
    /// Requests that cannot be sent with them.
    pub(super) fn apply_to(&self, plan: Plan) -> Result<Plan, PlanError> {
        let process_option = match (self.agents.is_empty(), self.workers) {
            (false, _) => Some("--agents"),
            (true, 0 | 1) => None,
            (true, _) => Some("--workers"),
        };
        plan.with_options(self.search_limit_s, self.keep_requests, process_option)
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
        if let Some((earlier, claim)) = resumed {
            return Ok((earlier.folder.clone(), claim, Some(earlier)));
        }
        let (folder, claim) = new_folder(&self.out, self.name.as_deref(), plan)?;
        Ok((folder, claim, None))
    }
}

/// Address of a server, and settings of its requests. Each overrides the same key of the plan's `[target]`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The server")]
pub struct TargetOptions {
    /// Address of the server, http://HOST:PORT or https://HOST:PORT/PREFIX [default: `target.url` of the plan]
    #[arg(long)]
    url: Option<String>,
    /// Address of its gRPC service, http://HOST:PORT or https://HOST:PORT; for plans with `protocol = "grpc"`
    #[arg(long, value_name = "URL")]
    pub(super) grpc_url: Option<String>,
    /// Version of the model to request
    #[arg(long, value_name = "VERSION", value_parser = plain_name)]
    model_version: Option<String>,
    /// Server name in requests, instead of the address's host: Host and :authority, and the name in its certificate
    #[arg(long, value_name = "HOST")]
    host_header: Option<String>,
    /// Header of every request, as 'NAME: VALUE'; may be repeated
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<Header>,
    /// Environment variable with the bearer token, which is never written anywhere
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// File with the bearer token in its first line
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificates to trust, a PEM file [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificate of the client, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Address of the metrics, one for each replica, whose counters are summed; may be repeated [default: /metrics
    /// behind --url, if it exists]
    #[arg(long, value_name = "URL", conflicts_with = "no_metrics")]
    metrics_url: Vec<String>,
    /// Reads no metrics
    #[arg(long)]
    no_metrics: bool,
}

impl TargetOptions {
    /// Returns a plan's target with these options as overrides.
    ///
    /// # Errors
    /// An invalid address.
    pub fn apply_to(&self, plan: Option<TargetPlan>) -> Result<TargetPlan, RunError> {
        // With `--no-metrics` there are no addresses.
        let has_metrics = self.no_metrics || !self.metrics_url.is_empty();
        let metrics = has_metrics.then(|| self.metrics_url.clone());
        let token = self.token_env.clone().map(TokenSource::Env);
        let identity = self.cert.clone().zip(self.key.clone());
        let flags = TargetPlan {
            url: self.url.clone(),
            grpc_url: self.grpc_url.clone(),
            model_version: self.model_version.clone(),
            access: AccessSpec {
                host: self.host_header.clone(),
                headers: self.headers.clone(),
                token: token.or_else(|| self.token_file.clone().map(TokenSource::File)),
                ca: self.ca.clone(),
                identity: identity.map(|(cert, key)| Identity { cert, key }),
            },
            metrics,
            ..TargetPlan::default()
        };
        let target = plan.unwrap_or_default().overridden_by(flags);
        if target.custom.is_some() && (target.grpc_url.is_some() || target.model_version.is_some()) {
            let problem = "--grpc-url and --model-version belong to the Open Inference Protocol, and the plan's `target.kind` is \"http\"";
            return Err(RunError::Usage(problem.to_owned()));
        }
        let urls = target.url.iter().chain(&target.grpc_url);
        let mut urls = urls.chain(target.metrics.iter().flatten());
        if target.access.ca.is_some() && urls.all(|url| url.starts_with("http:")) {
            return Err(RunError::Usage("--ca (`target.ca`) needs an https:// address".into()));
        }
        Ok(target)
    }
}

/// Parses the name of a folder inside another.
fn folder_name(text: &str) -> Result<String> {
    let is_name = Path::new(text).file_name().is_some_and(|name| name == text);
    ensure!(is_name, "give a name without `/`; --out is the parent folder");
    Ok(text.to_owned())
}

/// Parses a name that a server's paths can have.
pub(super) fn plain_name(text: &str) -> Result<String> {
    ensure!(is_plain_name(text), "use letters, digits, `.`, `_` and `-`");
    Ok(text.to_owned())
}

/// Parses `NAME: VALUE`.
fn header(text: &str) -> Result<Header> {
    // The value may be secret, so the message does not repeat it.
    let (name, value) = text.split_once(':').context("invalid header; give 'NAME: VALUE'")?;
    Ok(Header {
        name: name.trim().to_owned(),
        value: value.trim().to_owned(),
    })
}

/// Asks a server for its model, and prints the properties that the server does not report. Returns:
/// - the target to measure, without its tier and cache,
/// - the metrics of the server; empty if none are read,
/// - the bytes of the table that the model joins; 0 without a table, or if the server does not report its size.
///
/// # Errors
/// No address, no server, no such model, or files of the target that cannot be read.
pub async fn open(plan: &Plan, server: &TargetPlan) -> Result<(Target, Scrape, u64), RunError> {
    let Some(spec) = server.spec() else {
        let problem = "server address is missing: pass --url http://HOST:PORT, or set `[target] url = ...` in the plan";
        return Err(RunError::about(&plan.file, problem));
    };
    // Wrong arguments have another exit code than a server that does not answer.
    Control::new(&spec).map_err(RunError::usage)?;
    let (control, notes) = Control::open(&spec, server.metrics.as_deref(), &plan.model).await?;
    let scrape = control.scrape().await?;
    let (target, table_bytes) = Target::fetch(plan, &spec, control).await?;
    print_notes(&notes);
    Ok((target, scrape, table_bytes))
}

/// Does work before the first step; an interrupt drops it.
pub(super) async fn unless_interrupted<T>(
    interrupt: &Interrupt,
    work: impl Future<Output = Result<T, RunError>>,
) -> Result<T, RunError> {
    tokio::select! {
        done = work => done,
        () = interrupt.raised() => Err(RunError::InterruptedEarly),
    }
}

/// Prints on stderr the properties that a server does not report.
pub fn print_notes(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}
