//! Tier over an Arrow Flight server, read by DoGet.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up. There are two modes, and
//! [`TierInfo::notes`](crate::TierInfo::notes) names the mode in use. A server with objects, such as `tierlab-origin`,
//! sends stored bytes, so a row's own checksum holds from the file to the reader; all operations of a tier work. Any
//! other server has typed tables: the rows of `features/NAME.rows` are laid out here, and nothing can be written. Knows
//! nothing of caches.
//!
//! Files: `ticket` has the contents of Flight's opaque fields, `payload` and `rows` the contents of batches, `schema`
//! and `status` the conversions of tables and errors; a server of objects needs these five as well. `get` has the
//! connections, retries and DoGets, `objects` the first mode, `tables` the second, and `tier` combines them.
//! Without the feature `flight` only `config` is built.
//!
//! Costs: `requests` are DoGets, `wire_bytes` the messages with their Arrow heads, `queue` the wait for one of
//! `concurrency` slots. `device` runs from sending the ticket to the last batch, including decoding, retries and
//! backoff.

mod config;
#[cfg(feature = "flight")]
mod get;
#[cfg(feature = "flight")]
mod objects;
#[cfg(feature = "flight")]
pub mod payload;
#[cfg(feature = "flight")]
pub mod rows;
#[cfg(feature = "flight")]
pub mod schema;
#[cfg(feature = "flight")]
pub mod status;
#[cfg(feature = "flight")]
mod tables;
#[cfg(feature = "flight")]
pub mod ticket;
#[cfg(feature = "flight")]
mod tier;

pub use config::{Dialect, FlightConfig};
#[cfg(feature = "flight")]
pub use tier::FlightTier;
