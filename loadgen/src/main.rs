//! `tierlab-loadgen`: see [`tierlab_loadgen::cli`].

use anyhow::Context as _;
use clap::Parser;
use std::process::ExitCode;
use tierlab_loadgen::cli::Cli;

fn main() -> anyhow::Result<ExitCode> {
    tierlab_program::end_when_unread();
    if let Some(code) = tierlab_program::describe::<Cli>() {
        return Ok(code);
    }
    let cli = Cli::parse();
    tierlab_program::can_start_workers(0).context("tierlab-loadgen")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(cli.run());
    // Requests of a dropped step are not waited for.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}
