//! The bounds of connections.

use crate::values::millis;
use serde::Deserialize;
use std::time::Duration;

/// `[connections]`: the bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Bounds {
    /// Open connections at most.
    pub(crate) max: usize,
    /// Maximum connections of one client address; by default a share of `max`.
    pub(crate) max_per_address: Option<usize>,
    /// Further connections, on which only requests for the server's health are answered.
    pub(crate) health_places: usize,
    /// Connections that may wait to be taken.
    pub(crate) backlog: u32,
    /// For a request's head to arrive; a connection without a request is closed after it.
    #[serde(rename = "header_timeout_ms", deserialize_with = "millis")]
    pub(crate) header_timeout: Duration,
    /// For a client to take the next part of a reply.
    #[serde(rename = "write_timeout_ms", deserialize_with = "millis")]
    pub(crate) write_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max: 4096,
            max_per_address: None,
            health_places: 16,
            backlog: 4096,
            header_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

impl Bounds {
    /// Maximum connections of one client address: by default enough for a proxy in front of all clients, but never all.
    pub(crate) fn per_address(&self) -> usize {
        let share = self.max - self.max / 4;
        self.max_per_address.unwrap_or(share)
    }
}
