//! An NFSv3 server over a folder, exported as `/export`. MOUNT and NFS share one port; there is no portmapper.
//!
//! In: an address and a root folder. Out: NFSv3 over TCP. Made for tests and for the lab on loopback: every client is
//! served with the rights of this process, and locks are not supported.

mod export;
mod nodes;

use export::Export;
use nfs3_server::tcp::{NFSTcp, NFSTcpListener};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;

/// Path that clients mount.
pub const EXPORT: &str = "/export";

/// A root folder, bound to an address and ready to be served.
pub struct NfsOrigin {
    listener: NFSTcpListener<Export>,
}

impl NfsOrigin {
    /// Opens a root folder, creating it if missing, and binds an address; port 0 picks a free port.
    ///
    /// # Errors
    /// Fails if the folder cannot be opened, or the address cannot be bound.
    pub async fn bind(address: SocketAddrV4, root: &Path) -> io::Result<Self> {
        let export = Export::open(root)?;
        let mut listener = NFSTcpListener::bind(&address.to_string(), export).await?;
        listener.with_export_name(EXPORT);
        Ok(Self { listener })
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.listener.get_listen_ip(), self.listener.get_listen_port())
    }

    /// URL for clients: `nfs://127.0.0.1:PORT/export`.
    pub fn url(&self) -> String {
        format!("nfs://{}{EXPORT}", self.address())
    }

    /// Serves until `shutdown` resolves. Connections end with the runtime that this ran on.
    ///
    /// # Errors
    /// A permanent failure of the listener.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            () = shutdown => Ok(()),
            ended = self.listener.handle_forever() => ended,
        }
    }
}
