//! Embedded servers for the network tiers: S3, NFSv3 and Arrow Flight.
//!
//! In: a folder and an address. Out: a real server over real sockets, until it is stopped. Made for tests and for the
//! lab on loopback; the binary `tierlab-origin` starts them. Nothing that serves inference links this crate.

pub mod cli;
mod connection;
#[cfg(feature = "flight")]
pub mod flight;
pub mod nfs;
pub mod s3;

/// Replacement of the Flight origin in builds without the feature `flight`: it cannot be opened.
#[cfg(not(feature = "flight"))]
pub mod flight {
    use std::io;
    use std::path::Path;
    use tierlab_storage::{ErrorKind, StorageError};
    use tokio::net::TcpListener;

    /// Uninhabited type.
    #[derive(Debug)]
    pub enum FlightOrigin {}

    impl FlightOrigin {
        /// Returns an error, since this build has no Flight origin.
        ///
        /// # Errors
        /// Always [`ErrorKind::Unsupported`], naming the feature to build with.
        pub async fn open(_: &Path) -> Result<Self, StorageError> {
            let what = "this build has no Flight origin: build it with `--features flight`";
            Err(StorageError::new(ErrorKind::Unsupported, "flight", what))
        }

        /// Never called, since no value of this type exists.
        ///
        /// # Errors
        /// None.
        pub async fn serve(self, _: TcpListener, _: impl Future<Output = ()>) -> io::Result<()> {
            match self {}
        }
    }
}
