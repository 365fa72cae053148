//! The key-value tier with Debian's redis-server: alone, as a cluster, with TLS, and when things go wrong.

mod cluster;
mod conform;
mod faults;
mod secure;
mod uploads;

use crate::conformance::Suite;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tierlab_storage::{StorageError, Tier, TierConfig};

/// A redis-server on a free port of the loopback, without files.
struct Store {
    child: Child,
    port: u16,
    /// Its folder, which holds the description of a cluster.
    _folder: TempDir,
}

impl Store {
    fn start(more: &[&str]) -> Self {
        Self::start_on(free_port(), more)
    }

    fn start_on(port: u16, more: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.runtime/redis/redis-server");
        let folder = tempfile::tempdir().unwrap();
        // Plain connections have no port if TLS has it.
        let plain = if more.contains(&"--tls-port") {
            "0".to_owned()
        } else {
            port.to_string()
        };
        let more = more.iter().map(|word| word.replace("PORT", &port.to_string()));
        let child = Command::new(&program)
            .args([
                "--port",
                &plain,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--loglevel",
                "warning",
            ])
            .args(more)
            .arg("--dir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}: run scripts/setup redis", program.display()));
        let store = Self {
            child,
            port,
            _folder: folder,
        };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return store;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not listen on port {port}");
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The reply to a command, past the tier.
    fn query<T: redis::FromRedisValue>(&self, arguments: &[&str]) -> T {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(arguments[0]);
        arguments[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut connection).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Both fail only if the child has already ended, which is the goal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

async fn try_open(url: &str, more: &str) -> Result<Arc<dyn Tier>, StorageError> {
    let document = format!("kind = \"redis\"\nurl = \"{url}\"\n{more}");
    tierlab_storage::open(&TierConfig::parse("test", &document)?).await
}

async fn open(url: &str, more: &str) -> Arc<dyn Tier> {
    try_open(url, more).await.unwrap()
}

/// Runs the conformance suite in a folder of its own.
async fn conforms(tier: Arc<dyn Tier>, folder: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier,
        folder: crate::path(folder),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}
