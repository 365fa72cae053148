//! Child processes of the load generator: they report on stdout when they are ready, and end with the load generator.
//!
//! In: a command. Out: its ready line, and a handle that stops it by its process id. Each child leads a process group
//! of its own, so that a Ctrl-C on the terminal reaches only the load generator, which then ends the children in order.

use crate::error::RunError;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read as _, Seek as _};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tierlab_agents::worker::describe_status;
use tierlab_load::interrupt::Interrupt;

/// Time for a child to end after SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Lines of a child's log that an error repeats.
const LOG_TAIL_LINES: usize = 8;
const POLL: Duration = Duration::from_millis(10);
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Running child process, ended on drop.
#[derive(Debug)]
pub struct Child {
    pub(crate) label: String,
    pub(crate) log: PathBuf,
    process: Process,
}

impl Child {
    /// Starts `command` with stderr going to `log`.
    ///
    /// Must be called on a thread that lives as long as the child: a child that asked the kernel to end with its parent
    /// ends with that thread. [`ready`](Self::ready) may be called on any thread.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn spawn(label: &str, mut command: Command, log: &Path) -> Result<Self, RunError> {
        let stderr = std::fs::File::create(log).map_err(RunError::io(log))?;
        // An open pipe tells the child that its parent lives.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        Self::begin(label, command, log)
    }

    fn begin(label: &str, mut command: Command, log: &Path) -> Result<Self, RunError> {
        let program = command.get_program().to_owned();
        let process = command.process_group(0).spawn();
        Ok(Self {
            label: label.to_owned(),
            log: log.to_owned(),
            process: process.map_err(RunError::io(Path::new(&program)))?,
        })
    }

    /// Waits for the one line of JSON on stdout.
    ///
    /// # Errors
    /// The child ends before it is ready, is not ready in time, or prints another line.
    pub fn ready<R: DeserializeOwned>(mut self, limit: Duration, interrupt: &Interrupt) -> Result<(Self, R), RunError> {
        let line = self.ready_line(limit, interrupt)?;
        match serde_json::from_str(&line) {
            Ok(ready) => Ok((self, ready)),
            Err(_) => Err(self.failure(&format!("printed `{}` instead of its ready line", line.trim_end()))),
        }
    }

    fn ready_line(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<String, RunError> {
        let Some(stdout) = self.process.stdout.take() else {
            return Err(self.failure("has no stdout"));
        };
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
            // Drains the pipe for as long as the child writes.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        let deadline = Instant::now() + limit;
        loop {
            match receiver.recv_timeout(CHECK_EVERY) {
                Ok(line) if !line.is_empty() => return Ok(line),
                Err(RecvTimeoutError::Timeout) if interrupt.is_raised() => return Err(RunError::InterruptedEarly),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.failure(&format!("was not ready within {} s", limit.as_secs())));
                }
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    let status = self.wait_until(Instant::now() + Duration::from_secs(1));
                    return Err(self.failure(&format!("ended before it was ready{}", describe_exit(status))));
                }
            }
        }
    }

    /// Checks that the child still runs.
    ///
    /// # Errors
    /// The child has ended; the message holds its exit status and the end of its log.
    pub fn check(&mut self) -> Result<(), RunError> {
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            Ok(status) => Err(self.failure(&format!("ended while it was needed{}", describe_exit(status)))),
            Err(error) => Err(self.failure(&format!("cannot be watched: {error}"))),
        }
    }

    fn failure(&self, problem: &str) -> RunError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n  ");
        let end = match tail.as_str() {
            "" => String::new(),
            tail => format!(":\n  {tail}"),
        };
        RunError::Failed(format!("{} {problem} (log: {}){end}", self.label, self.log.display()))
    }

    fn wait_until(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
                _ => return None,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Its process group has its own id, which the system does not reuse before the process is reaped.
        if let Ok(id) = i32::try_from(self.process.id()) {
            let _ = killpg(Pid::from_raw(id), signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal(Signal::SIGTERM);
        if self.wait_until(Instant::now() + STOP_LIMIT).is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.process.wait();
        }
    }
}

/// Runs a program to its end, with its output on stderr.
///
/// # Errors
/// The program cannot be started or fails, or the run is interrupted, which ends the program.
pub fn run_to_end(label: &str, command: Command, interrupt: &Interrupt) -> Result<(), RunError> {
    // The program's output is progress of this command, not its result.
    run(label, command, std::io::stderr().into(), interrupt)
}

