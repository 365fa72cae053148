use super::*;
use crate::ErrorKind;
use crate::conformance::Suite;
use crate::content::content;
use crate::tiers::memory::MemoryTier;
use crate::wrappers::{Limited, StorageMetrics};
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
    Emulated::new(Arc::new(MemoryTier::default()), &config(text), uncounted()).unwrap()
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

/// A recorded tier whose reads all take 20 ms.
const FLAT: &str = "schema = 1\nshares = [0.0, 1.0]\n\
    [origin]\ndate = \"2026-11-23T10:00:00Z\"\nplace = \"here\"\ntier = \"s3\"\n\
    [origin.environment]\nkernel = \"\"\ncpu = \"\"\ncpus = 1\nmemory_bytes = 1\nclient = \"\"\n\
    [limits]\ntotal_bytes_per_s = 1\ntotal_is_limit = false\nrequests_per_s = 1\nrequests_is_limit = false\n\
    [[points]]\nbytes = 4096\ndepth = 1\ncalls = 9\ncalls_per_s = 1.0\nlatency_us = [20000.0, 20000.0]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_begins_after_its_look_up_and_both_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flat.toml");
    std::fs::write(&file, FLAT).unwrap();
    for text in [
        "latency = { distribution = \"lognormal\", median_us = 20000, sigma = 0 }".to_owned(),
        format!("profile = \"{}\"", file.display()),
    ] {
        let inner = Arc::new(MemoryTier::default());
        let object = object(&*inner).await;
        // Looks the object up first, as local folders do.
        let inner = Arc::new(Limited::new(inner, u64::MAX, "max_bytes"));
        let tier = Emulated::new(inner, &config(&text), uncounted()).unwrap();
        let began = Instant::now();
        let cost = tier.read_whole(&object.path, object.size).await.unwrap().cost;
        // A replayed wait ends at most a 128th of itself early.
        let both = Duration::from_millis(39);
        assert_eq!(cost.requests, 2, "{text}");
        assert!(began.elapsed() >= both && cost.device >= both, "{text}: {cost:?}");
    }
}

#[tokio::test]
async fn a_listing_takes_a_request_for_each_page() {
    for (objects, requests) in [(0, 1), (1000, 1), (1001, 2), (2001, 3)] {
        let inner = Arc::new(MemoryTier::default());
        for number in 0..objects {
            let path = ObjectPath::new(&format!("o{number}")).unwrap();
            inner.put(&path, Bytes::new().into()).await.unwrap();
        }
        let tier = Emulated::new(inner, &config(""), uncounted()).unwrap();
        assert_eq!(tier.list(None).await.unwrap().len(), objects);
        assert_eq!(tier.calls.load(Ordering::Relaxed), requests);
    }
}

