//! Studies of the load generator's own rules, by simulation; see README.md beside `src`. Never packaged.
//!
//! - [`coverage`]: intervals, drifts, comparisons, searches and verdicts against a known truth
//! - [`decisions`]: answers of labs whose best variant is known
//! - [`study`], [`table`]: settings on every core and their random numbers; their rows in files

mod coverage;
mod decisions;
mod study;
mod table;

use clap::Parser;
use std::path::PathBuf;

/// Simulates how often the load generator's statistics are right. Exits with 1 if a row is not as promised.
#[derive(Debug, Parser)]
#[command(name = "tierlab-dev")]
enum Study {
    /// Simulates how often intervals contain the truth, and drifts, changes and overload are found
    Coverage {
        /// Folder of the tables
        #[arg(long, default_value = "results/coverage")]
        out: PathBuf,
        /// The only table to simulate
        #[arg(long)]
        table: Option<coverage::Table>,
        /// Simulated points per row
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
        trials: u32,
        /// Seed of all random numbers
        #[arg(long, default_value_t = 20_261_121)]
        seed: u64,
    },
    /// Simulates how often a lab's answer is right, and its steps compared with those of elimination by bisection
    SimulateLab {
        /// Folder of the tables
        #[arg(long, default_value = "results/decisions")]
        out: PathBuf,
        /// Simulated labs per family
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        labs: u32,
        /// Seed of all random numbers
        #[arg(long, default_value_t = 20_261_122)]
        seed: u64,
    },
}

fn main() -> anyhow::Result<()> {
    tierlab_program::begin();
    match Study::parse() {
        Study::Coverage {
            out,
            table,
            trials,
            seed,
        } => coverage::run(&out, table, trials as usize, seed),
        Study::SimulateLab { out, labs, seed } => decisions::run(&out, labs as usize, seed),
    }
}
