//! Flags of `run`.

use clap::Args;
use std::path::PathBuf;

/// Of `run`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The plan's TOML
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// A folder on the disk that local tiers measure; a folder of the run is made in it and removed at the end. Goes
    /// before the plan's `scratch`; without either, the system's temporary folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Where results go [default: results/NAME-DATE]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with a run that was interrupted
    #[arg(long, value_name = "FOLDER")]
    pub(crate) resume: Option<PathBuf>,
    /// Repeats of each point, in the place of the plan's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Seconds of each repeat, in the place of the plan's
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// Measure no peers (fio and others), even where they are installed
    #[arg(long)]
    pub(crate) no_peers: bool,
}
