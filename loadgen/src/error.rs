//! Errors of commands, with their exit codes, and of reading and writing results.

use crate::plan::PlanError;
use crate::server::control::ControlError;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use tierlab_agents::link::LinkError;
use tierlab_agents::options::AgentError;
use tierlab_agents::worker::WorkerError;
use tierlab_instrument::prices::PricingError;
use tierlab_load::driver::DriverError;

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
    /// Failed request to a server.
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
    /// Agent that cannot start, or flags for agents.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Agent that was lost and did not come back; finished steps are written.
    #[error("{0}")]
    AgentLost(String),
    /// Failed process of the lab, run that could not continue, or result that must not count as a success.
    #[error("{0}")]
    Failed(String),
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

    /// Creates an error of usage about a file or folder.
    pub(crate) fn about(path: &Path, problem: impl Display) -> Self {
        Self::Usage(format!("{}: {problem}", path.display()))
    }

    /// Creates an error of usage.
    pub(crate) fn usage(problem: impl Display) -> Self {
        Self::Usage(problem.to_string())
    }

    /// Returns 2 for bad usage or configuration, 5 for a lost agent, 130 for an interruption, else 1.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Plan(_) | Self::Pricing(_) | Self::Usage(_) | Self::Link(_) | Self::Agent(AgentError::Usage(_)) => 2,
            Self::AgentLost(_) => 5,
            Self::Interrupted(_) | Self::InterruptedEarly => tierlab_load::interrupt::EXIT_CODE,
            _ => 1,
        }
    }
}

/// Reason for which a result folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be written or read.
    #[error("{}: {source}{}", path.display(), hint(path, source))]
    Io {
        /// File or folder.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// JSON or CSV that is invalid, or could not be created.
    #[error("{}: {source}", path.display())]
    Format {
        /// File or folder.
        path: PathBuf,
        /// Error with its position.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `run.json` of another version of this program.
    #[error("{}: schema_version is {found}, this program reads {}; use the version that wrote it (environment.version)",
            path.display(), tierlab_analysis::record::SCHEMA_VERSION)]
    Schema {
        /// File or folder.
        path: PathBuf,
        /// Version found.
        found: u32,
    },
    /// The journal of a run under way could not be read or written.
    #[error(transparent)]
    Journal(#[from] tierlab_instrument::journal::JournalError),
    /// A histogram log is damaged.
    #[error("{}: entry {entry}: {problem}; restore the file, or measure again", path.display())]
    Entry {
        /// File or folder.
        path: PathBuf,
        /// Number of the entry, from 1.
        entry: usize,
        /// Error message.
        problem: String,
    },
    /// Invalid path of histograms: missing, duplicate, or outside the run's folder.
    #[error("hdr_file `{0}` must be a plain path below the run's folder")]
    HdrFile(String),
}

impl StoreError {
    /// Creates an error about a file or folder.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// Creates an error about the format of a file.
    pub(crate) fn format<E: Into<Box<dyn std::error::Error + Send + Sync>>>(path: &Path) -> impl Fn(E) -> Self {
        let path = path.to_owned();
        move |error| Self::Format {
            path: path.clone(),
            source: error.into(),
        }
    }
}

/// Advice for a file that does not exist, or has no space.
fn hint(path: &Path, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound if path.ends_with("run.json") => "; give a run's folder, such as results/<run>",
        io::ErrorKind::StorageFull => "; free space, and continue a run by --resume",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_run_or_without_space_comes_with_advice() {
        let problem = |kind: io::ErrorKind| StoreError::io(Path::new("r/run.json"))(kind.into()).to_string();
        assert!(problem(io::ErrorKind::NotFound).ends_with("; give a run's folder, such as results/<run>"));
        assert!(problem(io::ErrorKind::StorageFull).ends_with("; free space, and continue a run by --resume"));
    }
}
