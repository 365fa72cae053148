//! S3 server over a folder: each sub-folder is a bucket, each file below it an object.
//!
//! In: a listener and a root folder. Out: the object calls of S3 (ranges, conditions, listings, multipart uploads),
//! signed with the test credentials or unsigned, with the bucket in the path or, below `localhost`, in the host's name.
//! The origin can be slowed down and made to fail ([`FaultPlan`]). Made for tests and for the lab on loopback: no versions, no
//! access control lists, no encryption, and of the checksums only Content-MD5 is checked.

mod backend;
mod body;
mod faults;
mod folder;
mod listing;
mod shaped;

pub use faults::{FaultPlan, Faults};

use crate::connection::accept;
use backend::Backend;
use folder::{Folder, FolderError};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::S3Result;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::host::{S3Host, VirtualHost};
use s3s::service::S3ServiceBuilder;
use shaped::Shaped;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Access key of the origin.
pub const ACCESS_KEY: &str = "tierlab";
/// Its secret key. Public: the origin serves test data on loopback.
pub const SECRET_KEY: &str = "tierlab-secret";

/// Connections served at a time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// Time limit for requests in flight at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a client to send a request's head.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// A root folder, ready to be served.
#[derive(Debug, Clone)]
pub struct S3Origin {
    folder: Arc<Folder>,
    faults: Faults,
}

impl S3Origin {
    /// Opens a root folder, creating it if missing. Blocking.
    ///
    /// # Errors
    /// A folder that cannot be created or written.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self {
            folder: Arc::new(Folder::open(root)?),
            faults: Faults::default(),
        })
    }

    /// Returns the faults of the origin (initially none); they can be set at any time.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Creates a bucket unless it exists. Blocking.
    ///
    /// # Errors
    /// An invalid bucket name, or a folder that cannot be created.
    pub fn ensure_bucket(&self, bucket: &str) -> io::Result<()> {
        match self.folder.create_bucket(bucket) {
            Ok(()) | Err(FolderError::BucketExists) => Ok(()),
            Err(FolderError::Io(e)) => Err(e),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("invalid bucket name: `{bucket}`; use 3 to 63 of a-z, 0-9, `-` and `.`, without a leading dot"),
            )),
        }
    }

    /// Serves until `shutdown` resolves, then waits for the requests in flight.
    ///
    /// # Errors
    /// Fails if the listener fails permanently.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let mut builder = S3ServiceBuilder::new(Backend { folder: self.folder });
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        builder.set_access(AllowUnsigned);
        builder.set_host(LocalhostBuckets);
        let service = builder.build();
        let graceful = GracefulShutdown::new();
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let stream = tokio::select! {
                () = &mut shutdown => break,
                accepted = accept(&listener, &slots) => accepted?,
            };
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
            let shaped = Shaped {
                inner: service.clone(),
                faults: self.faults.clone(),
                reset: Arc::clone(&stream.reset),
            };
            let connection = builder.serve_connection(TokioIo::new(stream), shaped).into_owned();
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(e) = connection.await {
                    tracing::debug!("S3 origin: connection: {e}");
                }
            });
        }
        drop(listener);
        if tokio::time::timeout(DRAIN_LIMIT, graceful.shutdown()).await.is_err() {
            tracing::warn!("S3 origin: requests still in flight after {DRAIN_LIMIT:?} are cut off");
        }
        Ok(())
    }
}

/// `bucket.localhost` names a bucket; for any other host, the path does.
struct LocalhostBuckets;

impl S3Host for LocalhostBuckets {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.split_once(':').map_or(host, |(name, _)| name);
        Ok(match name.strip_suffix(".localhost") {
            Some(bucket) => VirtualHost::new("localhost").with_bucket(bucket),
            None => VirtualHost::new(host),
        })
    }
}

/// Accepts unsigned requests. Wrong signatures are refused before this is called.
struct AllowUnsigned;

#[async_trait::async_trait]
impl S3Access for AllowUnsigned {
    async fn check(&self, _: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }
}
