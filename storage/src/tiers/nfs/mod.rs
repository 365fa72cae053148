//! Tier over an NFSv3 export: read in user space over a pool of connections, or through a kernel mount.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up. In user space a version is the file's id,
//! size, modification and change time, and each READ's reply is checked against it. Knows nothing of caches.
//!
//! Files, from the wire up: `rpc` has the messages, `dial` opens streams, `stream` carries many calls on one stream.
//! `pool` keeps several connections to one `address` and repeats broken calls; `portmap` finds the address again.
//! `client` has the procedures, `mount` finds the export, `tree` turns paths into handles, and `read`, `put` and
//! `listing` implement the trait.
//!
//! Costs: `requests` are RPCs (including a look-up if the handle was unknown), `wire_bytes` the replies with their
//! heads, `queue` the wait for a slot among the calls in flight and, if there is no connection, for a connection.

mod address;
mod client;
mod config;
mod dial;
mod fault;
mod kernel;
mod listing;
mod mount;
mod pool;
mod portmap;
mod put;
mod read;
mod rpc;
mod stream;
mod tree;
mod url;

pub use config::NfsConfig;

use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadCost, ReadMany, Tier, TierInfo};
use crate::tiers::nvme::{LocalOptions, NvmeTier};
use async_trait::async_trait;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tree::{Tree, describe};
use url::NfsUrl;

/// Maximum reads in flight on a kernel mount.
const MOUNT_QUEUE_DEPTH: u32 = 128;

/// An export.
#[derive(Debug)]
pub struct NfsTier {
    way: Access,
}

#[derive(Debug)]
enum Access {
    UserSpace(Arc<Tree>),
    Kernel(Box<NvmeTier>),
}

impl NfsTier {
    /// Mounts the export of `url`, or takes the kernel mount at `path`.
    ///
    /// # Errors
    /// Neither or both given, a server or portmapper that does not answer, an export that is not offered (the error
    /// lists those that are), or a path that lies on no NFS mount.
    pub async fn connect(config: &NfsConfig) -> Result<Self, StorageError> {
        let way = match (&config.url, &config.path) {
            (Some(url), None) => {
                let url = NfsUrl::parse(url)?;
                if config.connections == 0 {
                    let object = url.to_string();
                    return Err(StorageError::new(
                        ErrorKind::Invalid,
                        object,
                        "`connections` must be at least 1",
                    ));
                }
                Access::UserSpace(Arc::new(Tree::mount(url, config).await?))
            }
            (None, Some(path)) => Access::Kernel(Box::new(open_mount(path).await?)),
            _ => {
                let detail = "give exactly one of `url` (nfs://host[:port]/export) and `path` (a kernel mount)";
                return Err(StorageError::new(ErrorKind::Invalid, "nfs", detail));
            }
        };
        Ok(Self { way })
    }
}

async fn open_mount(path: &Path) -> Result<NvmeTier, StorageError> {
    let given = path.display().to_string();
    let failed = |e: &std::io::Error| StorageError::from_io(given.as_str(), e);
    let root = tokio::fs::canonicalize(path).await.map_err(|e| failed(&e))?;
    let mountinfo = tokio::fs::read_to_string("/proc/self/mountinfo")
        .await
        .map_err(|e| failed(&e))?;
    let notes = kernel::notes(&root, &mountinfo)?;
    NvmeTier::open_with(LocalOptions {
        root,
        kind: "nfs",
        notes,
        queue_depth: MOUNT_QUEUE_DEPTH,
        direct: true,
    })
    .await
}

#[async_trait]
impl Tier for NfsTier {
    fn info(&self) -> TierInfo {
        match &self.way {
            Access::Kernel(tier) => tier.info(),
            Access::UserSpace(tree) => TierInfo {
                kind: "nfs",
                location: tree.url.to_string(),
                wrappers: Vec::new(),
                notes: vec![format!(
                    "user space, NFSv3: {} connections, READs of up to {} bytes",
                    tree.connections, tree.read_bytes
                )],
            },
        }
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        match &self.way {
            Access::Kernel(tier) => tier.stat(path).await,
            Access::UserSpace(tree) => {
                let (about, mut cost) = (tree.name(path), ReadCost::default());
                let (_, attributes) = tree.object(&mut tree.client(&about, &mut cost), path).await?;
                Ok(describe(path, &attributes))
            }
        }
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        match &self.way {
            Access::Kernel(tier) => tier.read_many(object, ranges).await,
            Access::UserSpace(tree) => read::read_many(tree, object, ranges).await,
        }
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        match &self.way {
            Access::Kernel(tier) => tier.list(prefix).await,
            Access::UserSpace(tree) => tree.list(prefix).await,
        }
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        match &self.way {
            Access::Kernel(tier) => tier.put(path, body).await,
            Access::UserSpace(tree) => put::put(tree, path, body).await,
        }
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        match &self.way {
            Access::Kernel(tier) => tier.delete(path).await,
            Access::UserSpace(tree) => put::delete(tree, path).await,
        }
    }
}
