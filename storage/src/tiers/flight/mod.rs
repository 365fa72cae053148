//! An Arrow Flight server, read by DoGet.
//!
//! In: object paths and ranges. Out: bytes of the version that was looked up. There are two ways, and
//! [`TierInfo::notes`](crate::TierInfo::notes) tells which it is. A server that has objects, as `tierlab-origin`, sends the ranges as they lie
//! there, so a row's own checksum holds from the file to the reader, and does everything that a tier can. Any other
//! server has typed tables: the rows of `features/NAME.rows` are laid out here, and nothing can be written. Knows nothing
//! of caches.
//!
//! The files: `ticket` has what is said in Flight's opaque fields, `payload` and `rows` what batches hold, `schema` how
//! tables and Arrow's schemas translate, `status` how errors do; a server of objects needs these five as well. `link` has
//! the connections and repeats, `get` one DoGet, `fill` how reads are cut, `objects` and `put` the first way, `tables` the
//! second, and `tier` puts them together. Without the feature `flight` only `config` is built.
//!
//! Costs: `requests` are DoGets, `wire_bytes` the messages with their Arrow heads, `queue` the wait for one of
//! `concurrency` slots; `device` runs from sending the ticket to the last batch and contains decoding, repeats and backoff.

mod config;
#[cfg(feature = "flight")]
mod fill;
#[cfg(feature = "flight")]
mod get;
#[cfg(feature = "flight")]
mod link;
#[cfg(feature = "flight")]
mod objects;
#[cfg(feature = "flight")]
pub mod payload;
#[cfg(feature = "flight")]
mod put;
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
