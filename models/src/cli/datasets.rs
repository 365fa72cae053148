//! `dataset`: arguments, and what was written as a line.

use crate::datasets::{self, Dataset};
use crate::error::ModelsError;
use crate::generators::DEFAULT_SEED;
use crate::progress::human_bytes;
use crate::stop::Stop;
use clap::Args;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  tierlab-models dataset --like criteo --rows 1000000 --to criteo.tsv
  tierlab-models import-table criteo.tsv --preset criteo --nulls zero --name clicks
  tierlab-models dataset --like taxi --rows 3000000 --to trips.parquet
  tierlab-models import-table trips.parquet --key @row --columns trip_distance,PULocationID,DOLocationID,fare_amount --name trips";

/// Arguments of `dataset`.
#[derive(Debug, Args)]
pub struct DatasetArgs {
    /// Whose files it looks like
    #[arg(long, value_enum)]
    like: Dataset,
    /// Number of rows
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 40), allow_negative_numbers = true)]
    rows: u64,
    /// Seed of the rows
    #[arg(long, default_value_t = DEFAULT_SEED, allow_negative_numbers = true)]
    seed: u64,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

pub(super) fn run(args: &DatasetArgs, stop: &Stop) -> Result<(), ModelsError> {
    let written = datasets::write(args.like, args.rows, args.seed, &args.to, stop)?;
    println!(
        "{}: written, {} rows, {} in {:.1} s ({:.0} rows/s)",
        args.to.display(),
        args.rows,
        human_bytes(written.bytes),
        written.seconds,
        args.rows as f64 / written.seconds.max(1e-9),
    );
    Ok(())
}
