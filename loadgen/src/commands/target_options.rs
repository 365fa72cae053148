//! Existing server of any make. In: flags of the command line, which override a plan's `[target]`. Out: the measured target, with
//! as much as the server reports of itself.

use crate::error::RunError;
use crate::plan::{Plan, TargetPlan};
use crate::runner::target::Target;
use crate::server::control::{Control, ControlError};
use crate::server::scrape::Scrape;
use clap::Args;
use std::path::PathBuf;
use tierlab_agents::tls::Identity;
use tierlab_agents::token::TokenSource;
use tierlab_formats::model::is_plain_name;
use tierlab_load::endpoint::{AccessSpec, Header};

/// Address of a server, and settings of its requests. Each overrides the same key of the plan's `[target]`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "The server")]
pub struct TargetOptions {
    /// Address of the server, http://HOST:PORT or https://HOST:PORT/PREFIX [default: `target.url` of the plan]
    #[arg(long)]
    url: Option<String>,
    /// Address of its gRPC service, http://HOST:PORT or https://HOST:PORT; for plans with `protocol = "grpc"`
    #[arg(long, value_name = "URL")]
    grpc_url: Option<String>,
    /// Version of the model to request
    #[arg(long, value_name = "VERSION")]
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
    /// True if an address of a gRPC service is given.
    #[must_use]
    pub fn speaks_grpc(&self) -> bool {
        self.grpc_url.is_some()
    }

    /// Returns a plan's target with these options as overrides.
    ///
    /// # Errors
    /// An invalid address.
    pub fn over(&self, plan: Option<TargetPlan>) -> Result<TargetPlan, RunError> {
        let metrics = match (self.no_metrics, self.metrics_url.is_empty()) {
            (true, _) => Some(Vec::new()),
            (false, true) => None,
            (false, false) => Some(self.metrics_url.clone()),
        };
        let token = self.token_env.clone().map(TokenSource::Env);
        let identity = self.cert.clone().zip(self.key.clone());
        let said = TargetPlan {
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
        if let Some(version) = said.model_version.as_ref().filter(|version| !is_plain_name(version)) {
            return Err(RunError::Usage(format!(
                "invalid --model-version {version}: use letters, digits, `.`, `_` and `-`"
            )));
        }
        let target = plan.unwrap_or_default().with(said);
        if target.custom.is_some() && (target.grpc_url.is_some() || target.model_version.is_some()) {
            return Err(RunError::Usage(
                "--grpc-url and --model-version belong to the Open Inference Protocol, and the plan's `target.kind` is \"http\""
                    .to_owned(),
            ));
        }
        Ok(target)
    }
}

/// Parses `NAME: VALUE`.
fn header(text: &str) -> Result<Header, String> {
    // The value may be secret, so the message does not repeat it.
    let (name, value) = text.split_once(':').ok_or("invalid header; give 'NAME: VALUE'")?;
    Ok(Header {
        name: name.trim().to_owned(),
        value: value.trim().to_owned(),
    })
}

/// Server that answered.
#[derive(Debug)]
pub struct Found {
    /// Target to measure; the caller sets its tier and its cache.
    pub target: Target,
    /// Source of its metrics; empty if none are read.
    pub scrape: Scrape,
    /// Bytes of the table that its model joins; 0 without one, or if the server does not report it.
    pub table_bytes: u64,
    /// Properties that the server does not report, in words.
    pub notes: Vec<String>,
}

/// Asks a server for its model.
///
/// # Errors
/// No address, no server, no such model, or files of the target that cannot be read.
pub async fn open(plan: &Plan, server: &TargetPlan) -> Result<Found, RunError> {
    let Some(spec) = server.spec() else {
        return Err(RunError::Usage(format!(
            "{}: server address is missing: pass --url http://HOST:PORT, or set `[target] url = ...` in the plan",
            plan.file.display()
        )));
    };
    // Wrong arguments have another exit code than a server that does not answer.
    let usage = |error: ControlError| RunError::Usage(error.to_string());
    Control::of(&spec).map_err(usage)?;
    let (control, notes) = Control::open(&spec, server.metrics.as_deref(), &plan.model).await?;
    let scrape = control.scrape().await?;
    let (target, table_bytes) = Target::ask(plan, &spec, control).await?;
    Ok(Found {
        target,
        scrape,
        table_bytes,
        notes,
    })
}

/// Prints on stderr the properties that a server does not report.
pub fn say(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}
