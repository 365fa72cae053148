//! Hostile storage: an NFS origin behind a proxy, with a damaged Parquet shard.
//!
//! The embedded origin serves a table whose page header has eight damaged bytes. The proxy passes on its replies, or sends
//! endless empty record fragments in their place.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tierlab_layouts::{Layout, Options};
use tierlab_models::lay_out::lay_out;
use tierlab_models::stop::Stop;
use tierlab_models::tables::{self, TableKind};
use tierlab_storage::TierConfig;

/// Rows of the table, in one shard.
const ROWS: u64 = 800;
/// Bytes inside of a page header of the shard; with them a decoder may not end.
const DAMAGE: [u8; 8] = [0, 0, 0, 0, 0, 1, 0, 0];
const DAMAGE_OFFSET: u64 = 21_014;
/// Maximum delay until a proxied connection sees the switch.
const POLL: Duration = Duration::from_millis(50);

/// NFS origin behind a proxy.
pub(crate) struct Storage {
    origin: Child,
    /// URL of the export at the proxy.
    pub(crate) url: String,
    /// If true, the proxy sends empty fragments in place of replies.
    pub(crate) is_flooding: Arc<AtomicBool>,
    _folder: TempDir,
}

impl Storage {
    pub(crate) fn start(binaries: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        write_table(folder.path())?;
        let binary = binaries.join("tierlab-origin");
        let mut origin = Command::new(&binary)
            .args(["--nfs-listen", "127.0.0.1:0", "--exit-with-parent", "--nfs-root"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| anyhow::anyhow!("{}: {error}; run `make build`", binary.display()))?;
        let mut line = String::new();
        if let Some(stdout) = origin.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let address = ready["nfs"].as_str().unwrap_or_default();
        let address = address.trim_start_matches("nfs://").trim_end_matches("/export");
        let is_flooding = Arc::new(AtomicBool::new(false));
        let proxy = proxy(address.to_owned(), Arc::clone(&is_flooding))?;
        Ok(Self {
            origin,
            url: format!("nfs://{proxy}/export"),
            is_flooding,
            _folder: folder,
        })
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let _ = self.origin.kill();
        let _ = self.origin.wait();
    }
}

/// Writes the table as Parquet and damages its shard.
fn write_table(root: &Path) -> anyhow::Result<()> {
    let features = root.join("features");
    tables::generate(TableKind::Ctr, ROWS, 1, &features, &Stop::never())?;
    let options = Options {
        layout: Layout::Parquet,
        shard_bytes: 1 << 20,
    };
    let config = TierConfig::parse("soak", &format!("kind = \"nvme\"\nroot = \"{}\"\n", root.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let tier = tierlab_storage::open(&config).await?;
        anyhow::Ok(lay_out((&features, &[]), &*tier, options, &Stop::never()).await?)
    })?;
    let shards = root.join(done[0].folder.as_str()).join(&done[0].manifest.version);
    let shard = OpenOptions::new().write(true).open(shards.join("000000.parquet"))?;
    anyhow::ensure!(
        shard.metadata()?.len() > DAMAGE_OFFSET,
        "the shard ends before the place to damage"
    );
    Ok(shard.write_all_at(&DAMAGE, DAMAGE_OFFSET)?)
}

/// Starts the proxy; returns its address.
fn proxy(origin: String, is_flooding: Arc<AtomicBool>) -> io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&origin) else {
                continue;
            };
            let is_flooding = Arc::clone(&is_flooding);
            if let (Ok(mut calls), Ok(mut to)) = (client.try_clone(), server.try_clone()) {
                std::thread::spawn(move || {
                    let _ = io::copy(&mut calls, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
            std::thread::spawn(move || {
                let _ = pass_replies(server, &client, &is_flooding);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    Ok(address)
}

/// Passes on replies until one side ends or the flood begins; a flood ends the connection.
fn pass_replies(mut server: TcpStream, mut client: &TcpStream, is_flooding: &AtomicBool) -> io::Result<()> {
    server.set_read_timeout(Some(POLL))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        if is_flooding.load(Ordering::Relaxed) {
            buffer.fill(0);
            while is_flooding.load(Ordering::Relaxed) {
                client.write_all(&buffer)?;
            }
            return server.shutdown(Shutdown::Both);
        }
        match server.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => client.write_all(&buffer[..count])?,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
}
