//! Independent servers as processes: started, waited for until they listen, and ended by their own handle.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The longest that a server may take to listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Peer {
    child: Child,
    pub(crate) endpoint: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only if the child has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Starts a server that prints its endpoint behind the words `says`; `setup` installs it.
    pub(crate) fn start(command: &mut Command, says: &'static str, setup: &str) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        let child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn();
        // The command holds the pipe's other end open for as long as it lives.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error} (if it is missing: run `{setup}`)"));
        let (sender, receiver) = mpsc::channel();
        // Reads to the end, so that the server never waits for its log to be read.
        std::thread::spawn(move || {
            let mut seen = String::new();
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if let Some((_, url)) = line.split_once(says) {
                    let _ = sender.send(Ok(url.trim().to_owned()));
                }
                if seen.len() < 10_000 {
                    seen.push_str(&line);
                    seen.push('\n');
                }
            }
            let _ = sender.send(Err(seen));
        });
        let mut peer = Self {
            child,
            endpoint: String::new(),
        };
        match receiver.recv_timeout(START_LIMIT) {
            Ok(Ok(endpoint)) => peer.endpoint = endpoint,
            Ok(Err(log)) => panic!("{command:?} ended: {log}\n(if something is missing: run `{setup}`)"),
            Err(_) => panic!("{command:?} does not listen after {START_LIMIT:?}"),
        }
        peer
    }
}

/// A path in the folder that scripts/setup fills.
pub(crate) fn runtime(path: &str, setup: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.runtime").join(path);
    assert!(path.exists(), "{} is missing: run `{setup}`", path.display());
    path
}

pub(crate) fn python() -> PathBuf {
    runtime("venv/bin/python", "scripts/setup python")
}

/// Runs a script of Python.
pub(crate) fn run(script: &str, arguments: &[&str]) {
    let output = Command::new(python()).args(["-c", script]).args(arguments).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "python: {} (if a module is missing: run `scripts/setup python`)",
        String::from_utf8_lossy(&output.stderr)
    );
}
