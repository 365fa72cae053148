//! Tier over an Arrow Flight server of typed feature tables, read by DoGet; nothing can be written.
//!
//! In: paths `features/NAME.rows` and ranges of them. Out: the bytes of the file that the table would be: a header made of
//! the Arrow schema, and rows laid out and sealed here as they arrive. Knows nothing of caches.
//!
//! Requirements on the server: GetFlightInfo of the path `[NAME]` returns a schema with an int64 column of ids and the
//! number of rows (`rows` in the schema's metadata, or the info's `total_records`). `first_id` in the metadata is the
//! id of the first row (default: 0); ids are consecutive. DoGet of `{"table":NAME,"ids":[…]}` sends these rows in this
//! order, with the column of ids. If the metadata has a `version`, any replaced table is detected. Without a `version`,
//! only a change of schema, row count or metadata is detected.
//!
//! Files: `ticket` has the JSON of tickets, `message` the checksums and bounds of messages, `rows`, `schema` and `status`
//! the conversions of rows, tables and errors; a server needs these five as well. `link` has the connections and retries,
//! `table` a table as it was looked up, `get` one DoGet, and `tier` combines them. Without the feature `flight` only
//! `config` is built.
//!
//! Costs: `requests` are DoGets, `wire_bytes` the messages with their Arrow heads, `queue` the wait for one of
//! `concurrency` slots. `device` runs from sending the ticket to the last batch, including decoding, retries and
//! backoff; `copy` is the joining of rows to the ranges.

mod config;
#[cfg(feature = "flight")]
mod get;
#[cfg(feature = "flight")]
mod link;
#[cfg(feature = "flight")]
pub mod message;
#[cfg(feature = "flight")]
pub mod rows;
#[cfg(feature = "flight")]
pub mod schema;
#[cfg(feature = "flight")]
pub mod status;
#[cfg(feature = "flight")]
mod table;
#[cfg(feature = "flight")]
pub mod ticket;
#[cfg(feature = "flight")]
mod tier;

pub use config::FlightConfig;
#[cfg(feature = "flight")]
pub use tier::FlightTier;
