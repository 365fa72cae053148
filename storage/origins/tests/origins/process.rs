//! The real `tierlab-origin` as a child process: started on free ports, killed by its own handle when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A running origin.
pub(crate) struct Origin {
    child: Child,
    /// JSON line that the origin printed when ready.
    pub(crate) ready: serde_json::Value,
}

impl Origin {
    /// Starts an origin with these arguments and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tierlab-origin"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the origin starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the origin prints a line");
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("not JSON: {line:?}: {e}"));
        Self { child, ready }
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
        let sent = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.expect("kill runs").success());
        self.child.wait().expect("the origin ends")
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // Both fail only if the child has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have UTF-8 names")
}
