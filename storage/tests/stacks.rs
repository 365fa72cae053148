//! What a server reads from: every tier, opened from its TOML and wrapped by `compose`, passes the suite.

use prometheus::Registry;
use std::path::Path;
use tierlab_storage::conformance::Suite;
use tierlab_storage::origin::{flight::FlightOrigin, nfs::NfsOrigin, s3::S3Origin};
use tierlab_storage::wrappers::{CacheConfig, Role, StorageMetrics, compose};
use tierlab_storage::{ObjectPath, TierConfig, open};
use tokio::net::TcpListener;

async fn conforms(toml: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let config = TierConfig::parse("test", toml).unwrap();
    let registry = Registry::new();
    let metrics = StorageMetrics::register(&registry).unwrap();
    // Small enough that blocks leave the cache during the suite.
    let cache = CacheConfig {
        capacity_bytes: 1 << 20,
        block_bytes: 4096,
        ..CacheConfig::default()
    };
    let tier = compose(open(&config).await.unwrap(), Role::Feature, &cache, &metrics).unwrap();
    assert_eq!(tier.info().kind, config.kind());
    let suite = Suite {
        tier,
        folder: ObjectPath::new("suite").unwrap(),
        scratch: scratch.path().to_owned(),
        notices_changes: false,
    };
    suite.run().await.unwrap();
    let served = registry
        .gather()
        .into_iter()
        .find(|family| family.name() == "tierlab_tier_requests_total");
    let counter = served.unwrap().get_metric()[0].get_counter().get_value();
    assert!(counter > 0.0, "the tier was never asked");
}

fn root(kind: &str, root: &Path) -> String {
    format!("kind = \"{kind}\"\nroot = \"{}\"", root.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("models/ctr")).unwrap();
    std::fs::write(folder.path().join("models/ctr/config.toml"), "x = 1").unwrap();
    let tier = open(&TierConfig::parse("test", &root("memory", folder.path())).unwrap())
        .await
        .unwrap();
    let loaded = tier
        .stat(&ObjectPath::new("models/ctr/config.toml").unwrap())
        .await
        .unwrap();
    assert_eq!(tier.read(&loaded, 0..5).await.unwrap().bytes, "x = 1");
    conforms(&root("memory", folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nvme() {
    let folder = tempfile::tempdir().unwrap();
    conforms(&root("nvme", folder.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3() {
    let folder = tempfile::tempdir().unwrap();
    let origin = S3Origin::open(folder.path()).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    let toml = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://{endpoint}\"\nallow_http = true\nanonymous = true"
    );
    conforms(&toml).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nfs() {
    let folder = tempfile::tempdir().unwrap();
    let origin = NfsOrigin::bind("127.0.0.1:0".parse().unwrap(), folder.path())
        .await
        .unwrap();
    let url = origin.url();
    tokio::spawn(origin.serve(std::future::pending()));
    conforms(&format!("kind = \"nfs\"\nurl = \"{url}\"")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flight() {
    let folder = tempfile::tempdir().unwrap();
    let origin = FlightOrigin::open(folder.path()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(origin.serve(listener, std::future::pending()));
    conforms(&format!("kind = \"flight\"\nurl = \"grpc://{address}\"")).await;
}
