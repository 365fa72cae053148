//! Uploads that are broken off: by the same bytes again they go on, and otherwise they are cleared away.

use super::{Store, open};
use crate::path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, Tier};

const SIZE: u64 = 48 << 20;

/// Breaks an upload off after some windows, and sets the time of its last step to the beginning of all times.
async fn broken_off(store: &Store, tier: &Arc<dyn Tier>, body: &Body) -> u64 {
    let path = path("big");
    let put = tier.put(&path, body.clone());
    let watch = async {
        loop {
            let records: Vec<String> = store.query(&["HVALS", "{tierlab}:unfinished"]);
            let done = records
                .first()
                .and_then(|record| record.split(' ').nth(1)?.parse().ok());
            if let Some(done) = done.filter(|done: &u64| *done > 20) {
                return done;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = put => panic!("the upload was faster"),
        _ = watch => {}
    }
    // The last window may still arrive.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let entry: Vec<String> = store.query(&["HGETALL", "{tierlab}:unfinished"]);
    let (_, rest) = entry[1].split_once(' ').unwrap();
    store.query::<()>(&["HSET", "{tierlab}:unfinished", &entry[0], &format!("1 {rest}")]);
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_bytes_go_on_and_others_clear_away() {
    let store = Store::start(&[]);
    let tier = open(&store.url(), "").await;
    let body = Body::Bytes(content(1, 0..SIZE).into());
    let done = broken_off(&store, &tier, &body).await;
    assert_eq!(tier.stat(&path("big")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let first: Vec<String> = store.query(&["KEYS", "tierlab:*:0"]);
    store.query::<()>(&["DEL", &first[0]]);
    let object = tier.put(&path("big"), body).await.unwrap();
    // The chunks that were there already are not written again.
    assert_eq!(tier.read(&object, 0..1).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let rest = (done - 1) * (512 << 10)..SIZE;
    assert_eq!(tier.read(&object, rest.clone()).await.unwrap().bytes, content(1, rest));
    tier.delete(&object.path).await.unwrap();
    assert_eq!(store.query::<u64>(&["DBSIZE"]), 0);

    let body = Body::Bytes(content(2, 0..SIZE).into());
    broken_off(&store, &tier, &body).await;
    crate::put(&tier, "other", 1, 10).await;
    // The object, and the hash of all objects.
    assert_eq!(store.query::<u64>(&["DBSIZE"]), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_of_the_same_bytes_that_another_publisher_finishes_is_taken() {
    let store = Store::start(&[]);
    let body = Body::Bytes(content(3, 0..SIZE).into());
    broken_off(&store, &open(&store.url(), "").await, &body).await;
    // Not idle, by a clock that is ahead.
    let entry: Vec<String> = store.query(&["HGETALL", "{tierlab}:unfinished"]);
    let (id, rest) = (&entry[0], entry[1].strip_prefix("1 ").unwrap());
    store.query::<()>(&["HSET", "{tierlab}:unfinished", id, &format!("99999999999 {rest}")]);
    // Connections of the first publisher.
    store.query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    let second = open(&store.url(), "").await;
    let put = tokio::spawn(async move { second.put(&path("big"), body).await });
    // The second publisher has seen the upload.
    while !store.query::<String>(&["CLIENT", "LIST"]).contains("cmd=hscan") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mark = rest.split(' ').nth(2).unwrap();
    store.query::<()>(&["HSET", "{tierlab}:objects", "big", mark]);
    store.query::<()>(&["HDEL", "{tierlab}:unfinished", id]);
    assert_eq!(put.await.unwrap().unwrap().version, mark);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_publishers_leave_one_whole_object() {
    let store = Store::start(&[]);
    let tiers = [open(&store.url(), "").await, open(&store.url(), "").await];
    let puts = (0..16).map(|i| {
        let (tier, size) = (tiers[i as usize % 2].clone(), 1_000_000 + i * 7);
        tokio::spawn(async move { tier.put(&path("raced"), Body::Bytes(content(i, 0..size).into())).await })
    });
    for put in puts.collect::<Vec<_>>() {
        put.await.unwrap().unwrap();
    }
    let object = tiers[0].stat(&path("raced")).await.unwrap();
    let seed = (object.size - 1_000_000) / 7;
    let whole = tiers[1].read(&object, 0..object.size).await.unwrap();
    assert_eq!(whole.bytes, content(seed, 0..object.size));
    // Two chunks, and the hash of all objects.
    assert_eq!(store.query::<u64>(&["DBSIZE"]), 3);
}

const LARGE: u64 = 256 << 20;
/// Names the store to the child.
const STORE: &str = "TIERLAB_TEST_REDIS";

#[tokio::test]
#[ignore = "a process of its own, started by the test below"]
async fn child() {
    let tier = open(&std::env::var(STORE).unwrap(), "").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large");
    std::fs::File::create(&file).unwrap().set_len(LARGE).unwrap();
    let object = tier.put(&path("large"), Body::File(file)).await.unwrap();
    assert_eq!(object.size, LARGE);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("PEAK {}", peak.trim().trim_end_matches(" kB"));
}

#[test]
fn an_upload_takes_the_memory_of_some_windows() {
    let store = Store::start(&[]);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "redis::uploads::child", "--nocapture"])
        .env(STORE, store.url())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&child.stdout);
    let peak = stdout
        .lines()
        .find_map(|line| line.split_once("PEAK ")?.1.parse::<u64>().ok());
    let peak = peak.unwrap_or_else(|| panic!("{stdout}\n{}", String::from_utf8_lossy(&child.stderr))) * 1024;
    // A window is 8 MiB, and is copied on its way; the rest is the program.
    assert!(peak < LARGE / 2, "{peak} bytes resident");
}
