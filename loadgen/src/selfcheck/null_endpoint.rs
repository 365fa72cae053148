//! Null endpoint in a child process; see [`tierlab_load::null_endpoint`].

use crate::children::Child;
use crate::error::RunError;
use crate::server::control::Control;
use clap::Args;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tierlab_load::interrupt::Interrupt;
use tierlab_load::null_endpoint::{Script, SingleServer, Stalls, serve};

/// Options of the endpoint as a process.
#[derive(Debug, Args)]
pub struct NullEndpointOptions {
    /// Address to listen on; port 0 takes a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Length of a stall at the start of every period, in milliseconds
    #[arg(long, requires = "stall_every_ms")]
    stall_ms: Option<u64>,
    /// Length of a period, in milliseconds
    #[arg(long, requires = "stall_ms", value_parser = clap::value_parser!(u64).range(1..))]
    stall_every_ms: Option<u64>,
    /// Serves one request at a time, each with this service time in microseconds
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    service_us: Option<u64>,
    /// Draws service times from an exponential distribution with that mean; the seed of the draws
    #[arg(long, requires = "service_us", value_name = "SEED", num_args = 0..=1, default_missing_value = "1")]
    exponential: Option<u64>,
    /// Ends when stdin closes
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Serves with these options; see [`serve`].
///
/// # Errors
/// The address cannot be bound, or stdout is closed.
pub async fn run(options: &NullEndpointOptions) -> Result<(), RunError> {
    let stalls = options.stall_ms.zip(options.stall_every_ms);
    let stalls = stalls.map(|(length, every)| Stalls {
        length: Duration::from_millis(length),
        every: Duration::from_millis(every),
    });
    let service = options.service_us.map(Duration::from_micros);
    let single_server = service.map(|service| SingleServer::new(service, options.exponential));
    let script = Script { stalls, single_server };
    let served = serve(options.listen, script, options.until_stdin_closes).await;
    served.map_err(RunError::io(Path::new(&options.listen.to_string())))
}

const READY_LIMIT: Duration = Duration::from_secs(20);

/// Null endpoint in a child process.
#[derive(Debug)]
pub struct NullEndpoint {
    _child: Child,
    /// Holds its log.
    _folder: TempDir,
    address: String,
}

#[derive(Debug, Deserialize)]
struct Ready {
    listen: String,
}

impl NullEndpoint {
    /// Starts this executable as a null endpoint.
    ///
    /// # Errors
    /// The endpoint does not start.
    pub fn start(stalls: Option<Stalls>, interrupt: &Interrupt) -> Result<Self, RunError> {
        let executable = std::env::current_exe().map_err(RunError::io(Path::new("/proc/self/exe")))?;
        let mut command = Command::new(executable);
        command.args(["null-endpoint", "--until-stdin-closes"]);
        if let Some(stalls) = stalls {
            command.args(["--stall-ms", &stalls.length.as_millis().to_string()]);
            command.args(["--stall-every-ms", &stalls.every.as_millis().to_string()]);
        }
        let folder = tempfile::tempdir().map_err(RunError::io(&std::env::temp_dir()))?;
        let log = folder.path().join("null-endpoint.log");
        let child = Child::spawn("the null endpoint", command, &log)?;
        let (child, ready) = child.ready::<Ready>(READY_LIMIT, interrupt)?;
        Ok(Self {
            _child: child,
            _folder: folder,
            address: format!("http://{}", ready.listen),
        })
    }

    /// Creates a control of the endpoint, with gRPC at the same address.
    ///
    /// # Errors
    /// An invalid address.
    pub fn control(&self) -> Result<Control, RunError> {
        Ok(Control::own(&self.address, Some(self.address.clone()))?)
    }
}
