//! Shared parts of the tests: a served folder, a tier that reads it, a small feature table, a relay that breaks.

use crate::path;
use crate::process::{Origin, text};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tierlab_formats::table::{TableHeader, TableSchema};
use tierlab_origins::flight::FlightOrigin;
use tierlab_protocol::tensor::DataType;
use tierlab_storage::{Object, StorageError, Tier, TierConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A folder served in this process, until dropped.
pub(crate) struct Served {
    pub(crate) root: TempDir,
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Served {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let origin = FlightOrigin::open(root.path()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(origin.serve(listener, async {
            let _ = stopped.await;
        }));
        Self {
            root,
            address,
            _stop: stop,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// Puts a file in the place of the table `ctr`.
    pub(crate) fn write(&self, file: &[u8]) {
        write(self.root.path(), file);
    }

    pub(crate) async fn tier(&self, more: &str) -> Arc<dyn Tier> {
        connect(&self.url(), more).await.unwrap()
    }
}

/// Puts a file in the place of the table `ctr` below a root.
pub(crate) fn write(root: &Path, file: &[u8]) {
    let features = root.join("features");
    std::fs::create_dir_all(&features).unwrap();
    std::fs::write(features.join("new"), file).unwrap();
    std::fs::rename(features.join("new"), features.join("ctr.rows")).unwrap();
}

/// Looks up the table `ctr`.
pub(crate) async fn stat(tier: &Arc<dyn Tier>) -> Object {
    tier.stat(&path("features/ctr.rows")).await.unwrap()
}

pub(crate) async fn connect(url: &str, more: &str) -> Result<Arc<dyn Tier>, StorageError> {
    let document = format!("kind = \"flight\"\nurl = \"{url}\"\n{more}");
    tierlab_storage::open(&TierConfig::parse("test", &document).unwrap()).await
}

/// The real origin over a folder, and its address.
pub(crate) fn process(root: &Path, listen: &str) -> (Origin, SocketAddr) {
    let arguments = [
        "--flight-listen",
        listen,
        "--exit-with-parent",
        "--flight-root",
        text(root),
    ];
    let origin = Origin::start(&arguments);
    let address = origin.says("flight").strip_prefix("grpc://").unwrap().parse().unwrap();
    (origin, address)
}

/// A feature table with every kind of column, its header as the tier shows it: blocks have no checksums.
pub(crate) fn header(rows: u64, first_id: i64) -> TableHeader {
    let columns: [(&str, DataType, &[i64]); 6] = [
        ("dense", DataType::Fp32, &[13]),
        ("ids", DataType::Int64, &[26]),
        ("label", DataType::Uint8, &[]),
        ("half", DataType::Fp16, &[4]),
        ("flags", DataType::Bool, &[3]),
        ("image", DataType::Uint8, &[2, 3, 4]),
    ];
    TableHeader::without_blocks(TableSchema::lay_out("ctr", &columns).unwrap(), rows, first_id).unwrap()
}

/// The value of a byte of a row; booleans are 0 and 1, halves and floats small whole numbers.
pub(crate) fn row(header: &TableHeader, seed: u64, id: i64) -> Vec<u8> {
    let mut row = vec![0; header.stride as usize];
    for column in &header.schema.columns {
        let (from, len) = (column.offset as usize, column.byte_len().unwrap());
        let into = &mut row[from..from + len];
        let value = |i: usize| (seed.wrapping_mul(31) as i64 + id * 7 + i as i64).rem_euclid(100);
        match column.dtype {
            DataType::Fp32 => into
                .chunks_exact_mut(4)
                .enumerate()
                .for_each(|(i, out)| out.copy_from_slice(&(value(i) as f32).to_le_bytes())),
            DataType::Int64 => into
                .chunks_exact_mut(8)
                .enumerate()
                .for_each(|(i, out)| out.copy_from_slice(&value(i).to_le_bytes())),
            // Halves from 1.0 up to just under 2.0: sign and exponent are fixed.
            DataType::Fp16 => into
                .chunks_exact_mut(2)
                .enumerate()
                .for_each(|(i, out)| out.copy_from_slice(&(0x3C00 + value(i) as u16).to_le_bytes())),
            DataType::Bool => into
                .iter_mut()
                .enumerate()
                .for_each(|(i, out)| *out = (value(i) % 2) as u8),
            _ => into.iter_mut().enumerate().for_each(|(i, out)| *out = value(i) as u8),
        }
    }
    header.seal_row(id, &mut row);
    row
}

/// The table's file.
pub(crate) fn table(header: &TableHeader, seed: u64) -> Vec<u8> {
    let mut header = header.clone();
    let rows: Vec<u8> = header.ids().flat_map(|id| row(&header, seed, id)).collect();
    if header.rows_per_block > 0 {
        let block = header.rows_per_block as usize * header.stride as usize;
        header.block_crcs = rows.chunks(block).map(crc32c::crc32c).collect();
    }
    [header.encode(), rows].concat()
}

/// Relays bytes in both directions. The first `cuts` connections are closed after `after` bytes of replies. The next
/// `stalls` connections go silent instead, and the next `flips` carry one wrong byte there.
pub(crate) async fn relay(
    to: SocketAddr,
    after: usize,
    [cuts, stalls, flips]: [usize; 3],
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, opened) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counter = opened.clone();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let number = counter.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let server = TcpStream::connect(to).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let calls = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let (mut buffer, mut left) = (vec![0; 16 << 10], after);
                while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                    let faulty = number < cuts + stalls;
                    let flipping = !faulty && number < cuts + stalls + flips;
                    if flipping && left < read && left > 0 {
                        buffer[left] ^= 0x10;
                    }
                    let passed = if faulty { read.min(left) } else { read };
                    if to_client.write_all(&buffer[..passed]).await.is_err() {
                        break;
                    }
                    left -= read.min(left);
                    if faulty && left == 0 {
                        if number >= cuts {
                            std::future::pending::<()>().await;
                        }
                        break;
                    }
                }
                calls.abort();
            });
        }
    });
    (address, opened)
}
