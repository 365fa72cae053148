//! Counts of requests that reached the bucket. They leave out blocks that a stage had, and include requests of reads
//! that failed or whose caller went away.

use super::harness::{Harness, put, rows};
use crate::path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::metrics;
use tierlab_storage::wrappers::{CacheConfig, Role, StorageMetrics, compose};
use tierlab_storage::{Tier, TierConfig};

const SIZE: u64 = 300_007;

fn counted(registry: &prometheus::Registry, name: &str) -> u64 {
    let families = registry.gather();
    let of = families.iter().filter(|family| family.name() == name);
    of.flat_map(prometheus::proto::MetricFamily::get_metric)
        .map(|metric| metric.get_counter().get_value() as u64)
        .sum()
}

async fn open(harness: &Harness, more: &str) -> (Arc<dyn Tier>, prometheus::Registry) {
    let registry = prometheus::Registry::new();
    let metrics = StorageMetrics::register(&registry).unwrap();
    let document = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nregion = \"us-east-1\"\nendpoint = \"http://127.0.0.1:{}\"\n\
         allow_http = true\nanonymous = true\n{more}",
        harness.port
    );
    let tier = tierlab_storage::open_counted(&TierConfig::parse("test", &document).unwrap(), &metrics).await;
    let off = CacheConfig::off();
    (compose(tier.unwrap(), Role::Feature, &off, &metrics).unwrap(), registry)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stage_has_is_not_billed_as_the_buckets() {
    let harness = Harness::new().await;
    let object = put(&harness.tier("").await, "features/t.rows", 1, SIZE).await;
    let folder = tempfile::tempdir().unwrap();
    let staged = format!("[staged]\nroot = \"{}\"", folder.path().display());
    let (tier, registry) = open(&harness, &staged).await;
    let ranges = rows(SIZE, 100, 512);
    let first = tier.read_many(&object, &ranges).await.unwrap();
    assert_eq!(
        u64::from(first.cost.requests),
        counted(&registry, metrics::TIER_REQUESTS)
    );
    let staged = async {
        while counted(&registry, metrics::STAGED_WRITTEN) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), staged).await.unwrap();
    let before = [metrics::TIER_REQUESTS, metrics::TIER_WIRE_BYTES].map(|name| counted(&registry, name));
    assert!(before.iter().all(|count| *count > 0));
    harness.fault("error-rate=1");
    for range in &ranges {
        let read = tier.read(&object, range.clone()).await.unwrap();
        assert_eq!((read.cost.requests, read.cost.wire_bytes, read.cost.retries), (0, 0, 0));
        assert!(!read.cost.via.is_empty());
    }
    let after = [metrics::TIER_REQUESTS, metrics::TIER_WIRE_BYTES].map(|name| counted(&registry, name));
    assert_eq!(before, after, "the bucket was not asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_for_nothing_is_billed_all_the_same() {
    let harness = Harness::new().await;
    let object = put(&harness.tier("").await, "features/t.rows", 1, SIZE).await;
    let (tier, registry) = open(&harness, "retries = 2\ntimeout_ms = 2000\nattempt_ms = 500").await;
    harness.fault("error-rate=1");
    assert!(tier.read(&object, 0..100).await.is_err());
    harness.fault("slow-rate=1,slow-ms=60000");
    // The caller goes away while a GET is in flight.
    let gone = tokio::time::timeout(Duration::from_millis(200), tier.read(&object, 0..100)).await;
    assert!(gone.is_err());
    harness.fault("");
    // The next counted read reports the earlier ones.
    assert_eq!(tier.read(&object, 0..100).await.unwrap().cost.requests, 1);
    let _ = tier.stat(&path("features/t.rows")).await.unwrap();
    tier.read(&object, 0..100).await.unwrap();
    assert_eq!(counted(&registry, metrics::TIER_REQUESTS), 3 + 1 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_arrived_before_the_caller_left_are_billed() {
    let harness = Harness::new().await;
    let object = put(&harness.tier("").await, "features/t.rows", 1, SIZE).await;
    let (tier, registry) = open(&harness, "timeout_ms = 60000\nattempt_ms = 60000").await;
    harness.fault("stall-rate=1");
    let gone = tokio::time::timeout(Duration::from_secs(2), tier.read(&object, 0..SIZE)).await;
    assert!(gone.is_err());
    harness.fault("");
    // The next counted read reports the earlier one.
    tier.read(&object, 0..100).await.unwrap();
    let wire_bytes = counted(&registry, metrics::TIER_WIRE_BYTES);
    assert!(wire_bytes > 100, "{wire_bytes}");
}