/// Latencies and errors drawn by the given calls of a tier.
fn drawn(tier: &Emulated, calls: Range<u64>) -> Vec<(Vec<Duration>, Option<ErrorKind>)> {
    calls
        .map(|call| {
            let drawn = tier.draw(call, 1, [4096, 4096].into_iter());
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
        let inner: Arc<dyn Tier> = Arc::new(MemoryTier::default());
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
    let read = || async { (started.elapsed(), tier.read(&object, 5..95).await.unwrap().cost) };
    let costs: Vec<(Duration, ReadCost)> = join_all((0..4).map(|_| read())).await;
    assert!(started.elapsed() >= Duration::from_millis(16));
    assert!(costs.iter().all(|(_, cost)| cost.device >= Duration::from_micros(3999)));
    // The last read waits for three others; a busy machine may start it later.
    let last = costs.iter().map(|(began, cost)| *began + cost.queue).max().unwrap();
    assert!(last >= Duration::from_millis(11), "{last:?}");
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
    let inner: Arc<dyn Tier> = Arc::new(MemoryTier::default());
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
    // Calls of a service that always fails end with its error, and permanent faults are not retried.
    for (kind, attempts) in [("unavailable", 3), ("denied", 1)] {
        let text =
            format!("retries = 2\nretry_delay_ms = 2\nerrors = [{{ kind = \"{kind}\", rate = 1.0, after_ms = 1 }}]");
        let failing = Emulated::new(inner.clone(), &config(&text), uncounted()).unwrap();
        let drawn = failing.draw(0, 1, std::iter::once(9));
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

/// A recorded tier: reads of 4 KiB take 3 ms alone and 30 ms beside seven others; reads of 64 KiB take ten times as
/// long.
fn replayed(folder: &std::path::Path, errors: &str) -> Emulated {
    let point = |bytes: u64, depth: u32, us: f64| {
        format!(
            "[[points]]\nbytes = {bytes}\ndepth = {depth}\ncalls = 9\ncalls_per_s = 1.0\nlatency_us = [{us:?}, {us:?}]\n"
        )
    };
    let text = format!(
        "schema = 1\nshares = [0.0, 1.0]\n\
         [origin]\ndate = \"2026-11-23\"\nplace = \"here\"\ntier = \"s3\"\n\
         [origin.environment]\nkernel = \"\"\ncpu = \"\"\ncpus = 1\nmemory_bytes = 1\nclient = \"\"\n\
         [limits]\ntotal_bytes_per_s = 1\ntotal_is_limit = false\nrequests_per_s = 1\nrequests_is_limit = false\n{errors}{}{}{}{}",
        point(4096, 1, 3000.0),
        point(4096, 8, 30_000.0),
        point(65_536, 1, 30_000.0),
        point(65_536, 8, 300_000.0),
    );
    let file = folder.join("profile.toml");
    std::fs::write(&file, text).unwrap();
    emulated(&format!("profile = \"{}\"", file.display()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_draws_by_size_and_by_reads_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let tier = replayed(folder.path(), "");
    assert_eq!(tier.info().notes, ["emulated: recorded s3 of \"here\", 2026-11-23"]);
    let drawn = |in_flight, bytes| tier.draw(0, in_flight, std::iter::once(bytes)).requests[0].latency;
    assert_eq!(drawn(1, 4096), Duration::from_millis(3));
    assert_eq!(drawn(8, 4096), Duration::from_millis(30));
    assert_eq!(drawn(8, 65_536), Duration::from_millis(300));
    // Each range of a call is a read of its own, in flight with the others.
    let object = object(&tier).await;
    let ranges: Vec<Range<u64>> = (0..8).map(|i| i * 5000..i * 5000 + 4096).collect();
    let started = Instant::now();
    let read = tier.read_many(&object, &ranges).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(29));
    assert_eq!(read.parts[7], content(1, 35_000..39_096));
    assert_eq!(
        tier.arrive(1).in_flight,
        1,
        "nothing is in flight once a call has ended"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_tier_below_a_replay_takes_is_a_part_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = replayed(folder.path(), "");
    // Below it a tier that takes 2 ms by itself.
    let slow = emulated("latency = { distribution = \"lognormal\", median_us = 2000, sigma = 0 }");
    let object = object(&slow).await;
    let tier = Emulated {
        inner: Arc::new(slow),
        ..recorded
    };
    let started = Instant::now();
    let read = tier.read(&object, 0..4096).await.unwrap();
    let whole = started.elapsed();
    assert_eq!(read.bytes, content(1, 0..4096));
    assert!(whole >= Duration::from_micros(2970), "{whole:?}");
    // The time of the tier below is a part of that, and is not counted twice.
    let parts = read.cost.queue + read.cost.device;
    assert!(
        parts >= Duration::from_micros(1999) && parts <= whole,
        "{parts:?} of {whole:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_conforms_and_shows_the_errors_that_were_seen() {
    let folder = tempfile::tempdir().unwrap();
    let failing = replayed(
        folder.path(),
        "[[errors]]\nkind = \"timeout\"\nrate = 1.0\nafter_ms = 1\n",
    );
    let path = ObjectPath::new("x").unwrap();
    let error = failing.stat(&path).await.unwrap_err();
    assert_eq!((error.kind(), error.object()), (ErrorKind::Timeout, "x"));
    assert!(error.detail().contains("recorded s3 of"), "{error}");
    let text = std::fs::read_to_string(folder.path().join("profile.toml")).unwrap();
    let quick = text.replace("000.0", ".0").replace("rate = 1.0", "rate = 0.0");
    std::fs::write(folder.path().join("profile.toml"), quick).unwrap();
    let suite = Suite {
        tier: Arc::new(emulated(&format!(
            "profile = \"{}\"",
            folder.path().join("profile.toml").display()
        ))),
        folder: ObjectPath::new("suite").unwrap(),
        scratch: folder.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}
