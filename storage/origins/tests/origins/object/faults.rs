//! The fault table: errors, slow replies, stalls, truncated and reset bodies, objects that change. In all of them no
//! wrong byte, errors that name the object, and reads that succeed once the fault is gone, through the same tier.

use super::harness::{Harness, put, rows};
use crate::path;
use std::ops::Range;
use std::time::{Duration, Instant};
use tierlab_storage::content::content;
use tierlab_storage::tiers::object::BucketTier;
use tierlab_storage::{ErrorKind, Object, Read, Tier, deadline};

const SIZE: u64 = 300_007;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_that_stays_is_an_error_by_name_and_is_over_when_it_goes() {
    let harness = Harness::new().await;
    let tier = harness
        .tier("part_bytes = 65536\ncoalesce_bytes = 0\nretries = 2\nattempt_ms = 150\ntimeout_ms = 1500")
        .await;
    let object = put(&tier, "folder/object", 1, SIZE).await;
    let ranges = rows(SIZE, 20, 1000);
    for (plan, kind) in [
        ("error-rate=1", ErrorKind::Unavailable),
        ("slow-rate=1,slow-ms=60000", ErrorKind::Timeout),
        ("stall-rate=1", ErrorKind::Timeout),
        ("truncate-rate=1", ErrorKind::Unavailable),
        ("reset-rate=1", ErrorKind::Unavailable),
        ("change-rate=1", ErrorKind::Changed),
    ] {
        harness.fault(plan);
        let whole = tier.read(&object, 0..SIZE).await.map(|read| read.cost);
        let many = tier.read_many(&object, &ranges).await.map(|many| many.cost);
        for error in [whole.unwrap_err(), many.unwrap_err()] {
            assert_eq!(error.kind(), kind, "{plan}: {error}");
            assert_eq!(error.object(), "s3://tierlab/folder/object", "{plan}");
        }
        harness.fault("");
        let whole = tier.read(&object, 0..SIZE).await.unwrap();
        assert!(whole.bytes == content(1, 0..SIZE), "after {plan}");
        let many = tier.read_many(&object, &ranges).await.unwrap();
        for (range, part) in ranges.iter().zip(&many.parts) {
            assert_eq!(part, &content(1, range.clone()), "after {plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_break_off_go_on_from_the_byte_reached() {
    let harness = Harness::new().await;
    let tier = harness
        .tier("part_bytes = 65536\nretries = 12\nattempt_ms = 300\ntimeout_ms = 20000")
        .await;
    let object = put(&tier, "o", 2, SIZE).await;
    let (mut retries, gets) = (0, SIZE.div_ceil(65536) as u32);
    for seed in 1..=15 {
        harness.fault(&format!(
            "error-rate=0.1,truncate-rate=0.15,reset-rate=0.15,stall-rate=0.03,seed={seed}"
        ));
        let Read { bytes, cost } = tier.read(&object, 0..SIZE).await.unwrap();
        assert!(bytes == content(2, 0..SIZE), "seed {seed}");
        // Bytes that arrived before a break are not fetched again.
        assert_eq!(cost.wire_bytes, SIZE, "seed {seed}: {cost:?}");
        assert_eq!(cost.requests, gets + cost.retries, "seed {seed}: {cost:?}");
        retries += cost.retries;
    }
    // About 0.76 for each of the 75 GETs.
    assert!(retries > 10, "only {retries} retries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_replaced_under_a_read_is_never_mixed() {
    let harness = Harness::new().await;
    let tier = harness.tier("part_bytes = 50000\nconcurrency = 2").await;
    let old = put(&tier, "o", 3, SIZE).await;
    // Three rounds of two parts, 25 ms each.
    harness.fault("mb-per-s=2");
    let (read, new) = tokio::join!(tier.read(&old, 0..SIZE), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        put(&tier, "o", 4, SIZE).await
    });
    match read {
        // Only on a machine so slow that the read ended before the put.
        Ok(read) => assert!(read.bytes == content(3, 0..SIZE)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
            assert_eq!(error.object(), "s3://tierlab/o");
        }
    }
    let again = tier.read(&old, 0..1).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Changed);
    assert_eq!(tier.stat(&path("o")).await.unwrap(), new);
    assert!(tier.read(&new, 0..SIZE).await.unwrap().bytes == content(4, 0..SIZE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_cut_short_behind_the_origin_is_noticed() {
    let harness = Harness::new().await;
    let tier = harness.tier("part_bytes = 50000").await;
    let object = put(&tier, "o", 5, SIZE).await;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(harness.root.path().join("tierlab/o"));
    file.unwrap().set_len(1000).unwrap();
    for range in [0..SIZE, 0..500, SIZE - 1..SIZE] {
        let error = tier.read(&object, range).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_replies_are_hedged_within_the_share_and_counted() {
    let harness = Harness::new().await;
    let tier = harness
        .tier("hedge_after_quantile = 0.9\nhedge_max_share = 0.2\nattempt_ms = 20000\ntimeout_ms = 20000")
        .await;
    assert!(tier.info().notes.iter().any(|note| note == "hedged reads"));
    let object = put(&tier, "o", 6, 10_000).await;
    let (mut reads, mut requests, mut hedges) = (0, 0, 0);
    for plan in ["", "slow-rate=0.05,slow-ms=1000,seed=3"] {
        harness.fault(plan);
        for at in 0..64 {
            let read = tier.read(&object, at..at + 100).await.unwrap();
            assert_eq!(read.bytes, content(6, at..at + 100));
            assert_eq!(read.cost.retries, 0, "a hedge is no retry");
            // The GET that lost is paid for with all its bytes.
            assert_eq!(read.cost.wire_bytes, u64::from(read.cost.requests) * 100);
            reads += 1;
            requests += read.cost.requests;
            hedges += read.cost.hedges;
        }
    }
    assert!(requests > reads, "nothing was hedged");
    assert_eq!(requests - reads, hedges);
    assert!(
        f64::from(requests - reads) <= 0.2 * f64::from(reads),
        "{requests} for {reads}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_stay_within_the_deadline_of_the_one_who_asks() {
    const TIER: &str = "part_bytes = 65536\nconcurrency = 2\ntimeout_ms = 60000\nattempt_ms = 30000";
    let harness = Harness::new().await;
    let tier = harness.tier(TIER).await;
    let object = put(&tier, "o", 8, SIZE).await;
    let within = async |tier: &BucketTier, object: &Object, ms, range: Range<u64>| {
        let began = Instant::now();
        let until = began + Duration::from_millis(ms);
        let read = deadline::within(until, tier.read(object, range.clone())).await;
        (
            read.map(|read| (read.bytes == content(8, range), read.cost.retries)),
            began.elapsed(),
        )
    };
    harness.fault("stall-rate=1");
    // A single GET, and several GETs of which some wait for a slot.
    for range in [0..1000, 0..SIZE] {
        let (read, took) = within(&tier, &object, 300, range).await;
        let error = read.unwrap_err();
        assert_eq!(
            (error.kind(), error.object()),
            (ErrorKind::Timeout, "s3://tierlab/o"),
            "{error}"
        );
        // Far from the 30 s that an attempt has otherwise.
        assert!(took < Duration::from_secs(10), "{took:?}: {error}");
    }
    let (read, _) = within(&tier, &object, 0, 0..1000).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Timeout);
    harness.fault("");
    let (read, _) = within(&tier, &object, 60_000, 0..SIZE).await;
    assert_eq!(read.unwrap(), (true, 0));

    // A separate origin: GETs abandoned above may reach the first origin late, and each request takes the seed's next
    // fault. With this seed the first request stalls and the next two do not: the first leaves time for another.
    let harness = Harness::new().await;
    let tier = harness.tier(TIER).await;
    let object = put(&tier, "o", 8, SIZE).await;
    harness.fault("stall-rate=0.5,seed=14");
    let (read, _) = within(&tier, &object, 2000, 0..1000).await;
    assert_eq!(read.unwrap(), (true, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_asks_to_be_left_alone_is() {
    let harness = Harness::new().await;
    let tier = harness
        .tier("retries = 2\nattempt_ms = 20000\ntimeout_ms = 20000")
        .await;
    let object = put(&tier, "o", 9, 1000).await;
    // With this seed, the first request is refused and the next is not.
    harness.fault("error-rate=0.5,retry-after-s=1,seed=14");
    let began = Instant::now();
    let read = tier.read(&object, 0..1000).await.unwrap();
    assert_eq!((read.bytes, read.cost.retries), (content(9, 0..1000).into(), 1));
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(1), "asked again after {waited:?}");
    // A requested wait longer than the remaining time is not waited for.
    harness.fault("error-rate=1,retry-after-s=30");
    let error = tier.read(&object, 0..1000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let detail = error.detail();
    assert!(
        detail.contains("retry after 30 s") && detail.contains("1 attempts"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_given_up_midway_leave_the_tier_whole() {
    let harness = Harness::new().await;
    let tier = harness.tier("part_bytes = 20000\nconcurrency = 3").await;
    let object = put(&tier, "o", 7, SIZE).await;
    harness.fault("mb-per-s=20,stall-rate=0.1");
    for round in 0..50 {
        let limit = Duration::from_micros(200 * round);
        if let Ok(read) = tokio::time::timeout(limit, tier.read(&object, 0..SIZE)).await {
            assert!(read.unwrap().bytes == content(7, 0..SIZE));
        }
    }
    harness.fault("");
    assert!(tier.read(&object, 0..SIZE).await.unwrap().bytes == content(7, 0..SIZE));
}
