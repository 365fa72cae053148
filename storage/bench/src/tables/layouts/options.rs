//! Flags of `layouts`.

use clap::Args;
use std::path::PathBuf;

/// Of `layouts`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The plan's TOML
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// A folder on the disk that local tiers measure, in the place of the plan's
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Where results go [default: results/NAME-DATE]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Rounds, in the place of the plan's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
    /// Rows of the table, in the place of the plan's
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) rows: Option<u64>,
}
