//! Faults between the NFS tier and the embedded origin: killed servers, cut connections, lost files, abandoned reads.
//! No wrong byte, and reads succeed again with the same tier.

use super::readers::Readers;
use super::{open, served, url};
use crate::{path, put};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tierlab_storage::ErrorKind;
use tierlab_storage::content::content;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_mid_run_is_a_pause() {
    let root = tempfile::tempdir().unwrap();
    let (origin, address) = served(root.path(), "127.0.0.1:0");
    let tier = open(&url(address), "connections = 2\ntimeout_ms = 20000").await;
    let size = 3 << 20;
    let object = put(&tier, "a/b/o", 1, size).await;
    let readers = Readers::new(tier, object, 1, 1_300_000);
    let killer = async {
        let mut origin = Some(origin);
        for _ in 0..3 {
            readers.are_busy().await;
            let again = async || {
                drop(origin.take());
                tokio::time::sleep(Duration::from_millis(50)).await;
                // Its handles belong to this process: cached handles of the previous one are stale.
                origin = Some(served(root.path(), &address.to_string()).0);
            };
            readers.recover(again).await;
        }
        origin
    };
    let _origin = readers.during(6, killer).await;
}

/// Passes bytes on in both directions. The first `cuts` connections are closed once they have brought `after` bytes of
/// replies; the next `stalls` go silent instead.
async fn relay(to: SocketAddr, after: usize, cuts: usize, stalls: usize) -> (SocketAddr, Arc<AtomicUsize>) {
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
                    let passed = if faulty { read.min(left) } else { read };
                    if to_client.write_all(&buffer[..passed]).await.is_err() {
                        break;
                    }
                    left -= passed.min(left);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_or_stalled_within_a_reply_are_replaced() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let size = 4 << 20;
    let object = put(&open(&url(address), "").await, "o", 1, size).await;
    for (cuts, stalls) in [(5, 0), (0, 3)] {
        // Enough for the mount, and for the first half of a large READ.
        let (address, opened) = relay(address, 500_000, cuts, stalls).await;
        let tier = open(&url(address), "connections = 2\ntimeout_ms = 3000").await;
        let ranges: Vec<_> = (0..40_u64).map(|i| i * 50_000..i * 50_000 + 70_001).collect();
        let (large, small) = futures::join!(tier.read(&object, 0..size), tier.read_many(&object, &ranges));
        let (large, small) = (large.unwrap(), small.unwrap());
        assert!(large.bytes == content(1, 0..size));
        for (range, part) in ranges.into_iter().zip(small.parts) {
            assert!(part == content(1, range));
        }
        assert!(large.cost.retries + small.cost.retries > 0);
        assert!(opened.load(Ordering::Relaxed) > cuts.max(stalls));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_go_away_leave_no_trace() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let tier = open(&url(address), "connections = 1").await;
    let size = 2 << 20;
    let object = put(&tier, "o", 1, size).await;
    let mut dropped = 0;
    for round in 0..2000_u64 {
        let at = round * 977 % (size - 200_000);
        let len = if round.is_multiple_of(8) { 200_000 } else { 512 };
        let read = tier.read(&object, at..at + len);
        let mut read = std::pin::pin!(read);
        // Polled a few times, so that it goes at every stage: queued, sent, partly received.
        for _ in 0..round % 5 {
            if futures::poll!(&mut read).is_ready() {
                break;
            }
            dropped += 1;
            tokio::task::yield_now().await;
        }
        if round.is_multiple_of(100) {
            let read = tier.read(&object, at..at + 5000).await.unwrap();
            assert!(read.bytes == content(1, at..at + 5000));
            assert_eq!(read.cost.retries, 0, "the connection held");
        }
    }
    assert!(dropped > 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_and_its_folder_made_anew_are_found_again() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let tier = open(&url(address), "").await;
    let old = put(&tier, "a/b/o", 1, 9000).await;
    std::fs::remove_dir_all(root.path().join("a")).unwrap();
    let gone = tier.read(&old, 0..9000).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    assert!(gone.to_string().contains("a/b/o"), "{gone}");
    std::fs::create_dir_all(root.path().join("a/b")).unwrap();
    std::fs::write(root.path().join("a/b/o"), content(2, 0..9000)).unwrap();
    assert_eq!(tier.read(&old, 0..9).await.unwrap_err().kind(), ErrorKind::Changed);
    let new = tier.stat(&path("a/b/o")).await.unwrap();
    assert_eq!(tier.read(&new, 0..9).await.unwrap().bytes, content(2, 0..9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbouring_ranges_are_read_as_one() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let tier = open(&url(address), "coalesce_bytes = 100").await;
    let object = put(&tier, "o", 1, 90_000).await;
    let ranges = [0..512, 512..1024, 1100..1200, 5000..5001, 5001..5001, 89_000..90_000];
    let read = tier.read_many(&object, &ranges).await.unwrap();
    for (range, part) in ranges.into_iter().zip(read.parts) {
        assert_eq!(part, content(1, range));
    }
    assert_eq!(read.cost.requests, 3);
}
