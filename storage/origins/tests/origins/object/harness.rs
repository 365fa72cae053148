//! Shared parts of the tests: an origin in this process whose faults can be set, and tiers that read from it.

use crate::path;
use std::ops::Range;
use tempfile::TempDir;
use tierlab_origins::s3::{Faults, S3Origin};
use tierlab_storage::content::content;
use tierlab_storage::tiers::object::BucketTier;
use tierlab_storage::{Body, Object, StorageError, Tier, TierConfig};
use tokio::net::TcpListener;

/// An origin with the bucket `tierlab`, for as long as the test's runtime.
pub(crate) struct Harness {
    pub(crate) root: TempDir,
    pub(crate) faults: Faults,
    pub(crate) port: u16,
}

impl Harness {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let origin = S3Origin::open(root.path()).unwrap();
        origin.ensure_bucket("tierlab").unwrap();
        let faults = origin.faults().clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(origin.serve(listener, std::future::pending()));
        Self { root, faults, port }
    }

    /// Sets the faults, as `--s3-fault` writes them.
    pub(crate) fn fault(&self, plan: &str) {
        self.faults.set(plan.parse().unwrap());
    }

    /// A tier that reads from the origin unsigned, with more keys of its config.
    pub(crate) async fn tier(&self, more: &str) -> BucketTier {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let more = format!("allow_http = true\nanonymous = true\n{more}");
        connect(&endpoint, &more).await.unwrap()
    }
}

/// A tier at an endpoint.
pub(crate) async fn connect(endpoint: &str, more: &str) -> Result<BucketTier, StorageError> {
    let document =
        format!("kind = \"s3\"\nbucket = \"tierlab\"\nregion = \"us-east-1\"\nendpoint = \"{endpoint}\"\n{more}");
    let TierConfig::Object(config) = TierConfig::parse("test", &document)? else {
        panic!("kind is s3")
    };
    BucketTier::connect(&config).await
}

/// Puts content in which every byte identifies its position.
pub(crate) async fn put(tier: &BucketTier, at: &str, seed: u64, size: u64) -> Object {
    let body = Body::Bytes(content(seed, 0..size).into());
    tier.put(&path(at), body).await.unwrap()
}

/// Rows of `len` bytes, spread evenly.
pub(crate) fn rows(size: u64, count: u64, len: u64) -> Vec<Range<u64>> {
    (0..count)
        .map(|i| i * (size - len) / count)
        .map(|at| at..at + len)
        .collect()
}
