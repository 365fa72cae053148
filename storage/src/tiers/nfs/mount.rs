//! Finding an export: the portmapper, the MOUNT protocol (RFC 1813, appendix I), and the caller's identity.
//!
//! In: an [`NfsUrl`]. Out: the address of the NFS server and the handle of the export's root.

use super::pool::{Limits, Pool, Repeat};
use super::rpc::Call;
use super::url::NfsUrl;
use crate::config::NfsConfig;
use crate::error::{ErrorKind, StorageError};
use crate::tier::ReadCost;
use nfs3_types::mount::{self, MOUNT_PROGRAM, dirpath, exports, mountstat3};
use nfs3_types::nfs3::{self, nfs_fh3};
use nfs3_types::portmap::{self, IPPROTO_TCP, PMAP_PORT, PMAP_PROG, mapping};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use nfs3_types::xdr_codec::{Opaque, Pack, Unpack};
use std::io::Cursor;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Where an export's server answers.
#[derive(Debug, Clone)]
pub(super) struct Server {
    url: NfsUrl,
    mount: SocketAddr,
    /// Where NFS calls go.
    pub(super) nfs: SocketAddr,
    /// Whether the ports were asked of a portmapper: such servers may trust privileged source ports only.
    pub(super) privileged: bool,
    pub(super) credential: opaque_auth<'static>,
    limit: Duration,
}

fn pack(value: &impl Pack) -> Vec<u8> {
    let mut packed = Vec::with_capacity(value.packed_size());
    // Writing to memory fails for nothing but values too large for XDR, and these are a few words.
    let _ = value.pack(&mut packed);
    packed
}

impl Server {
    /// Resolves the host and, as far as the ports are not given, asks its portmapper.
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
        let mut server = Self {
            url: url.clone(),
            mount: address,
            nfs: address,
            privileged: url.port.is_none(),
            credential: credential(config),
            limit,
        };
        if url.port.is_none() {
            let port = server.ask_port(address, nfs3::PROGRAM, nfs3::VERSION, "NFS").await?;
            server.nfs.set_port(port);
        }
        match config.mount_port {
            Some(port) => server.mount.set_port(port),
            None if url.port.is_none() => {
                let port = server
                    .ask_port(address, mount::PROGRAM, mount::VERSION, "MOUNT")
                    .await?;
                server.mount.set_port(port);
            }
            None => {}
        }
        Ok(server)
    }

    /// Those of the few calls before the first look-up.
    fn limits(&self, privileged: bool) -> Limits {
        Limits {
            connections: 1,
            in_flight_bytes: 0,
            call: self.limit,
            privileged,
        }
    }

    async fn ask_port(&self, portmapper: SocketAddr, prog: u32, vers: u32, name: &str) -> Result<u16, StorageError> {
        let about = self.url.to_string();
        let pool = Pool::new(portmapper, opaque_auth::default(), &self.limits(false));
        let call = Call {
            program: portmap::PROGRAM,
            version: portmap::VERSION,
            procedure: PMAP_PROG::PMAPPROC_GETPORT as u32,
            arguments: pack(&mapping {
                prog,
                vers,
                prot: IPPROTO_TCP,
                port: 0,
            })
            .into(),
        };
        let asked = pool
            .call(&about, &call, None, Repeat::Safe, &mut ReadCost::default())
            .await
            .map_err(|e| {
                let hint = "if the server has no portmapper, give its NFS port in the URL";
                StorageError::new(e.kind(), e.object(), format!("portmapper: {}; {hint}", e.detail()))
            })?;
        let port = u32::unpack(&mut Cursor::new(asked.body.as_ref())).map_or(0, |(port, _)| port);
        u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
            let detail =
                format!("the portmapper at {portmapper} knows no {name} version {vers} over TCP; is NFSv3 enabled?");
            StorageError::new(ErrorKind::Unavailable, about, detail)
        })
    }

    fn mount_call(procedure: MOUNT_PROGRAM, arguments: Vec<u8>) -> Call {
        Call {
            program: mount::PROGRAM,
            version: mount::VERSION,
            procedure: procedure as u32,
            arguments: arguments.into(),
        }
    }

    /// Mounts the export and returns the handle of its root.
    pub(super) async fn mount(&self) -> Result<nfs_fh3, StorageError> {
        let about = self.url.to_string();
        let pool = Pool::new(self.mount, self.credential.clone(), &self.limits(self.privileged));
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
        let detail = format!(
            "{} does not mount `{}` ({status}); {offered}",
            self.mount, self.url.export
        );
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
