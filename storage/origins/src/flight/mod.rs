//! Arrow Flight server over a folder: the feature tables below it as typed columns.
//!
//! In: a listener and a root folder. Out: Flight over gRPC, without TLS. `features/NAME.rows` is the flight of the path
//! `[NAME]`. Every Flight client can list, get info, get schema and get, by the
//! [tickets](tierlab_storage::tiers::flight::message) that the tier uses too. Every reply is of one version; a ticket
//! without a version reads the newest. Made for tests on loopback: every client is served with the rights of this
//! process.
//!
//! The nvme tier reads, through the page cache; this module adds the tables, and `service` speaks Flight.

mod service;

use crate::connection::accept;
use arrow_flight::flight_service_server::FlightServiceServer;
use arrow_schema::SchemaRef;
use futures::stream;
use parking_lot::Mutex;
use service::Service;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::{ALIGN, EXTENSION, TableHeader, header_len};
use tierlab_storage::tiers::flight::message::{TableTicket, table_path};
use tierlab_storage::tiers::flight::schema;
use tierlab_storage::tiers::nvme::{LocalOptions, NvmeTier};
use tierlab_storage::tiers::remember;
use tierlab_storage::{ErrorKind, Object, ObjectPath, StorageError, Tier};
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
        let service = FlightServiceServer::new(Service { folder: self.folder })
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

/// Maximum reads in flight.
const QUEUE_DEPTH: u32 = 128;
/// Maximum tables whose headers are cached.
const MAX_OPEN: usize = 64;

/// A version of a feature table.
#[derive(Debug)]
struct Table {
    object: Object,
    header: TableHeader,
    /// [`TableHeader::header_len`], stored because it serialises the schema.
    first_row: u64,
    /// Schema of the rows as typed columns.
    schema: SchemaRef,
}

/// A root folder.
#[derive(Debug)]
struct TableFolder {
    tier: Arc<NvmeTier>,
    open: Mutex<HashMap<ObjectPath, Arc<Table>>>,
}

fn corrupt(object: &Object, detail: &impl ToString) -> StorageError {
    ErrorKind::Corrupt.error(&object.path, detail.to_string())
}

impl TableFolder {
    async fn open(root: &Path) -> Result<Self, StorageError> {
        let failed = |e: &std::io::Error| StorageError::from_io(root.display(), e);
        tokio::fs::create_dir_all(root).await.map_err(|e| failed(&e))?;
        let options = LocalOptions::on_thread(root, QUEUE_DEPTH, false);
        Ok(Self {
            tier: Arc::new(NvmeTier::open_with(options).await?),
            open: Mutex::default(),
        })
    }

    /// Opens a ticket's table, which must be of the ticket's version.
    async fn table(&self, ticket: &TableTicket) -> Result<Arc<Table>, StorageError> {
        let path = table_path(&ticket.table).map_err(|e| ErrorKind::Invalid.error("ticket", e.to_string()))?;
        let object = self.tier.stat(&path).await?;
        match &ticket.version {
            Some(version) if *version != object.version => {
                let detail = format!("the current version is {}, not {version}", object.version);
                Err(ErrorKind::Changed.error(path, detail))
            }
            _ => self.table_of(object).await,
        }
    }

    /// Returns the table of an object.
    async fn table_of(&self, object: Object) -> Result<Arc<Table>, StorageError> {
        let cached = self.open.lock().get(&object.path).cloned();
        if let Some(table) = cached.filter(|table| table.object == object) {
            return Ok(table);
        }
        let first = self.tier.read(&object, 0..object.size.min(ALIGN)).await?;
        let len = header_len(&first.bytes).map_err(|e| corrupt(&object, &e))?;
        let head = if len > first.bytes.len() as u64 && len <= object.size {
            self.tier.read(&object, 0..len).await?
        } else {
            first
        };
        let header = TableHeader::decode(&head.bytes, object.size).map_err(|e| corrupt(&object, &e))?;
        let schema = schema::of_table(&header, &object.version).map_err(|e| corrupt(&object, &e))?;
        let table = Arc::new(Table {
            first_row: header.header_len(),
            schema: Arc::new(schema),
            header,
            object,
        });
        remember(&self.open, MAX_OPEN, table.object.path.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Lists every feature table; damaged tables and other names are left out with a warning.
    async fn tables(&self) -> Result<Vec<Arc<Table>>, StorageError> {
        let features = ObjectPath::new(FEATURES_PREFIX)?;
        let mut tables = Vec::new();
        for object in self.tier.list(Some(&features)).await? {
            let path = object.path.clone();
            match self.table_of(object).await {
                Ok(table) if table_path(&table.header.schema.name).ok().as_ref() == Some(&path) => tables.push(table),
                Ok(table) => {
                    let name = &table.header.schema.name;
                    tracing::warn!(%path, "not listed: its name must be {name}.{EXTENSION}");
                }
                Err(e) => tracing::warn!("not listed: {e}"),
            }
        }
        Ok(tables)
    }
}
