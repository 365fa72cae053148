//! The bounds of connections.

use std::time::Duration;

/// The bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Open connections at most.
    pub(crate) max: usize,
    /// Maximum connections of one client address.
    pub(crate) max_per_address: usize,
    /// Further connections, on which only requests for the server's health are answered.
    pub(crate) health_places: usize,
    /// For a request's head to arrive; a connection without a request is closed after it.
    pub(crate) header_timeout: Duration,
    /// For a client to take the next part of a reply.
    pub(crate) write_timeout: Duration,
}
