//! Flags of `offline`.

use clap::Args;
use std::path::PathBuf;

/// Of `offline`.
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
    /// Seconds of each measurement, in the place of the plan's
    #[arg(long)]
    pub(crate) seconds: Option<f64>,
    /// ONNX Runtime's library, or the folder that it lies in
    #[arg(long, value_name = "PATH", env = "ORT_DYLIB_PATH")]
    pub(crate) onnxruntime: Option<PathBuf>,
}
