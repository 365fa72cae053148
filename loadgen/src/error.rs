//! Errors of commands, with their exit codes.

use crate::plan::PlanError;
use crate::server::control::ControlError;
use crate::store::error::StoreError;
use std::io;
use std::path::{Path, PathBuf};
use tierlab_instrument::prices::PricingError;
use tierlab_load::driver::DriverError;
use tierlab_load::workers::WorkerError;
use tierlab_load::workers::link::LinkError;

/// Reason for which a command ended without its result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Invalid plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Unusable prices.
    #[error(transparent)]
    Pricing(#[from] PricingError),
    /// Arguments that contradict each other or the environment.
    #[error("{0}")]
    Usage(String),
    /// Server that could not be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Step that could not be run.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Failed load process.
    #[error(transparent)]
    Workers(#[from] WorkerError),
    /// Link of a load process to its run.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Agent that was lost and did not come back; finished steps are written.
    #[error("{0}")]
    AgentLost(String),
    /// Failed process of the lab.
    #[error("{0}")]
    Child(String),
    /// Result that could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// File or folder that could not be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Completed run whose result must not count as a success.
    #[error("{0}")]
    Unsound(String),
    /// Run that could not continue; finished steps are written.
    #[error("{0}")]
    Stopped(String),
    /// Run stopped by a signal; finished steps are written.
    #[error("interrupted; finished steps are in {}", .0.display())]
    Interrupted(PathBuf),
    /// Run stopped by a signal before any step was finished.
    #[error("interrupted before the first step was finished")]
    InterruptedEarly,
}

impl RunError {
    /// Creates an error about a file or folder.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// Returns 2 for bad usage or configuration, 5 for a lost agent, 130 for an interruption, else 1.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Plan(_) | Self::Pricing(_) | Self::Usage(_) | Self::Link(_) => 2,
            Self::AgentLost(_) => 5,
            Self::Interrupted(_) | Self::InterruptedEarly => tierlab_load::interrupt::EXIT_CODE,
            _ => 1,
        }
    }
}
