//! In the place of the Flight origin in a build without the feature `flight`: it cannot be opened.

use std::io;
use std::path::Path;
use tierlab_storage::{ErrorKind, StorageError};
use tokio::net::TcpListener;

/// Never there.
#[derive(Debug)]
pub enum FlightOrigin {}

impl FlightOrigin {
    /// Refuses.
    ///
    /// # Errors
    /// Always: which feature to build with.
    pub async fn open(_: &Path) -> Result<Self, StorageError> {
        let what = "this build has no Flight origin: build it with `--features flight`";
        Err(StorageError::new(ErrorKind::Unsupported, "flight", what))
    }

    /// There is none to serve.
    ///
    /// # Errors
    /// None.
    pub async fn serve(self, _: TcpListener, _: impl Future<Output = ()>) -> io::Result<()> {
        match self {}
    }
}
