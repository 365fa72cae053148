//! `tierlab-storage-bench`: measures reads of a tier. Parses the command line, runs one of its commands, reports its result.

mod calibrate;
mod cli;
mod content;
mod doctor;
mod drive;
mod machine;
mod peers;
mod plan;
mod prepared_tier;
mod random;
mod report;
mod rounds;
mod runner;
mod single;
mod stop;
mod tables;
mod ways;

use anyhow::Result;
use cli::{Cli, Command};
use std::error::Error;
use std::process::ExitCode;
use tierlab_agents::options::AgentError;
use tierlab_agents::worker::WorkerError;
use tierlab_storage::{ErrorKind, StorageError};
use tracing_subscriber::EnvFilter;

/// The server's allocator, so that buffers cost here what they cost there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli: Cli = tierlab_program::start();
    let logs = EnvFilter::try_from_env("TIERLAB_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(logs)
        .with_writer(std::io::stderr)
        .init();
    match command(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierlab-storage-bench: {error:#}");
            let is_invalid = |error: &StorageError| error.kind() == ErrorKind::Invalid;
            let code = |cause: &(dyn Error + 'static)| {
                let is_usage = cause.downcast_ref::<StorageError>().is_some_and(is_invalid)
                    || matches!(cause.downcast_ref(), Some(AgentError::Usage(_)));
                let is_lost = matches!(cause.downcast_ref(), Some(WorkerError::Lost(_)));
                is_usage.then_some(2).or(is_lost.then_some(5))
            };
            ExitCode::from(error.chain().find_map(code).unwrap_or(1))
        }
    }
}

fn command(cli: &Cli) -> Result<()> {
    match (&cli.command, &cli.single) {
        (Some(Command::Run(options)), _) => runner::run(options),
        (Some(Command::Agent(options)), _) => runner::agents::run(options),
        (Some(Command::Layouts(options)), _) => tables::layouts::run(options),
        (Some(Command::Caching(options)), _) => tables::caching::run(options),
        (Some(Command::Offline(options)), _) => tables::offline::run(options),
        (Some(Command::Calibrate(options)), _) => calibrate::run(options),
        (Some(Command::Doctor(options)), _) => doctor::run(options),
        (None, Some(options)) => single::run(options),
        (None, None) => Err(plan::bad_usage("--tier", "is required without a command; see `--help`")),
    }
}
