//! Agents on other hosts, from the run's view. In: addresses and credentials. Out: links to all of them. Independent of steps.

use crate::handshake::{self, Token};
use crate::link::{Link, LinkError};
use crate::worker::{Worker, WorkerError};
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;

/// Time limit for connecting.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two attempts to reach an agent.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Agents of a run.
#[derive(Debug, Clone)]
pub struct Agents {
    /// Program of the run and its agents.
    pub program: &'static str,
    /// Addresses as `HOST:PORT`.
    pub addresses: Vec<String>,
    /// Secret shared with the run.
    pub token: Option<Token>,
    /// TLS settings, if agents are reached over TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Time to wait at the start for unreachable agents.
    pub start_wait: Duration,
    /// Time to wait for a lost agent.
    pub wait: Duration,
    /// Name of the run, the same over all connections.
    pub run: String,
}

impl Agents {
    /// Connects to all agents, and retries unreachable ones until `limit`.
    ///
    /// # Errors
    /// An agent is unreachable until then, or refuses.
    pub async fn connect(&self, limit: Duration) -> Result<Vec<Worker>, WorkerError> {
        let until = Instant::now() + limit;
        let links = self.addresses.iter().map(|address| self.connect_one(address, until));
        futures::future::try_join_all(links).await
    }

    async fn connect_one(&self, address: &str, until: Instant) -> Result<Worker, WorkerError> {
        loop {
            match self.attempt(address).await {
                Ok(link) => return Ok(Worker { link, process: None }),
                Err(error) if error.is_unreachable() && Instant::now() < until => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) if error.is_unreachable() => {
                    return Err(WorkerError::Lost(format!("agent {address} is unreachable: {error}")));
                }
                Err(error) => return Err(WorkerError::Failed(format!("agent {address}: {error}"))),
            }
        }
    }

    async fn attempt(&self, address: &str) -> Result<Link, LinkError> {
        let timed_out = |_| LinkError::Silent(CONNECT_LIMIT);
        let connected = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await;
        let stream = connected.map_err(timed_out)?.map_err(LinkError::Io)?;
        stream.set_nodelay(true).map_err(LinkError::Io)?;
        keep_alive(&stream).map_err(LinkError::Io)?;
        let is_local = stream.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        let name = format!("agent {address}");
        let link = match &self.tls {
            None => Link::new(name, is_local, stream),
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let server = ServerName::try_from(host)
                    .map_err(|_| LinkError::Reported("its address has no valid name for a certificate".to_owned()))?;
                let connecting = TlsConnector::from(Arc::clone(tls)).connect(server, stream);
                let stream = timeout(CONNECT_LIMIT, connecting).await.map_err(timed_out)?;
                Link::new(name, true, stream.map_err(tls_error)?)
            }
        };
        handshake::introduce(link, self.token.as_ref(), self.program, &self.run).await
    }
}

/// Probes the other host after 20 s of silence, four times in 20 s, to detect a vanished host.
pub(crate) fn keep_alive(socket: &impl AsFd) -> std::io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(20))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}

/// Converts a TLS error: a refused certificate is permanent, so a retry does not help.
fn tls_error(error: std::io::Error) -> LinkError {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return LinkError::Reported(format!(
            "TLS: {error}; check --agents-ca, --agents-cert and --agents-key"
        ));
    }
    LinkError::Io(error)
}
