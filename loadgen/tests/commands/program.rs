//! The real binary, started by tests: bounded in time, on port 0, ended by process id.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tierlab-loadgen");

/// Two loads of about half a second each, twice.
pub(crate) const PLAN: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 2\nwarmup_s = 0.1\nstep_s = 0.4\n\
    drain_s = 0.5\nmax_in_flight = 16\n[[load]]\nmode = \"realtime\"\nrates = [50]\n\
    [[load]]\nmode = \"batch\"\nbatch_sizes = [4]\nrates = [25]\n";

/// A null endpoint that ends with the test.
pub(crate) struct NullEndpoint {
    process: Child,
    pub(crate) url: String,
}

impl NullEndpoint {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts an endpoint with a script.
    pub(crate) fn with(script: &[&str]) -> Self {
        let mut process = Command::new(BINARY)
            .args(["null-endpoint", "--until-stdin-closes"])
            .args(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self {
            process,
            url: format!("http://{}", ready["listen"].as_str().unwrap()),
        }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for NullEndpoint {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder with a plan in it.
pub(crate) struct Workdir {
    pub(crate) folder: TempDir,
}

impl Workdir {
    pub(crate) fn new(plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plan.toml"), plan).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// `sweep` of the plan into `results/r`, which prints everything.
    pub(crate) fn sweep(&self, url: &str) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("sweep").arg(self.path("plan.toml")).args(["--url", url]);
        command.arg("--verbose");
        command.arg("--out").arg(self.path("results")).args(["--name", "r"]);
        // Nothing of the user's own, and nothing left there.
        command
            .env_remove("TIERLAB_CERTIFICATE")
            .env("XDG_STATE_HOME", self.path("state"));
        command
    }

    pub(crate) fn run_json(&self) -> Value {
        read_json(&self.path("results/r/run.json"))
    }
}

pub(crate) fn read_json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))).unwrap()
}

/// A command at its end.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(mut command: Command) -> Ended {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command, and does something once a line of its stderr contains `mark`.
pub(crate) fn run_until(mut command: Command, mark: &str, then: impl FnOnce(&Child)) -> Ended {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = read_until(&mut lines, mark);
    then(&child);
    lines.read_to_string(&mut stderr).unwrap();
    let output = child.wait_with_output().unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr,
    }
}

fn read_until(lines: &mut BufReader<ChildStderr>, mark: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "ended before it said `{mark}`: {all}"
        );
        all += &line;
        if line.contains(mark) {
            return all;
        }
    }
}

/// Sends the signal of Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
}

/// Kills the process, as the kernel does when memory runs out.
pub(crate) fn kill_at_once(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
}
