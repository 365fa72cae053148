//! Every known attack at once, while honest clients ask: does the server stay right, reachable and within its bounds?
//!
//! `soak [--binaries FOLDER] [--seconds N] [--factor F] [--without ATTACKER]...` starts a server with small bounds and honest clients that compare each
//! answer with the one that they had before, then all attackers of `tests/attacks` at once, then none again. It prints a
//! row for each third and what became of each attack. Exit code 1 where an answer was wrong, a client was locked out, memory
//! went past its bound, or the honest p99 under attack went past the factor.

mod attackers;
#[path = "../../tests/attacks/mod.rs"]
mod attacks;
mod clients;
mod served;
mod storage;

use attackers::{AttackOutcome, Attacker};
use clap::Parser;
use clients::Figures;
use served::{Bounds, Served};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Memory of the process beside its clients' data: code, models, sessions, the allocator's reserve, and
/// refused data that are freed a moment after they are no longer counted.
const BASE_BYTES: u64 = 512 << 20;
/// Maximum memory of an open connection beside its bodies and replies: buffers of its socket, TLS and HTTP/2 state.
const CONNECTION_BYTES: u64 = 256 << 10;
/// Maximum share of honest requests that are refused for lack of room under attack, each with a `Retry-After`.
const MAX_REFUSED_SHARE: f64 = 0.2;

#[derive(Debug, Parser)]
#[command(about = "Every known attack at once, while honest clients ask")]
struct Options {
    /// Folder of the project's binaries
    #[arg(long, default_value = "target/release")]
    binaries: PathBuf,
    /// Length of all three thirds together; the second, under attack, takes half of it
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Highest p99 under attack, as a multiple of the quiet p99
    #[arg(long, default_value_t = 50.0)]
    factor: f64,
    /// Attacker to leave out, by its name; may be repeated. Shows the cost of each to honest clients
    #[arg(long, value_name = "ATTACKER")]
    without: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let bounds = Bounds::default();
    let served = Served::start(&options.binaries, &bounds)?;
    let attackers = chosen(Attacker::all(&served), &options.without)?;
    let seconds = Duration::from_secs(options.seconds.max(8));
    println!(
        "{} s; at most {} MiB held by requests, {} connections\n",
        seconds.as_secs(),
        bounds.max_buffered_bytes >> 20,
        bounds.connections
    );
    println!("{}", Figures::heading());
    let clients = clients::Clients::record_answers(&served.address)?;
    let baseline = clients.measure(seconds / 4)?;
    println!("{}", baseline.row("before"));
    let (attacked, outcomes) = under_attack(attackers, &clients, seconds / 2)?;
    println!("{}", attacked.row("under attack"));
    let after = clients.measure(seconds / 4)?;
    println!("{}\n", after.row("after"));
    for outcome in &outcomes {
        println!("{outcome}");
    }
    let peak_bytes = served.peak_bytes()?;
    let bound_bytes = bounds.max_buffered_bytes + BASE_BYTES + bounds.connections * CONNECTION_BYTES;
    println!(
        "\nmemory: {} MiB at its peak, of {} MiB\n",
        peak_bytes >> 20,
        bound_bytes >> 20
    );
    let verdicts = [
        (
            "every answer was right",
            baseline.wrong + attacked.wrong + after.wrong == 0,
        ),
        (
            "nobody was locked out",
            baseline.failed + attacked.failed + after.failed == 0,
        ),
        (
            "at most a fifth was refused under attack, and nothing before and after",
            attacked.refused_share() <= MAX_REFUSED_SHARE && baseline.refused + after.refused == 0,
        ),
        ("memory stayed within its bound", peak_bytes <= bound_bytes),
        (
            "p99 under attack stayed within its factor",
            attacked.p99_ms <= options.factor * baseline.p99_ms,
        ),
        ("every attacker got to attack", outcomes.iter().all(|it| it.rounds > 0)),
        ("the server ends when it is told to", served.end()?),
    ];
    for (what, held) in verdicts {
        println!("{}  {what}", if held { "held  " } else { "BROKEN" });
    }
    let all = verdicts.iter().all(|(_, held)| *held);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Removes the named attackers.
fn chosen(mut attackers: Vec<Attacker>, without: &[String]) -> anyhow::Result<Vec<Attacker>> {
    let names: Vec<_> = attackers.iter().map(|attacker| attacker.name).collect();
    for name in without {
        let allowed = names.join("`, `");
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "no attacker `{name}`: give --without one of `{allowed}`"
        );
    }
    attackers.retain(|attacker| !without.iter().any(|name| name == attacker.name));
    Ok(attackers)
}

/// Honest figures while all attackers are at it, and what became of these.
fn under_attack(
    attackers: Vec<Attacker>,
    clients: &clients::Clients,
    time: Duration,
) -> anyhow::Result<(Figures, Vec<AttackOutcome>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + time;
    let threads: Vec<_> = attackers
        .into_iter()
        .map(|attacker| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || attacker.attack(&stop, until))
        })
        .collect();
    let figures = clients.measure(time);
    stop.store(true, Ordering::Relaxed);
    let outcomes = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
    Ok((figures?, outcomes))
}
