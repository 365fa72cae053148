//! Tier over an NFSv3 export: read in user space over a pool of connections, or through a kernel mount.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up. In user space a version is the file's id,
//! size, modification and change time; each READ's reply is checked against it. Knows nothing of caches.
//!
//! Files, from the wire up: `rpc` has the messages; `connection`, `receive`, `waiting` and `moderation` carry many
//! calls on one stream. `pool` opens several connections to one address and retries broken calls. `client` has the
//! procedures, `mount` finds servers and exports, `tree` resolves paths to handles and lists them, and `read` and `put`
//! have the rest of the trait.
//!
//! Costs: `requests` are RPCs (including a look-up if the handle was unknown), `wire_bytes` the replies with their
//! headers, `queue` the wait for a slot among the calls in flight and, if there is no connection, for a connection.

use crate::tiers::nvme::{LocalOptions, NvmeTier};
use crate::tiers::{check_not_zero, number};
use crate::{Body, ErrorKind, Object, ObjectPath, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use mount::NfsUrl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierlab_formats::mounts::mount_of;
use tree::{Tree, describe};

mod client;
mod connection;
mod moderation;
mod mount;
mod pool;
mod put;
mod read;
mod receive;
mod rpc;
mod tree;
mod waiting;

/// Maximum reads in flight on a kernel mount.
const MOUNT_QUEUE_DEPTH: u32 = 128;

/// Export, read in user space.
#[derive(Debug)]
struct NfsTier {
    tree: Arc<Tree>,
}

/// Mounts the export of `url`, or opens the kernel mount at `path`.
///
/// # Errors
/// Fails if not exactly one of `url` and `path` is set, if the server or portmapper does not answer, if the export is
/// not offered (the error lists those that are), or if the path is not on an NFS mount.
pub(crate) async fn open(config: &NfsConfig) -> Result<Arc<dyn Tier>, StorageError> {
    match (&config.url, &config.path) {
        (Some(url), None) => {
            let url = NfsUrl::parse(url)?;
            check_not_zero(&url.to_string(), &[("connections", u64::from(config.connections))])?;
            let tree = Arc::new(Tree::mount(url, config).await?);
            Ok(Arc::new(NfsTier { tree }))
        }
        (None, Some(path)) => Ok(Arc::new(open_mount(path).await?)),
        _ => {
            let detail = "set exactly one of `url` (nfs://host[:port]/export) and `path` (a kernel mount)";
            Err(ErrorKind::Invalid.error("nfs", detail))
        }
    }
}

async fn open_mount(path: &Path) -> Result<NvmeTier, StorageError> {
    let given = path.display().to_string();
    let failed = |e: &std::io::Error| StorageError::from_io(&given, e);
    let root = tokio::fs::canonicalize(path).await.map_err(|e| failed(&e))?;
    let mountinfo = tokio::fs::read_to_string("/proc/self/mountinfo").await;
    let notes = mount_notes(&root, &mountinfo.map_err(|e| failed(&e))?)?;
    NvmeTier::open_with(LocalOptions {
        kind: "nfs",
        notes,
        ..LocalOptions::on_thread(&root, MOUNT_QUEUE_DEPTH, true)
    })
    .await
}

/// Mount options that affect latency, as `key` or `key=value`.
const NOTED: [&str; 14] = [
    "vers", "rsize", "wsize", "proto", "nconnect", "hard", "soft", "timeo", "retrans", "acregmin", "acregmax",
    "acdirmin", "acdirmax", "noac",
];

/// Notes on the NFS mount that holds `path`, an absolute path without links.
fn mount_notes(path: &Path, mountinfo: &str) -> Result<Vec<String>, StorageError> {
    let refuse = |what: String| {
        let hint = "mount the export first, or use `url` (user space) or the tier kind `nvme` (a local disk)";
        Err(ErrorKind::Invalid.error(path.display(), format!("{what}; {hint}")))
    };
    let Some(mount) = mount_of(mountinfo, path) else {
        return refuse("path is on no known mount".to_owned());
    };
    if mount.kind != "nfs" && mount.kind != "nfs4" {
        return refuse(format!("path is on {}, not on NFS", mount.kind));
    }
    let noted = |option: &&str| NOTED.contains(&option.split('=').next().unwrap_or_default());
    let options: Vec<&str> = mount.filesystem_options.split(',').filter(noted).collect();
    let (source, kind, options) = (mount.source, mount.kind, options.join(","));
    Ok(vec![format!("kernel mount of {source} ({kind}: {options})")])
}

#[async_trait]
impl Tier for NfsTier {
    fn info(&self) -> TierInfo {
        let (connections, bytes) = (self.tree.connections, self.tree.read_bytes);
        let note = format!("user space, NFSv3: {connections} connections, READs of up to {bytes} bytes");
        TierInfo::new("nfs", self.tree.url.to_string(), vec![note])
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let about = self.tree.name(path);
        let (_, attributes) = self.tree.object(&mut self.tree.client(&about), path).await?;
        Ok(describe(path, &attributes))
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        read::read_many(&self.tree, object, ranges).await
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.tree.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        put::put(&self.tree, path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        put::delete(&self.tree, path, false).await
    }

    async fn remove_folder(&self, path: &ObjectPath) -> Result<(), StorageError> {
        put::delete(&self.tree, path, true).await
    }
}

/// NFSv3 export, read in user space (`url`) or through a kernel mount (`path`). Set exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NfsConfig {
    /// `nfs://host[:port]/export`. The port serves NFS, and also MOUNT unless `mount_port` is set. Without a port, the
    /// portmapper is asked.
    pub url: Option<String>,
    /// Port of MOUNT, if it differs from the NFS port and there is no portmapper.
    pub mount_port: Option<u16>,
    /// Path of a kernel mount, instead of `url`.
    pub path: Option<PathBuf>,
    /// Number of connections; each multiplexes calls.
    #[serde(default = "number::<4, u32>")]
    pub connections: u32,
    /// Maximum bytes requested at a time per connection by READs of more than 64 KiB; further READs wait. A larger
    /// value hides more latency to the server; a smaller value keeps its buffers warm.
    #[serde(default = "number::<{ 8 << 20 }, u64>")]
    pub in_flight_bytes: u64,
    /// Maximum gap between ranges of a read that are read as one, in bytes; 0 joins only ranges that touch.
    #[serde(default)]
    pub coalesce_bytes: u64,
    /// User id sent to the server (default: this process's).
    pub uid: Option<u32>,
    /// Group id sent to the server (default: this process's).
    pub gid: Option<u32>,
    /// Time limit of a call including retries, in milliseconds.
    #[serde(default = "number::<5_000, u64>")]
    pub timeout_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:50 / /mnt/with\\040space rw,relatime shared:2 - nfs4 host:/export rw,vers=4.2,rsize=1048576,hard,proto=tcp,addr=10.0.0.1
41 22 0:51 / /mnt/v3 rw - nfs host:/old rw,vers=3,rsize=32768,nolock,acregmin=3
42 41 0:52 / /mnt/v3/tmp rw - tmpfs tmpfs rw";

    #[test]
    fn the_deepest_mount_counts_and_its_options_are_noted() {
        let of = |path: &str| mount_notes(Path::new(path), MOUNTINFO);
        assert_eq!(
            of("/mnt/with space/features").unwrap(),
            ["kernel mount of host:/export (nfs4: vers=4.2,rsize=1048576,hard,proto=tcp)"]
        );
        assert_eq!(
            of("/mnt/v3/x").unwrap(),
            ["kernel mount of host:/old (nfs: vers=3,rsize=32768,acregmin=3)"]
        );
        for (path, kind) in [("/mnt/v3/tmp/x", "tmpfs"), ("/srv", "ext4"), ("/mnt/v3x", "ext4")] {
            let error = of(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.detail().contains(kind), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[ -~\n]{0,200}") {
            let _ = mount_notes(Path::new("/mnt"), &text);
        }
    }
}
