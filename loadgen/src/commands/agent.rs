//! The `agent` command: sends shares of the steps of runs that other hosts conduct, one run at a time, until
//! interrupted.

use super::run_options::PROGRAM;
use crate::error::RunError;
use crate::runner::load_process;
use crate::runner::load_process::allowed::Allowed;
use clap::Args;
use std::path::PathBuf;
use tierlab_agents::options::AgentOptions;
use tierlab_agents::session;
use tierlab_load::interrupt::Interrupt;

/// Arguments of `agent`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Address and credentials.
    #[command(flatten)]
    agent: AgentOptions,
    /// Variable that runs may use as a server's token; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_env: Vec<String>,
    /// Folder of the tokens, certificates and keys that runs may use
    #[arg(long, value_name = "FOLDER")]
    secrets_dir: Option<PathBuf>,
}

/// Serves runs until interrupted.
///
/// # Errors
/// An address that is taken or must not be open, a token or a certificate that cannot be read.
pub async fn run(options: &Options, interrupt: Interrupt) -> Result<(), RunError> {
    let allowed = Allowed {
        variables: options.allow_env.clone(),
        folder: options.secrets_dir.clone(),
    };
    let (listener, door) = options.agent.listen(PROGRAM).await?;
    let work = async |link, clock: &_| load_process::serve(link, clock, load_process::Files::Sent(&allowed)).await;
    session::serve(listener, door, &options.agent.clock(), interrupt.raised(), work).await;
    Ok(())
}
