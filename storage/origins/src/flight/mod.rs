//! Arrow Flight server over a folder: the feature tables below it as typed columns.
//!
//! In: a listener and a root folder. Out: Flight over gRPC, without TLS. `features/NAME.rows` is the flight of the path
//! `[NAME]`. Every Flight client can list, get info, get schema and get, by the
//! [tickets](tierlab_storage::tiers::flight::message) that the tier uses too. Every reply is of one version; a ticket
//! without a version reads the newest. Made for tests on loopback: every client is served with the rights of this
//! process.
//!
//! `folder` has the tables, and `service` speaks Flight.

mod folder;
mod service;

use crate::connection::accept;
use arrow_flight::flight_service_server::FlightServiceServer;
use folder::TableFolder;
use futures::stream;
use service::Service;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_storage::StorageError;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::transport::Server;

/// Maximum bytes of a client's message: a ticket of some hundred thousand ids.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Connections served at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum calls in flight per connection.
const MAX_STREAMS: u32 = 256;
/// Time limit for calls in flight at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// A root folder, ready to be served.
#[derive(Debug, Clone)]
pub struct FlightOrigin {
    folder: Arc<TableFolder>,
}

impl FlightOrigin {
    /// Opens a root folder, creating it if missing.
    ///
    /// # Errors
    /// A folder that cannot be created or opened.
    pub async fn open(root: &Path) -> Result<Self, StorageError> {
        let folder = Arc::new(TableFolder::open(root).await?);
        Ok(Self { folder })
    }

    /// Serves until `shutdown` resolves, then waits for the calls in flight.
    ///
    /// # Errors
    /// Fails if the listener fails permanently.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let service = FlightServiceServer::new(Service::new(self.folder))
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(usize::MAX);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let incoming = stream::unfold((listener, slots), |(listener, slots)| async move {
            Some((accept(&listener, &slots).await, (listener, slots)))
        });
        let server = Server::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, async {
                // Shutdown was requested, or its sender is gone.
                let _ = stopped.await;
            });
        let mut server = std::pin::pin!(server);
        tokio::select! {
            ended = &mut server => return ended.map_err(io::Error::other),
            () = shutdown => drop(stop),
        }
        match tokio::time::timeout(DRAIN_LIMIT, server).await {
            Ok(ended) => ended.map_err(io::Error::other),
            Err(_) => {
                tracing::warn!("Flight origin: calls still in flight after {DRAIN_LIMIT:?} are cut off");
                Ok(())
            }
        }
    }
}
