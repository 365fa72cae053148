use super::*;
use crate::conformance::{Suite, content};
use crate::error::ErrorKind;
use crate::tiers::memory::MemoryTier;
use crate::wrappers::StorageMetrics;
use bytes::Bytes;
use futures::future::join_all;
use std::time::Duration;

fn config(text: &str) -> EmulatedConfig {
    toml::from_str(text).unwrap()
}

fn uncounted() -> EmulatedMetrics {
    StorageMetrics::unscraped().unwrap().emulated("memory")
}

fn emulated(text: &str) -> Emulated {
    Emulated::new(Arc::new(MemoryTier::new()), &config(text), uncounted()).unwrap()
}

async fn object(tier: &dyn Tier) -> Object {
    let path = ObjectPath::new("x").unwrap();
    let body = Bytes::from(content(1, 0..100_000));
    tier.put(&path, body.into()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_measured_through_it_is_labelled() {
    let tier =
        emulated("profile = \"s3-standard\"\nlatency = { distribution = \"lognormal\", median_us = 9, sigma = 0 }");
    let info = tier.info();
    assert_eq!(info.notes, ["emulated: s3-standard, adjusted"]);
    assert_eq!(info.wrappers, ["emulated(s3-standard, adjusted, seed 1)"]);
    assert_eq!(emulated("profile = \"gp3\"").info().notes, ["emulated: gp3"]);
}

/// What the first calls of a tier draw.
fn drawn(tier: &Emulated, calls: Range<u64>) -> Vec<(Vec<Duration>, Option<ErrorKind>)> {
    calls
        .map(|call| {
            let drawn = tier.draw(call, [4096, 4096].into_iter());
            let latencies = drawn.requests.iter().map(|request| request.latency).collect();
            (latencies, drawn.fault.map(|fault| fault.kind))
        })
        .collect()
}

#[test]
fn a_seed_names_its_draws() {
    let text = "profile = \"s3-standard\"\nretries = 0\nerrors = [{ kind = \"unavailable\", rate = 0.2 }, { kind = \"timeout\", rate = 0.1, after_ms = 5 }]";
    let tier = emulated(text);
    let draws = drawn(&tier, 0..2000);
    assert_eq!(draws, drawn(&emulated(text), 0..2000));
    assert_ne!(draws, drawn(&emulated(&format!("{text}\nseed = 2")), 0..2000));
    // Of 4,000 requests a call has two, and shows the first error.
    let share = |kind| draws.iter().filter(|(_, fault)| *fault == Some(kind)).count();
    let (unavailable, timeout) = (share(ErrorKind::Unavailable), share(ErrorKind::Timeout));
    assert!((600..760).contains(&unavailable), "{unavailable}");
    assert!((270..410).contains(&timeout), "{timeout}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_calls_meet_the_same_errors() {
    let text = "errors = [{ kind = \"unavailable\", rate = 0.3 }]";
    let mut runs = Vec::new();
    for _ in 0..2 {
        let inner: Arc<dyn Tier> = Arc::new(MemoryTier::new());
        let object = object(&*inner).await;
        let tier = Emulated::new(inner, &config(text), uncounted()).unwrap();
        let mut outcomes = Vec::new();
        for _ in 0..100 {
            let read = tier.read(&object, 0..10).await;
            if let Err(error) = &read {
                assert_eq!((error.kind(), error.object()), (ErrorKind::Unavailable, "x"));
                assert!(error.detail().contains("emulated"), "{error}");
            }
            outcomes.push(read.is_ok());
        }
        assert!(outcomes.contains(&true) && outcomes.contains(&false));
        runs.push(outcomes);
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_connection_is_queue_and_latency_is_device() {
    let tier = emulated("connections = 1\nlatency = { distribution = \"lognormal\", median_us = 4000, sigma = 0 }");
    let object = object(&tier).await;
    let started = Instant::now();
    let reads = join_all((0..4).map(|_| tier.read(&object, 5..95))).await;
    assert!(started.elapsed() >= Duration::from_millis(16));
    let costs: Vec<ReadCost> = reads.into_iter().map(|read| read.unwrap().cost).collect();
    assert!(costs.iter().all(|cost| cost.device >= Duration::from_micros(3999)));
    let longest = costs.iter().map(|cost| cost.queue).max().unwrap();
    assert!(longest >= Duration::from_millis(11), "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_take_their_time() {
    let tier = emulated("connection_bytes_per_s = 10000000");
    let object = object(&tier).await;
    let read = tier.read(&object, 0..100_000).await.unwrap();
    assert!(read.bytes == content(1, 0..100_000));
    assert!(read.cost.device >= Duration::from_millis(10), "{:?}", read.cost);
    // In parallel: each range is a request of its own, on its own connection.
    let many = tier.read_many(&object, &[0..50_000, 50_000..100_000]).await.unwrap();
    assert!(many.cost.device >= Duration::from_millis(5), "{:?}", many.cost);
    assert_eq!(many.cost.requests, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounded_retries_hide_some_errors_and_count_them() {
    let inner: Arc<dyn Tier> = Arc::new(MemoryTier::new());
    let object = object(&*inner).await;
    let text = "retries = 10\nerrors = [{ kind = \"unavailable\", rate = 0.3 }]";
    let tier = Emulated::new(inner.clone(), &config(text), uncounted()).unwrap();
    let mut retries = 0;
    for _ in 0..100 {
        let read = tier.read(&object, 7..77).await.unwrap();
        assert_eq!(read.bytes, content(1, 7..77));
        assert_eq!(read.cost.requests, 1 + read.cost.retries);
        retries += read.cost.retries;
    }
    assert!((20..80).contains(&retries), "{retries}");
    // A service that always fails is given up, and what is no passing fault is not tried again.
    for (kind, attempts) in [("unavailable", 3), ("denied", 1)] {
        let text =
            format!("retries = 2\nretry_delay_ms = 2\nerrors = [{{ kind = \"{kind}\", rate = 1.0, after_ms = 1 }}]");
        let failing = Emulated::new(inner.clone(), &config(&text), uncounted()).unwrap();
        let drawn = failing.draw(0, std::iter::once(9));
        assert_eq!(drawn.retries, attempts - 1);
        let pauses = if attempts == 3 { 2 + 4 } else { 0 };
        assert_eq!(
            drawn.requests[0].latency,
            Duration::from_millis(u64::from(attempts) + pauses)
        );
        let error = failing.read_many(&object, &[0..1, 5..6]).await.unwrap_err();
        assert_eq!((error.kind().as_str(), error.object()), (kind, "x"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emulated_tier_conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let text = "connections = 8\nconnection_bytes_per_s = 4000000000\nrequests_per_s = 2000000\n\
        latency = { distribution = \"lognormal\", median_us = 30, p99_us = 200 }\n\
        stall = { every_ms = 50, for_ms = 5 }";
    let suite = Suite {
        tier: Arc::new(emulated(text)),
        folder: ObjectPath::new("suite").unwrap(),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
    // With errors that are tried again, it conforms as well.
    let flaky = "retries = 9\nerrors = [{ kind = \"unavailable\", rate = 0.02 }, { kind = \"timeout\", rate = 0.02 }]";
    let suite = Suite {
        tier: Arc::new(emulated(flaky)),
        folder: ObjectPath::new("flaky").unwrap(),
        ..suite
    };
    suite.run().await.unwrap();
}