/// Runs a program like [`run_to_end`], and returns its output.
///
/// # Errors
/// Those of [`run_to_end`].
pub fn output_of(label: &str, command: Command, interrupt: &Interrupt) -> Result<String, RunError> {
    let read_error = |error: std::io::Error| RunError::Failed(format!("{label}: cannot read its output: {error}"));
    let mut printed = tempfile::tempfile().map_err(read_error)?;
    let stdout = printed.try_clone().map_err(read_error)?;
    run(label, command, stdout.into(), interrupt)?;
    let mut text = String::new();
    printed.rewind().map_err(read_error)?;
    printed.read_to_string(&mut text).map_err(read_error)?;
    Ok(text)
}

fn run(label: &str, mut command: Command, stdout: Stdio, interrupt: &Interrupt) -> Result<(), RunError> {
    command.stdin(Stdio::null()).stdout(stdout);
    let mut child = Child::begin(label, command, Path::new(""))?;
    loop {
        match child.wait_until(Instant::now() + CHECK_EVERY) {
            Some(status) if status.success() => return Ok(()),
            status @ Some(_) => return Err(RunError::Failed(format!("{label} failed{}", describe_exit(status)))),
            None if interrupt.is_raised() => return Err(RunError::InterruptedEarly),
            None => {}
        }
    }
}

/// Ends children together: all are signalled first, then waited for.
pub fn stop_all(children: Vec<Child>) {
    for child in &children {
        child.signal(Signal::SIGTERM);
    }
    drop(children);
}

fn describe_exit(status: Option<ExitStatus>) -> String {
    status.map_or_else(String::new, |status| format!(" {}", describe_status(status)))
}

/// Returns the path of a program of this project: beside the load generator's own executable, or in `folder`.
///
/// # Errors
/// The program does not exist; the message says how to build it.
pub fn program(folder: Option<&Path>, name: &str) -> Result<PathBuf, RunError> {
    let path = match folder {
        Some(folder) => folder.join(name),
        None => std::env::current_exe().unwrap_or_default().with_file_name(name),
    };
    if path.is_file() {
        return Ok(path);
    }
    let problem = "program does not exist; build it with `make build`, or pass its folder by --bin-dir";
    Err(RunError::about(&path, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    fn start(script: &str, limit: Duration) -> Result<(Child, serde_json::Value), RunError> {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        Child::spawn("the test's child", shell(script), &log)?.ready(limit, &Interrupt::never())
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_ready_child_is_ended_when_dropped() {
        let (mut child, ready) = start("echo '{\"listen\":\"here\"}'; exec sleep 600", LONG).unwrap();
        assert_eq!(ready["listen"], "here");
        child.check().unwrap();
        let id = Pid::from_raw(child.process.id() as i32);
        drop(child);
        assert!(nix::sys::signal::kill(id, None).is_err());
    }

    #[test]
    fn a_child_that_is_not_ready_says_why() {
        for (script, limit, expected) in [
            ("echo no port >&2; exit 3", LONG, "exit code 3"),
            ("echo no port >&2; exit 3", LONG, "no port"),
            ("echo hello; exec sleep 600", LONG, "printed `hello`"),
            ("exec sleep 600", Duration::from_millis(100), "not ready within"),
        ] {
            let error = start(script, limit).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("the test's child"), "{error}");
        }
    }

    #[test]
    fn a_child_that_died_is_noticed() {
        let (mut child, _) = start("echo '{}'; kill -9 $$", LONG).unwrap();
        assert!(child.wait_until(Instant::now() + LONG).is_some());
        assert!(child.check().unwrap_err().to_string().contains("signal 9"));
    }

    #[test]
    fn a_program_that_fails_is_named_with_its_code() {
        let run = |script| run_to_end("the test's program", shell(script), &Interrupt::never());
        assert!(run("exit 0").is_ok());
        let error = run("exit 7").unwrap_err().to_string();
        assert!(error.contains("the test's program failed with exit code 7"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named_with_what_to_do() {
        let error = program(Some(Path::new("/no/such")), "tierlab-origin")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/no/such/tierlab-origin") && error.contains("make build"),
            "{error}"
        );
    }
}
