//! The `agent` command: sends shares of the steps of runs that other hosts conduct, one run at a time, until
//! interrupted.

use super::run_options::token;
use crate::error::RunError;
use crate::runner::load_process;
use crate::runner::load_process::allowed::Allowed;
use clap::Args;
use serde_json::json;
use socket2::{SockRef, TcpKeepalive};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_load::endpoint::{Identity, acceptor};
use tierlab_load::interrupt::Interrupt;
use tierlab_load::workers::clock::WallClock;
use tierlab_load::workers::listen::{self, Door, Served};
use tierlab_load::workers::message::printable;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Arguments of `agent`.
#[derive(Debug, Clone, Args)]
pub struct Options {
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
    /// Variable that runs may use as a server's token; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_env: Vec<String>,
    /// Folder of the tokens, certificates and keys that runs may use
    #[arg(long, value_name = "FOLDER")]
    secrets_dir: Option<PathBuf>,
    /// Offset of the agent's clock in milliseconds, for tests
    #[arg(long, hide = true, default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-86_400_000..=86_400_000))]
    clock_offset_ms: i64,
}

impl Options {
    fn door(&self) -> Result<Door, RunError> {
        let own = self.cert.clone().zip(self.key.clone());
        let tls = own.map(|(cert, key)| acceptor(&Identity { cert, key }, self.client_ca.as_deref()));
        let door = Door {
            token: token(self.token_env.as_ref(), self.token_file.as_ref())?,
            tls: tls.transpose().map_err(RunError::Usage)?,
            wants_certificate: self.client_ca.is_some(),
        };
        door.check().map_err(RunError::Usage)?;
        Ok(door)
    }
}

/// Serves runs until interrupted.
///
/// # Errors
/// An address that is taken or must not be open, a token or a certificate that cannot be read.
pub async fn run(options: &Options, interrupt: Interrupt) -> Result<(), RunError> {
    let door = options.door()?;
    let allowed = Allowed {
        variables: options.allow_env.clone(),
        folder: options.secrets_dir.clone(),
    };
    let at = PathBuf::from(format!("--listen {}", options.listen));
    let listener = TcpListener::bind(options.listen).await.map_err(RunError::io(&at))?;
    // Accepted connections inherit it, so the session of a run whose host vanishes ends.
    keep_alive(&listener).map_err(RunError::io(&at))?;
    let address = listener.local_addr().map_err(RunError::io(&at))?;
    writeln!(std::io::stdout(), "{}", json!({ "listen": address.to_string() }))
        .map_err(RunError::io(Path::new("stdout")))?;
    let clock = WallClock::off_by(options.clock_offset_ms);
    let served = Served::default();
    let (sender, mut runs) = mpsc::channel(1);
    let listening = tokio::spawn(listen::listen(listener, door, served.clone(), sender));
    let mut next = None;
    loop {
        let (run, link) = match next.take() {
            Some(known) => known,
            None => tokio::select! {
                Some(known) = runs.recv() => known,
                () = interrupt.raised() => break,
            },
        };
        // A run whose last connection ended since it was accepted is still the current run.
        served.set(Some(&run));
        let name = link.name.clone();
        eprintln!("{name}: begins");
        tokio::select! {
            ended = Box::pin(load_process::serve(link, &clock, load_process::Files::Sent(&allowed))) => {
                served.set(None);
                match ended {
                    Ok(()) => eprintln!("{name}: ended"),
                    Err(error) => eprintln!("{name}: ended: {}", printable(&error.to_string())),
                }
            }
            // The same run reconnects after losing this connection.
            Some(again) = runs.recv() => next = Some(again),
            () = interrupt.raised() => break,
        }
    }
    listening.abort();
    Ok(())
}

/// Probes the other host after 20 s of silence, four times in 20 s.
fn keep_alive(listener: &TcpListener) -> std::io::Result<()> {
    let asked = TcpKeepalive::new()
        .with_time(Duration::from_secs(20))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    SockRef::from(listener).set_tcp_keepalive(&asked)
}
