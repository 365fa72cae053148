//! Faults between tier and server: no wrong byte, errors that name the object, and reads that succeed again with the
//! same tier once the fault is gone.

use super::harness::{Served, connect, header, process, relay, row, stat, table, write};
use crate::wait;
use futures::future::join_all;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tierlab_storage::ErrorKind;
use tokio::net::TcpListener;

/// Part of a table's file.
fn part(file: &[u8], range: Range<u64>) -> &[u8] {
    &file[range.start as usize..range.end as usize]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_mid_run_is_a_pause() {
    let root = tempfile::tempdir().unwrap();
    let file = table(&header(6000, 0), 1);
    write(root.path(), &file);
    let (origin, address) = process(root.path(), "127.0.0.1:0");
    let url = format!("grpc://{address}");
    let tier = connect(
        &url,
        "retries = 40\ntimeout_ms = 20000\nconnections = 2\npart_bytes = 500000",
    )
    .await
    .unwrap();
    let object = stat(&tier).await;
    let (stop, done, retries) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let reader = async |seed: u64| {
        let mut at = seed * 7919;
        while !stop.load(Ordering::Relaxed) {
            at = (at + 123_457) % (object.size - 1_300_000);
            let len = if seed.is_multiple_of(2) { 4096 } else { 1_300_000 };
            let read = tier.read(&object, at..at + len).await.unwrap();
            assert!(read.bytes == part(&file, at..at + len), "wrong bytes at {at}");
            done.fetch_add(1, Ordering::Relaxed);
            retries.fetch_add(u64::from(read.cost.retries), Ordering::Relaxed);
        }
    };
    let killer = async {
        let mut origin = origin;
        for _ in 0..3 {
            let before = done.load(Ordering::Relaxed);
            wait(|| done.load(Ordering::Relaxed) > before + 20).await;
            drop(origin);
            tokio::time::sleep(Duration::from_millis(50)).await;
            let before = (done.load(Ordering::Relaxed), retries.load(Ordering::Relaxed));
            origin = process(root.path(), &address.to_string()).0;
            wait(|| retries.load(Ordering::Relaxed) > before.1 && done.load(Ordering::Relaxed) > before.0 + 20).await;
        }
        stop.store(true, Ordering::Relaxed);
        origin
    };
    let _origin = futures::join!(killer, join_all((0..6).map(reader))).0;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_is_an_error_and_comes_back() {
    let root = tempfile::tempdir().unwrap();
    let file = table(&header(20, 0), 1);
    write(root.path(), &file);
    let (origin, address) = process(root.path(), "127.0.0.1:0");
    let tier = connect(&format!("grpc://{address}"), "retries = 1").await.unwrap();
    let object = stat(&tier).await;
    drop(origin);
    let error = tier.read(&object, 0..object.size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in ["features/ctr.rows", "after 2 attempts", &address.to_string()] {
        assert!(error.to_string().contains(word), "`{word}` in: {error}");
    }
    let _origin = process(root.path(), &address.to_string());
    assert_eq!(tier.read(&object, 0..object.size).await.unwrap().bytes, file);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_stall_or_damage_a_reply_are_replaced() {
    let served = Served::new().await;
    let file = table(&header(8000, 0), 1);
    served.write(&file);
    for faults in [[5, 0, 0], [0, 2, 0], [0, 0, 3]] {
        // Inside the body of a reply.
        let (address, opened) = relay(served.address, 500_000, faults).await;
        let more = "connections = 2\ntimeout_ms = 9000\nattempt_ms = 400\nretries = 12";
        let tier = connect(&format!("grpc://{address}"), more).await.unwrap();
        let object = stat(&tier).await;
        let ranges: Vec<_> = (0..40_u64).map(|i| i * 50_000..i * 50_000 + 70_001).collect();
        let (large, small) = futures::join!(tier.read(&object, 0..object.size), tier.read_many(&object, &ranges));
        let (large, small) = (large.unwrap(), small.unwrap());
        assert!(large.bytes == file);
        for (range, bytes) in ranges.into_iter().zip(small.parts) {
            assert!(bytes == part(&file, range));
        }
        assert!(large.cost.retries + small.cost.retries > 0, "{faults:?}");
        assert!(opened.load(Ordering::Relaxed) > 2, "{faults:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_a_timeout() {
    // Accepts in its backlog and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc://{}", silent.local_addr().unwrap());
    let more = "attempt_ms = 100\nretries = 2\ntimeout_ms = 1000";
    let error = connect(&url, more).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_replaced_while_it_streams_is_an_error_and_never_a_mix() {
    let served = Served::new().await;
    let header = header(40_000, 0);
    let files: Vec<_> = (0..7).map(|seed| table(&header, seed)).collect();
    served.write(&files[0]);
    let tier = served
        .tier("part_bytes = 33554432\nranges_per_request = 40000\ntimeout_ms = 20000")
        .await;
    let (mut seen, mut changed) = (0, 0);
    for round in 0..6_usize {
        let old = stat(&tier).await;
        let replace = async {
            tokio::time::sleep(Duration::from_millis(5 * round as u64)).await;
            tokio::task::block_in_place(|| served.write(&files[round + 1]));
        };
        let (read, ()) = futures::join!(tier.read(&old, 0..old.size), replace);
        match read {
            Ok(read) => {
                assert!(read.bytes == files[round], "a mix");
                seen += 1;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Changed, "{e}");
                changed += 1;
            }
        }
        let late = tier.read(&old, old.size - 10..old.size).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Changed);
        changed += 1;
    }
    assert!(seen + changed >= 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_is_never_taken_for_a_good_one() {
    let served = Served::new().await;
    let header = header(500, 0);
    let mut file = table(&header, 1);
    let at = usize::try_from(header.row_range(77).unwrap().start).unwrap();
    file[at + 20] ^= 4;
    served.write(&file);
    // Typed columns have no checksum of the row, so the server refuses, by entity, and serves the others.
    let tier = served.tier("").await;
    let object = stat(&tier).await;
    let read = async |id| tier.read(&object, header.row_range(id).unwrap()).await;
    let error = read(77).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(
        error.to_string().contains("entity 77") && error.to_string().contains("ctr.rows"),
        "{error}"
    );
    assert_eq!(read(78).await.unwrap().bytes, row(&header, 1, 78));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_above_the_limit_is_refused_with_the_key_to_raise() {
    let served = Served::new().await;
    let file = table(&header(6000, 0), 1);
    served.write(&file);
    let tier = served.tier("max_message_bytes = 200000").await;
    let object = stat(&tier).await;
    let error = tier.read(&object, 0..object.size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("max_message_bytes"), "{error}");
    assert!(tier.read(&object, 5..100_000).await.unwrap().bytes == part(&file, 5..100_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_go_away_leave_no_trace() {
    let served = Served::new().await;
    let tier = served.tier("connections = 1\nconcurrency = 4").await;
    let file = table(&header(4000, 0), 1);
    served.write(&file);
    let object = stat(&tier).await;
    let mut dropped = 0;
    for round in 0..2000_u64 {
        let at = round * 977 % (object.size - 200_000);
        let len = if round.is_multiple_of(8) { 200_000 } else { 512 };
        let mut read = std::pin::pin!(tier.read(&object, at..at + len));
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
            assert!(read.bytes == part(&file, at..at + 5000));
            assert_eq!(read.cost.retries, 0, "the connection held");
        }
    }
    assert!(dropped > 1000);
}
