//! Flags of an agent, and of a run with agents. In: a command line. Out: a listener, or agents with their credentials.

use crate::MAX_PROCESSES;
use crate::clock::WallClock;
use crate::handshake::Token;
use crate::remote::{Agents, keep_alive};
use crate::session::Auth;
use crate::tls::{Identity, client_config, server_config};
use crate::token::TokenSource;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Flags of an agent.
#[derive(Debug, Clone, Args)]
pub struct AgentOptions {
    /// Address to listen on; port 0 takes a free port, which is printed on stdout
    #[arg(long, default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Environment variable with the token that runs must know; the token is never sent
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// File with the token in its first line
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate of the agent, a PEM file; enables TLS
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// CA of the certificates that runs must present, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// Offset of the agent's clock in milliseconds, for tests
    #[arg(long, hide = true, default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-86_400_000..=86_400_000))]
    clock_offset_ms: i64,
}

/// Error of an agent that cannot start, or of a run's flags for agents.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// An address is invalid, or credentials are missing or unreadable.
    #[error("{0}")]
    Usage(String),
    /// The address cannot be listened on.
    #[error("--listen {at}: {source}")]
    Listen {
        /// Address of `--listen`.
        at: SocketAddr,
        /// System error.
        source: io::Error,
    },
}

impl AgentOptions {
    /// Clock of the agent.
    pub fn clock(&self) -> WallClock {
        WallClock::with_offset_ms(self.clock_offset_ms)
    }

    /// Listens for runs of `program`, and prints the address on stdout.
    ///
    /// # Errors
    /// An address in use or without authentication, or an unreadable token or certificate.
    pub async fn listen(&self, program: &'static str) -> Result<(TcpListener, Auth), AgentError> {
        let usage = |error: anyhow::Error| AgentError::Usage(error.to_string());
        let auth = self.auth(program).map_err(usage)?;
        let at = self.listen;
        let failed = |source| AgentError::Listen { at, source };
        let listener = TcpListener::bind(at).await.map_err(failed)?;
        // Accepted connections inherit it, so that sessions of vanished hosts end.
        keep_alive(&listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        writeln!(io::stdout(), "{}", json!({ "listen": address.to_string() })).map_err(failed)?;
        Ok((listener, auth))
    }

    fn auth(&self, program: &'static str) -> Result<Auth> {
        let identity = self.cert.clone().zip(self.key.clone());
        let tls = identity.map(|(cert, key)| server_config(&Identity { cert, key }, self.client_ca.as_deref()));
        let auth = Auth {
            program,
            token: token(self.token_env.as_ref(), self.token_file.as_ref())?,
            tls: tls.transpose()?.map(Arc::new),
            requires_certificate: self.client_ca.is_some(),
        };
        auth.check()?;
        Ok(auth)
    }
}

/// Flags of a run with agents.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Agents")]
pub struct AgentsOptions {
    /// Agents that run every step together instead of this host: HOST:PORT of each, separated by commas
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
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
}

impl AgentsOptions {
    /// Number of agents.
    pub const fn len(&self) -> usize {
        self.agents.len()
    }

    /// True if this host does all the work itself.
    pub const fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Returns agents of `program` with their credentials; `None` without agents.
    ///
    /// # Errors
    /// A duplicate address or one without a port, or an unreadable token or certificate.
    pub fn open(&self, program: &'static str) -> Result<Option<Agents>, AgentError> {
        if self.agents.is_empty() {
            return Ok(None);
        }
        for (index, address) in self.agents.iter().enumerate() {
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                let why = format!("--agents: invalid address `{address}`: use HOST:PORT");
                return Err(AgentError::Usage(why));
            }
            if self.agents[..index].contains(address) {
                return Err(AgentError::Usage(format!("--agents: duplicate address {address}")));
            }
        }
        if self.agents.len() > MAX_PROCESSES as usize {
            return Err(AgentError::Usage(format!("--agents: more than {MAX_PROCESSES} agents")));
        }
        let identity = self.agents_cert.clone().zip(self.agents_key.clone());
        let identity = identity.map(|(cert, key)| Identity { cert, key });
        let ca = self.agents_ca.as_deref();
        let tls = ca.map(|ca| client_config(Some(ca), identity.as_ref()));
        let usage = |error: anyhow::Error| AgentError::Usage(error.to_string());
        let token = token(self.agents_token_env.as_ref(), self.agents_token_file.as_ref());
        Ok(Some(Agents {
            program,
            addresses: self.agents.clone(),
            token: token.map_err(usage)?,
            tls: tls.transpose().map_err(usage)?.map(Arc::new),
            start_wait: Duration::from_secs(self.agents_start_wait_s.into()),
            wait: Duration::ZERO,
            run: format!("{:032x}", rand::random::<u128>()),
        }))
    }
}

/// Reads a token from a variable or a file.
fn token(env: Option<&String>, file: Option<&PathBuf>) -> Result<Option<Token>> {
    let source = env.cloned().map(TokenSource::Env);
    let source = source.or_else(|| file.cloned().map(TokenSource::File));
    source.map(|source| Token::new(&source.read()?)).transpose()
}
