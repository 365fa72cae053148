//! Flags of `doctor`.

use clap::Args;
use std::path::PathBuf;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Configuration of the tier, a TOML file; without it only the machine is checked
    #[arg(long, value_name = "FILE")]
    pub(super) tier: Option<PathBuf>,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "tier")]
    pub(super) set: Vec<String>,
    /// Only check: write and read nothing
    #[arg(long)]
    pub(super) no_measure: bool,
    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}
