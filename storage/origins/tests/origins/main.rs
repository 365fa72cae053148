//! The tiers against their servers: the embedded origins, in this process and as the real binary, with faults between
//! them, and independent servers.

mod binary;
#[path = "../../../tests/conformance/mod.rs"]
mod conformance;
mod nfs;
mod process;
mod recorded;
mod redis;

/// The Flight tier and origin: with each other, when things go wrong between them, and each with pyarrow.
#[cfg(feature = "flight")]
mod flight {
    mod conform;
    mod faults;
    mod harness;
    mod hostile;
    mod pyarrow;
}

/// The tier of buckets: S3 with the embedded origin and its faults and with an independent server, Google and Azure.
mod object {
    mod azure;
    mod billing;
    mod embedded;
    mod faults;
    mod google;
    mod harness;
    mod hostile;
    mod identities;
    mod moto;
    mod peer;
    mod styles;
}

use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::content::content;
use tierlab_storage::{Body, Object, ObjectPath, Tier};

fn path(path: &str) -> ObjectPath {
    ObjectPath::new(path).unwrap()
}

/// Puts content in which every byte identifies its position.
async fn put(tier: &Arc<dyn Tier>, at: &str, seed: u64, size: u64) -> Object {
    let body = Body::Bytes(content(seed, 0..size).into());
    tier.put(&path(at), body).await.unwrap()
}

async fn wait(mut until: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if until() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited for 30 s");
}
