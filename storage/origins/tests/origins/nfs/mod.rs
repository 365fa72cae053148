//! The NFS tier: with the embedded origin and faults between them, and with Debian's nfs-ganesha.

mod embedded;
mod faults;
mod ganesha;
mod proxy;
mod readers;
mod unusual_servers;

use crate::process::{Origin, text};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tierlab_storage::{Tier, TierConfig};

/// The real origin over a folder, and its address.
fn served(root: &Path, listen: &str) -> (Origin, SocketAddr) {
    let origin = Origin::start(&["--nfs-listen", listen, "--exit-with-parent", "--nfs-root", text(root)]);
    let url = origin.says("nfs");
    let address = url.strip_prefix("nfs://").unwrap().strip_suffix("/export").unwrap();
    (origin, address.parse().unwrap())
}

/// Export of an origin, or of a proxy in front of it.
fn url(address: SocketAddr) -> String {
    format!("nfs://{address}/export")
}

async fn open(url: &str, more: &str) -> Arc<dyn Tier> {
    let document = format!("kind = \"nfs\"\nurl = \"{url}\"\n{more}");
    tierlab_storage::open(&TierConfig::parse("test", &document).unwrap())
        .await
        .unwrap()
}
