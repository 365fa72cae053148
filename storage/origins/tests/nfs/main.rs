//! The NFS tier against real servers: the embedded origin, with faults between them, and Debian's nfs-ganesha.

mod faults;
mod ganesha;
mod origin;
mod proxy;
mod readers;
mod unusual_servers;

use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::conformance::content;
use tierlab_storage::{Body, Object, ObjectPath, Tier, TierConfig};

fn path(path: &str) -> ObjectPath {
    ObjectPath::new(path).unwrap()
}

async fn open(url: &str, more: &str) -> Arc<dyn Tier> {
    let document = format!("kind = \"nfs\"\nurl = \"{url}\"\n{more}");
    tierlab_storage::open(&TierConfig::parse("test", &document).unwrap())
        .await
        .unwrap()
}

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
