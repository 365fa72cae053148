//! Flags of `doctor`.

use clap::Args;
use std::path::PathBuf;

/// Of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The tier's TOML; without it the machine alone is looked at
    #[arg(long, value_name = "FILE")]
    pub(super) tier: Option<PathBuf>,
    /// Set a key of the tier's TOML, or take it out with KEY=; may be given several times
    #[arg(long, value_name = "KEY=VALUE", requires = "tier")]
    pub(super) set: Vec<String>,
    /// Look only: write and read nothing
    #[arg(long)]
    pub(super) no_measure: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}
