//! `tierlab-models`: parses arguments, runs the command until its end or a stop, and sets the exit code.

use clap::Parser as _;
use std::process::ExitCode;
use tierlab_models::cli::{Cli, run};
use tierlab_models::stop::{self, Stopper};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Threads of the async runtime, which mostly waits for disks and networks.
const WORKERS: usize = 2;

fn main() -> ExitCode {
    tierlab_program::end_when_unread();
    if let Some(code) = tierlab_program::describe::<Cli>() {
        return code;
    }
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        .init();
    match start(cli) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("tierlab-models: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    use anyhow::Context as _;
    tierlab_program::can_start_workers(WORKERS).context("cannot start the runtime")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (stopper, stop) = stop::pair();
    let code = runtime.block_on(async {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        tokio::spawn(stop_on_signal(interrupt, terminate, stopper));
        Ok(match run(cli, &stop).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("tierlab-models: {e}");
                ExitCode::from(e.exit_code())
            }
        })
    });
    // After a stop, a thread may still wait for a disk.
    runtime.shutdown_background();
    code
}

/// Requests a stop at the first signal and ends the process at the second.
async fn stop_on_signal(mut interrupt: Signal, mut terminate: Signal, stopper: Stopper) {
    for _ in 0..2 {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopper.stop();
    }
    std::process::exit(1);
}
