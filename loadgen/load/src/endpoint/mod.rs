//! What is addressed: a server's address, and how it is asked there.
//!
//! In: URLs, and names of files and variables that hold what must stay secret. Out: connections, ready for HTTP/1.1 or HTTP/2, and
//! single requests outside of a step. What is secret is read once, is marked as such, and is in no text that this room makes.
//! Knows nothing of models, of schedules, or of what requests hold.
//!
//! - `address`: a URL taken apart; [`access`](AccessSpec): host, headers, token and certificates, first by name and then read
//! - `tls`: certificates to a configuration; `stream`: a connection, with TLS or without
//! - `ask`: one request and its reply, for everything that is asked while no clock runs
//! - `target`: all of a server that a load process has to be told

mod access;
mod address;
mod ask;
mod stream;
mod target;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tls;

pub use access::{Access, AccessSpec, Header, Identity, TokenSource};
pub use address::Address;
pub use ask::{Answer, Ask, Unanswered};
pub use stream::{Endpoint, Stream};
pub use target::TargetSpec;
pub use tls::Alpn;
