//! Load process on this host. In: its number. Out: the process, with a link over its pipes.

use super::link::Link;
use super::worker::{Worker, WorkerError};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Starts process `number` of `of`, one of this executable.
pub(super) fn start(number: u32, of: u32) -> Result<Worker, WorkerError> {
    let executable = Path::new("/proc/self/exe");
    let program = std::env::current_exe().map_err(WorkerError::io(executable))?;
    let mut process = Command::new(&program)
        .arg("load-process")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C is handled by the run, which ends its processes.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(WorkerError::io(&program))?;
    let id = process.id().unwrap_or_default();
    let name = format!("load process {} of {of} (id {id})", number + 1);
    let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
        return Err(WorkerError::Failed(format!("{name} has no pipes")));
    };
    Ok(Worker {
        link: Link::new(name, true, Box::new(stdout), Box::new(stdin)),
        process: Some(process),
    })
}
