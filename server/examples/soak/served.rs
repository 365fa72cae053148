//! The server under attack: its data, its bounds, its process.

use crate::attacks::graphs;
use crate::storage::Storage;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::stop::Stop;

/// The model that honest clients ask; its folder holds nothing but the graph, so that each request runs by itself and its
/// answer is the same to the bit.
pub(crate) const MODEL: &str = "mlp";
/// A model whose runs do not end by themselves.
pub(crate) const ENDLESS: &str = "endless";
/// A model whose one operator takes long and cannot be interrupted.
pub(crate) const SLOW: &str = "slow";
/// A model whose features lie on hostile storage.
pub(crate) const JOINED: &str = "ctr";
/// Models that are not loaded at the start: one whose session takes without an end to build, one that takes much memory.
pub(crate) const NESTED: &str = "nested";
pub(crate) const CONSTANT: &str = "constant";
/// Memory that a load may take, in bytes; the constant takes more.
const LOAD_BYTES: u64 = 128 << 20;
/// The server is ready, and ends, within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// Limits of the server, small enough for attackers to reach them.
pub(crate) struct Bounds {
    pub(crate) max_buffered_bytes: u64,
    pub(crate) connections: u64,
    /// For a request, for a head, and for the progress of a reply.
    timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_buffered_bytes: 256 << 20,
            connections: 512,
            timeout: Duration::from_secs(3),
        }
    }
}

/// A running server.
pub(crate) struct Served {
    child: Child,
    /// Address of HTTP.
    pub(crate) address: String,
    pub(crate) grpc_address: String,
    /// Storage of the features.
    pub(crate) storage: Storage,
    _data: TempDir,
}

impl Served {
    pub(crate) fn start(binaries: &Path, bounds: &Bounds) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        write_models(&data.path().join("models"))?;
        let storage = Storage::start(binaries)?;
        let timeout_ms = bounds.timeout.as_millis();
        let binary = binaries.join("tierlab-server");
        let mut command = Command::new(&binary);
        command.args(["--config", "configs/server.toml", "--listen", "127.0.0.1:0"]);
        command.args(["--grpc-listen", "127.0.0.1:0", "--exit-with-parent"]);
        command.args(["--model-tier", "memory", "--feature-tier", "nfs"]);
        for set in [
            format!("tiers.nfs.url={}", storage.url),
            "features.layout=parquet".to_owned(),
            "cache.capacity_bytes=0".to_owned(),
            format!("tiers.memory.root={}", data.path().display()),
            format!("admission.max_buffered_bytes={}", bounds.max_buffered_bytes),
            format!("admission.timeout_ms={timeout_ms}"),
            format!("connections.max={}", bounds.connections),
            format!("connections.header_timeout_ms={timeout_ms}"),
            format!("connections.write_timeout_ms={timeout_ms}"),
            "repository.control=explicit".to_owned(),
            format!("models=[\"{MODEL}\", \"{ENDLESS}\", \"{SLOW}\", \"{JOINED}\"]"),
            format!("runtime.load_timeout_ms={timeout_ms}"),
            format!("runtime.max_load_bytes={LOAD_BYTES}"),
            "admin.enabled=true".to_owned(),
        ] {
            command.args(["--set", &set]);
        }
        let log = File::create(data.path().join("log"))?;
        let mut child = command
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| anyhow::anyhow!("{}: {error}; run `make build`", binary.display()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let Ok(ready) = serde_json::from_str::<serde_json::Value>(&line) else {
            let log_text = fs::read_to_string(data.path().join("log"))?;
            anyhow::bail!("the server did not start: {log_text}");
        };
        let address = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            child,
            address: address("listen"),
            grpc_address: address("grpc_listen"),
            storage,
            _data: data,
        })
    }

    /// The most memory that the process ever had, in bytes.
    pub(crate) fn peak_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line
            .and_then(|line| line.split_whitespace().next())
            .unwrap_or("")
            .parse()?;
        Ok(kib << 10)
    }

    /// Stops the server; true if it ends with exit code 0.
    pub(crate) fn end(mut self) -> anyhow::Result<bool> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_models(repository: &Path) -> anyhow::Result<()> {
    for kind in [ModelKind::Mlp, ModelKind::Ctr] {
        let request = Request {
            kind,
            size: Size::Small,
            seed: 1,
        };
        tierlab_models::repository::write_generated(repository, &request, &Stop::never())?;
    }
    let config = repository.join(MODEL).join("config.toml");
    if config.exists() {
        fs::remove_file(config)?;
    }
    for (name, graph) in [
        (ENDLESS, graphs::loops(0.0)),
        (SLOW, graphs::compares()),
        (NESTED, graphs::nested(30)),
        (CONSTANT, graphs::constant(8 << 30)),
    ] {
        let folder = repository.join(name).join("1");
        fs::create_dir_all(&folder)?;
        tierlab_models::onnx::write_model(&graph, &mut File::create(folder.join("model.onnx"))?)?;
    }
    Ok(())
}
