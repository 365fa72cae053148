//! Address of a server's program. In: an address, or a resolver. Out: the address, resolved again if it stops
//! answering.

use crate::error::StorageError;
use futures::future::BoxFuture;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time limit for resolving again: the program may be back at its old port before the resolver is.
const AGAIN_LIMIT: Duration = Duration::from_secs(1);

/// Resolver of a program's current address.
pub(super) trait Resolve: fmt::Debug + Send + Sync {
    fn resolve(&self, limit: Duration) -> BoxFuture<'_, Result<SocketAddr, StorageError>>;
}

/// An address that may change.
#[derive(Debug)]
pub(super) struct Address {
    known: Mutex<SocketAddr>,
    resolver: Option<Box<dyn Resolve>>,
}

impl From<SocketAddr> for Address {
    fn from(fixed: SocketAddr) -> Self {
        Self {
            known: Mutex::new(fixed),
            resolver: None,
        }
    }
}

impl Address {
    /// Asks a resolver, within a limit.
    pub(super) async fn resolved(resolver: impl Resolve + 'static, limit: Duration) -> Result<Self, StorageError> {
        let known = resolver.resolve(limit).await?;
        Ok(Self {
            known: Mutex::new(known),
            resolver: Some(Box::new(resolver)),
        })
    }

    // Nothing panics while the lock is held.
    fn lock(&self) -> MutexGuard<'_, SocketAddr> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self) -> SocketAddr {
        *self.lock()
    }

    /// Returns another address, if there is one, after `tried` did not answer.
    pub(super) async fn instead_of(&self, tried: SocketAddr) -> Option<SocketAddr> {
        let moved = |address: SocketAddr| (address != tried).then_some(address);
        if let Some(address) = moved(self.get()) {
            return Some(address);
        }
        match self.resolver.as_ref()?.resolve(AGAIN_LIMIT).await {
            Ok(address) => {
                *self.lock() = address;
                moved(address)
            }
            Err(error) => {
                tracing::debug!("{error}");
                None
            }
        }
    }
}
