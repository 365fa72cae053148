//! Servers with unusual answers: "try later" leads to a wait, and the sizes of FSINFO are respected, even odd sizes.

use super::proxy::{Verdict, proxy};
use super::{open, served, url};
use crate::{path, put};
use nfs3_types::nfs3::{NFS_PROGRAM, nfsstat3};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tierlab_storage::ErrorKind;
use tierlab_storage::content::content;

/// The result of a failed call: the status, and no attributes, of which procedures have up to two.
fn failed(status: nfsstat3) -> Vec<u8> {
    [status as u32, 0, 0].map(u32::to_be_bytes).concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_put_off_are_made_again() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let times = Mutex::new(HashMap::<u32, u32>::new());
    // The first call of each procedure, and every ninth after it.
    let address = proxy(address, move |procedure| {
        let mut times = times.lock().unwrap();
        let time = times.entry(procedure).or_default();
        *time += 1;
        match *time % 9 {
            1 => Verdict::Answer(failed(nfsstat3::NFS3ERR_JUKEBOX)),
            _ => Verdict::Pass,
        }
    })
    .await;
    let tier = open(&url(address), "timeout_ms = 20000").await;
    let size = 3 << 20;
    let object = put(&tier, "a/o", 1, size).await;
    let read = tier.read(&object, 5..size - 5).await.unwrap();
    assert!(read.bytes == content(1, 5..size - 5));
    let ranges: Vec<_> = (0..50_u64).map(|i| i * 9000..i * 9000 + 4096).collect();
    let many = tier.read_many(&object, &ranges).await.unwrap();
    for (range, part) in ranges.into_iter().zip(many.parts) {
        assert!(part == content(1, range));
    }
    assert!(
        read.cost.retries + many.cost.retries >= 5,
        "{:?} {:?}",
        read.cost,
        many.cost
    );
    assert_eq!(tier.list(None).await.unwrap(), [object]);
    tier.delete(&path("a/o")).await.unwrap();
    assert!(!root.path().join("a/o").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn putting_off_for_ever_ends_at_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let put_off = |procedure| match procedure == NFS_PROGRAM::NFSPROC3_READ as u32 {
        true => Verdict::Answer(failed(nfsstat3::NFS3ERR_JUKEBOX)),
        false => Verdict::Pass,
    };
    let tier = open(&url(proxy(address, put_off).await), "timeout_ms = 700").await;
    let object = put(&tier, "o", 1, 9000).await;
    let began = Instant::now();
    let error = tier.read(&object, 0..100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("JUKEBOX"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(300), "it was waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sizes_of_fsinfo_are_kept_to() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let size = 100_000;
    put(&open(&url(address), "").await, "o", 1, size).await;
    // Size offered by the server, and the resulting size of a READ.
    for (offered, used) in [
        (8192_u32, 8192),
        (1001, 1001),
        (0, 8192),
        (1, 8192),
        (u32::MAX, 1 << 20),
    ] {
        let address = proxy(address, move |procedure| {
            if procedure != NFS_PROGRAM::NFSPROC3_FSINFO as u32 {
                return Verdict::Pass;
            }
            Verdict::Edit(Arc::new(move |result: &mut [u8]| {
                // Status, a mark that attributes follow, and those; then rtmax, rtpref, rtmult, wtmax, wtpref, wtmult.
                let sizes = &mut result[4 + 4 + 84..][..24];
                assert_eq!(sizes[..4], (1_u32 << 20).to_be_bytes(), "rtmax is where it should be");
                for size in sizes.chunks_exact_mut(4) {
                    size.copy_from_slice(&offered.to_be_bytes());
                }
            }))
        })
        .await;
        let tier = open(&url(address), "").await;
        assert!(
            tier.info().notes[0].contains(&format!("up to {used} bytes")),
            "{:?}",
            tier.info()
        );
        let object = tier.stat(&path("o")).await.unwrap();
        let read = tier.read(&object, 0..size).await.unwrap();
        assert!(read.bytes == content(1, 0..size));
        assert_eq!(u64::from(read.cost.requests), size.div_ceil(used));
        let written = put(&tier, "p", 2, size).await;
        assert!(tier.read(&written, 0..size).await.unwrap().bytes == content(2, 0..size));
    }
}

/// Finds the size in LOOKUP's result: behind the status, a handle with its length, the mark of attributes, and the
/// first five words of the attributes.
fn size_in_lookup(result: &mut [u8]) -> Option<&mut [u8]> {
    let handle = u32::from_be_bytes(*result.get(4..8)?.first_chunk()?) as usize;
    let at = 8 + handle.next_multiple_of(4) + 4 + 20;
    result.get_mut(at..at + 8)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_no_memory_has_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    put(&open(&url(address), "").await, "o", 1, 100_000).await;
    let address = proxy(address, |procedure| {
        if procedure != NFS_PROGRAM::NFSPROC3_LOOKUP as u32 {
            return Verdict::Pass;
        }
        Verdict::Edit(Arc::new(|result: &mut [u8]| {
            if let Some(size) = size_in_lookup(result) {
                size.copy_from_slice(&(1_u64 << 62).to_be_bytes());
            }
        }))
    })
    .await;
    let tier = open(&url(address), "").await;
    let object = tier.stat(&path("o")).await.unwrap();
    assert_eq!(object.size, 1 << 62);
    let error = tier.read(&object, 0..object.size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // The most that a call may request: the replies claim another size.
    let error = tier.read(&object, 0..8 << 30).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Changed | ErrorKind::Unavailable),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_directory_without_names_or_an_end_hides_no_files() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    put(&open(&url(address), "").await, "o", 1, 1000).await;
    let address = proxy(address, |procedure| {
        if procedure != NFS_PROGRAM::NFSPROC3_READDIRPLUS as u32 {
            return Verdict::Pass;
        }
        // OK, no attributes, a verifier of two words, no entry, and not the end.
        Verdict::Answer([nfsstat3::NFS3_OK as u32, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat())
    })
    .await;
    let error = open(&url(address), "").await.list(None).await.unwrap_err();
    assert!(error.to_string().contains("is empty but not the last"), "{error}");
}

/// A COMMIT must end within the limit of a call, so it covers a bounded window; a restart shows in any of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_put_is_committed_in_windows() {
    let root = tempfile::tempdir().unwrap();
    let (_origin, address) = served(root.path(), "127.0.0.1:0");
    let calls = Arc::new(Mutex::new(Vec::<bool>::new()));
    let seen = Arc::clone(&calls);
    let address = proxy(address, move |procedure| {
        let mut seen = seen.lock().unwrap();
        let is_commit = procedure == NFS_PROGRAM::NFSPROC3_COMMIT as u32;
        if is_commit || procedure == NFS_PROGRAM::NFSPROC3_WRITE as u32 {
            seen.push(is_commit);
        }
        match is_commit && seen.iter().filter(|commit| **commit).count() == 2 {
            // The verifier is the end of the result.
            true => Verdict::Edit(Arc::new(|result: &mut [u8]| *result.last_mut().unwrap() ^= 1)),
            false => Verdict::Pass,
        }
    })
    .await;
    let tier = open(&url(address), "timeout_ms = 20000").await;
    let size = 150 << 20;
    let object = tier
        .put(&path("o"), bytes::Bytes::from(vec![7; size]).into())
        .await
        .unwrap();
    assert_eq!(object.size, size as u64);
    assert!(
        std::fs::read(root.path().join("o"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 7)
    );
    let calls = calls.lock().unwrap();
    let windows: Vec<usize> = calls.split(|commit| *commit).map(<[bool]>::len).collect();
    assert_eq!(windows, [64, 64, 64, 64, 22, 0], "WRITEs of 1 MiB before each COMMIT");
}
