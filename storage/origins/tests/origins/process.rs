//! The real `tierlab-origin` and other servers as child processes, killed by their own handles when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A process that prints one line when ready.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a command, and returns it with its line.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        (Self(child), line)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has already ended, which is the goal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running origin.
pub(crate) struct Origin {
    process: Process,
    /// JSON line that the origin printed when ready.
    pub(crate) ready: serde_json::Value,
}

impl Origin {
    /// Starts an origin with these arguments and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let (process, line) = Process::start(Command::new(env!("CARGO_BIN_EXE_tierlab-origin")).args(arguments));
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not JSON: {line:?}: {e}"));
        Self { process, ready }
    }

    /// A string of the ready line.
    pub(crate) fn says(&self, key: &str) -> String {
        self.ready[key]
            .as_str()
            .unwrap_or_else(|| panic!("no `{key}` in {}", self.ready))
            .to_owned()
    }

    /// Sends a signal by name and waits for the end.
    pub(crate) fn signal(mut self, name: &str) -> ExitStatus {
        let child = &mut self.process.0;
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(child.id().to_string())
            .status();
        assert!(sent.expect("kill runs").success());
        child.wait().expect("the origin ends")
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have UTF-8 names")
}
