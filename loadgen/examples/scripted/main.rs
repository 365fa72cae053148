//! Server with known latencies, against which `scripts/bench/loadgen` measures load generators.
//!
//! - `serve`: answers infer requests by a script of service times and stalls, on the routes that load generators use
//! - `truth`: percentiles that an open-loop client must find there
//! - `percentiles`: percentiles of one of our runs, pooled from its histograms, however few its requests
//! - `goose`: plain goose, with its own throttle and its own metrics, as a peer

mod peer_goose;
mod script;
mod secure;
mod server;

use clap::{Parser, Subcommand};
use hdrhistogram::Histogram;
use script::Script;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Histograms;
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_loadgen::store::folder;

#[derive(Debug, Parser)]
#[command(about = "A server with known latencies, its truth, and plain goose beside it")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves until stdin closes; prints its address as JSON
    Serve {
        script: Script,
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Also serves TLS on a separate port, and writes its certificate to this file
        #[arg(long)]
        ca: Option<PathBuf>,
    },
    /// Prints p50, p95 and p99 of the latency of evenly spread arrivals, in microseconds, as JSON
    Truth {
        script: Script,
        #[arg(long)]
        rate: f64,
    },
    /// Prints the percentiles of the first point of a run
    Percentiles { run: PathBuf },
    /// Runs goose and prints its own metrics
    Goose(peer_goose::Options),
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Serve { script, listen, ca } => server::serve(script, listen, ca.as_deref()).await?,
        Command::Truth { script, rate } => {
            let [p50_us, p95_us, p99_us] = script.truth_us(rate);
            println!(
                "{}",
                serde_json::json!({"p50_us": p50_us, "p95_us": p95_us, "p99_us": p99_us})
            );
        }
        Command::Percentiles { run } => println!("{}", percentiles(&run)?),
        Command::Goose(options) => println!("{}", peer_goose::run(options).await?),
    }
    Ok(())
}

fn percentiles(folder: &Path) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    let run = folder::load(folder)?;
    let repeats = &run.points.first().ok_or("the run has no point")?.repeats;
    let of = |quantile: f64, clock: fn(&Histograms) -> &Vec<Histogram<u64>>| {
        BlockTable::new(repeats.iter().map(|repeat| clock(&repeat.histograms).as_slice())).pooled_quantile(quantile)
    };
    let [p50_us, p95_us, p99_us] = [0.5, 0.95, 0.99].map(|quantile| of(quantile, |clocks| &clocks.latency));
    Ok(serde_json::json!({
        "p50_us": p50_us, "p95_us": p95_us, "p99_us": p99_us,
        "lag_p50_us": of(0.5, |clocks| &clocks.lag), "lag_p99_us": of(0.99, |clocks| &clocks.lag),
    }))
}
