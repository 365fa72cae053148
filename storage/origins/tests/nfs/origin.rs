//! The embedded origin as a process of its own, killed when dropped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) struct Origin {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Origin {
    pub(crate) fn start(root: &Path, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tierlab-origin"))
            .args(["--nfs-listen", listen, "--exit-with-parent", "--nfs-root"])
            .arg(root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        let url = ready["nfs"].as_str().unwrap();
        let address = url.strip_prefix("nfs://").unwrap().strip_suffix("/export").unwrap();
        Self {
            child,
            address: address.parse().unwrap(),
        }
    }

    /// Ends it at once, without a goodbye.
    pub(crate) fn kill(&mut self) {
        // Both fail only for a child that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn url(&self) -> String {
        url(self.address)
    }
}

/// Export of an origin, or of a proxy in front of it.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("nfs://{address}/export")
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.kill();
    }
}
