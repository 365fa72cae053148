//! A server's address and access.
//!
//! In: URLs, and names of files and variables that hold secrets. Out: connections, ready for HTTP/1.1 or HTTP/2, and single
//! requests outside of a step. Secrets are read once, marked as such, and never part of a message. Independent of models,
//! schedules, and the content of requests.
//!
//! - [`access`](AccessSpec): host, headers, token and certificates, first by name and then read;
//!   [`TargetSpec`]: description of a server for load processes
//! - `stream`: an address, and a connection to it, with or without TLS
//! - `query`: one request and its reply, for all requests outside of a step

mod access;
mod query;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub use access::{Access, AccessSpec, Header, TargetSpec};
pub use query::{Answer, NoAnswer, Query};
pub(crate) use query::{broken, innermost};
pub use stream::{Address, Alpn, ConnectError, Endpoint, Stream};
