//! Finding an export: its server, the MOUNT protocol (RFC 1813, appendix I), and the caller's identity.
//!
//! In: an [`NfsUrl`]. Out: the address of the NFS server and the handle of the export's root.

use super::address::Address;
use super::config::NfsConfig;
use super::pool::{Limits, Pool, Repeat};
use super::portmap::{Portmapper, Program};
use super::rpc::{Call, pack};
use super::url::NfsUrl;
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use bytes::Bytes;
use nfs3_types::mount::{self, MOUNT_PROGRAM, dirpath, exports, mountstat3};
use nfs3_types::nfs3::{self, nfs_fh3};
use nfs3_types::portmap::PMAP_PORT;
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Unpack};
use std::io::Cursor;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

const NFS: Program = Program {
    number: nfs3::PROGRAM,
    version: nfs3::VERSION,
    name: "NFS",
};
const MOUNT: Program = Program {
    number: mount::PROGRAM,
    version: mount::VERSION,
    name: "MOUNT",
};

/// An export's server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    url: NfsUrl,
    /// Address with the configured port, or that of the portmapper.
    host: SocketAddr,
    mount_port: Option<u16>,
    /// True if a portmapper gives the ports; such servers may trust privileged source ports only.
    pub(super) privileged: bool,
    pub(super) credential: opaque_auth<'static>,
    limit: Duration,
}

impl Server {
    /// Resolves the host.
    pub(super) async fn find(url: &NfsUrl, config: &NfsConfig, limit: Duration) -> Result<Self, StorageError> {
        let about = url.to_string();
        let unresolved = |what: String| {
            StorageError::new(
                ErrorKind::Unavailable,
                about.as_str(),
                format!("cannot resolve `{}`: {what}", url.host),
            )
        };
        let port = url.port.unwrap_or(PMAP_PORT);
        let lookup = tokio::time::timeout(limit, tokio::net::lookup_host((url.host.as_str(), port))).await;
        let mut found = lookup
            .map_err(|_| unresolved("no answer in time".to_owned()))?
            .map_err(|e| unresolved(e.to_string()))?;
        let address = found.next().ok_or_else(|| unresolved("it has no address".to_owned()))?;
        Ok(Self {
            url: url.clone(),
            host: address,
            mount_port: config.mount_port.or(url.port),
            privileged: url.port.is_none(),
            credential: credential(config),
            limit,
        })
    }

    /// Address for NFS calls.
    pub(super) async fn nfs(&self) -> Result<Address, StorageError> {
        self.program(NFS, self.url.port).await
    }

    async fn program(&self, program: Program, port: Option<u16>) -> Result<Address, StorageError> {
        let mut address = self.host;
        address.set_port(port.unwrap_or(PMAP_PORT));
        if port.is_some() {
            return Ok(address.into());
        }
        let portmapper = Portmapper {
            address,
            program,
            about: self.url.to_string(),
        };
        Address::resolved(portmapper, self.limit).await
    }

    /// Limits of the few calls before the first look-up.
    fn limits(&self) -> Limits {
        Limits {
            connections: 1,
            in_flight_bytes: 0,
            call: self.limit,
            privileged: self.privileged,
        }
    }

    fn mount_call(procedure: MOUNT_PROGRAM, arguments: Vec<u8>) -> Call {
        Call {
            program: mount::PROGRAM,
            version: mount::VERSION,
            procedure: procedure as u32,
            arguments,
            data: Bytes::new(),
        }
    }

    /// Mounts the export and returns the handle of its root.
    pub(super) async fn mount(&self) -> Result<nfs_fh3, StorageError> {
        let about = self.url.to_string();
        // Asked for each time: that is rare, and a server that restarted may have another port.
        let address = self.program(MOUNT, self.mount_port).await?;
        let server = address.get();
        let pool = Pool::new(address, &self.credential, &self.limits());
        let path = pack(&dirpath(Opaque::borrowed(self.url.export.as_bytes())));
        let call = Self::mount_call(MOUNT_PROGRAM::MOUNTPROC3_MNT, path);
        let reply = pool
            .call(&about, &call, None, Repeat::Safe, &mut ReadCost::default())
            .await?;
        let mut cursor = Cursor::new(reply.body.as_ref());
        let garbled = |_| StorageError::new(ErrorKind::Unavailable, about.as_str(), "the reply to MOUNT is garbled");
        let (status, _) = mountstat3::unpack(&mut cursor).map_err(garbled)?;
        let kind = match status {
            mountstat3::MNT3_OK => {
                let (data, _) = Opaque::unpack(&mut cursor).map_err(garbled)?;
                return Ok(nfs_fh3 { data });
            }
            mountstat3::MNT3ERR_NOENT | mountstat3::MNT3ERR_NOTDIR => ErrorKind::NotFound,
            mountstat3::MNT3ERR_PERM | mountstat3::MNT3ERR_ACCES => ErrorKind::Denied,
            _ => ErrorKind::Unavailable,
        };
        let offered = match self.exports(&pool).await {
            Some(names) => format!("it exports {}", names.join(", ")),
            None => "it does not tell its exports".to_owned(),
        };
        let detail = format!("{server} does not mount `{}` ({status}); {offered}", self.url.export);
        Err(StorageError::new(kind, about, detail))
    }

    async fn exports(&self, pool: &Pool) -> Option<Vec<String>> {
        let call = Self::mount_call(MOUNT_PROGRAM::MOUNTPROC3_EXPORT, Vec::new());
        let reply = pool
            .call("", &call, None, Repeat::Safe, &mut ReadCost::default())
            .await
            .ok()?;
        let (listed, _) = exports::unpack(&mut Cursor::new(reply.body.as_ref())).ok()?;
        Some(
            listed
                .0
                .iter()
                .map(|node| String::from_utf8_lossy(&node.ex_dir.0).into_owned())
                .collect(),
        )
    }
}

/// AUTH_SYS: the ids configured, or those of this process.
fn credential(config: &NfsConfig) -> opaque_auth<'static> {
    let own = std::fs::metadata("/proc/self").map_or((65_534, 65_534), |meta| (meta.uid(), meta.gid()));
    opaque_auth::auth_unix(&auth_unix {
        stamp: 0,
        machinename: Opaque::borrowed(b"tierlab"),
        uid: config.uid.unwrap_or(own.0),
        gid: config.gid.unwrap_or(own.1),
        gids: Vec::new(),
    })
}
