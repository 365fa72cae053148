//! Why a command ended without its result, and the exit code that says so.

use crate::plan::PlanError;
use crate::server::control::ControlError;
use crate::store::error::StoreError;
use std::io;
use std::path::{Path, PathBuf};
use tierlab_instrument::prices::PricingError;
use tierlab_load::driver::DriverError;
use tierlab_load::workers::WorkerError;

/// Why a command ended without its result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A bad plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Prices that cannot be used.
    #[error(transparent)]
    Pricing(#[from] PricingError),
    /// Arguments that contradict each other or the world.
    #[error("{0}")]
    Usage(String),
    /// A server that could not be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A step that could not be run.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A load process.
    #[error(transparent)]
    Workers(#[from] WorkerError),
    /// An agent that was lost and did not come back; what was finished is written.
    #[error("{0}")]
    AgentLost(String),
    /// A process of the lab.
    #[error("{0}")]
    Child(String),
    /// A result that could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A run that went to its end, and whose result must not be taken for a success.
    #[error("{0}")]
    Unsound(String),
    /// A run that could not go on; what was finished is written.
    #[error("{0}")]
    Stopped(String),
    /// Stopped by a signal; what was finished is written.
    #[error("interrupted; finished steps are in {}", .0.display())]
    Interrupted(PathBuf),
    /// Stopped by a signal before anything was finished.
    #[error("interrupted before the first step was finished")]
    InterruptedEarly,
}

impl RunError {
    /// For a file or folder.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// 2 for bad usage or configuration, 5 for a lost agent, 130 for an interruption, else 1.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Plan(_) | Self::Pricing(_) | Self::Usage(_) => 2,
            Self::AgentLost(_) => 5,
            Self::Interrupted(_) | Self::InterruptedEarly => tierlab_load::interrupt::EXIT_CODE,
            _ => 1,
        }
    }
}
