//! Null endpoint as a child process. In: a script of stalls. Out: its address; it ends on drop.

use super::null_endpoint::Stalls;
use crate::children::Child;
use crate::error::RunError;
use crate::server::control::Control;
use serde::Deserialize;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tierlab_load::interrupt::Interrupt;

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
        let executable = std::env::current_exe().map_err(RunError::io(std::path::Path::new("/proc/self/exe")))?;
        let mut command = Command::new(executable);
        command.args(["null-endpoint", "--until-stdin-closes"]);
        if let Some(stalls) = stalls {
            command.args(["--stall-ms", &stalls.length.as_millis().to_string()]);
            command.args(["--stall-every-ms", &stalls.every.as_millis().to_string()]);
        }
        let folder = tempfile::tempdir().map_err(RunError::io(&std::env::temp_dir()))?;
        let log = folder.path().join("null-endpoint.log");
        let (child, ready) = Child::start::<Ready>("the null endpoint", command, &log, READY_LIMIT, interrupt)?;
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
