//! Attacks, for the tests and for the soak.
//!
//! Messages, connections and graphs that are small for a client and costly for a server that does not look. Nothing here knows
//! who uses it.

pub(crate) mod connections;
pub(crate) mod graphs;
pub(crate) mod messages;
