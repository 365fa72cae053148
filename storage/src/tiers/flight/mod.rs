//! Read-only tier over an Arrow Flight server of typed feature tables, read by DoGet.
//!
//! In: paths `features/NAME.rows` and ranges of them. Out: the bytes that the table has as a file: a header built from
//! the Arrow schema, and rows laid out and sealed here as they arrive. Knows nothing of caches.
//!
//! Requirements on the server: GetFlightInfo of the path `[NAME]` returns a schema with an int64 column of ids and the
//! number of rows (`rows` in the schema's metadata, or the info's `total_records`). `first_id` in the metadata is the
//! id of the first row (default: 0); ids are consecutive. DoGet of `{"table":NAME,"ids":[…]}` sends these rows in this
//! order, with the column of ids. If the metadata has a `version`, any replaced table is detected. Without a `version`,
//! only a change of schema, row count or metadata is detected.
//!
//! Files: `message` has tickets, the checksums and bounds of messages, and the conversion of errors, `rows` and `schema`
//! the conversions of rows and tables; a server needs these three as well. `link` has the connections and retries, and
//! `tier` combines them. Without the feature `flight` only the configuration is built.
//!
//! Costs: `requests` are DoGets, `wire_bytes` the messages with their Arrow headers, `queue` the wait for one of
//! `concurrency` slots. `device` runs from sending the ticket to the last batch, including decoding, retries and
//! backoff; `copy` is the time to join rows into ranges.

use crate::tiers::number;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "flight")]
mod link;
#[cfg(feature = "flight")]
pub mod message;
#[cfg(feature = "flight")]
pub mod rows;
#[cfg(feature = "flight")]
pub mod schema;
#[cfg(feature = "flight")]
mod tier;

#[cfg(feature = "flight")]
pub use tier::FlightTier;

/// Default of `id_column`.
const ID_COLUMN: &str = "entity_id";

/// An Arrow Flight server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlightConfig {
    /// `grpc://host:port`.
    pub url: String,
    /// Int64 column of entity ids.
    #[serde(default = "default_id_column")]
    pub id_column: String,
    /// Number of connections; each multiplexes calls.
    #[serde(default = "number::<4, u32>")]
    pub connections: u32,
    /// Maximum DoGets in flight.
    #[serde(default = "number::<64, u32>")]
    pub concurrency: u32,
    /// Maximum rows per DoGet; longer reads become several concurrent DoGets.
    #[serde(default = "number::<4096, u32>")]
    pub ranges_per_request: u32,
    /// Maximum bytes per DoGet; longer reads become several concurrent DoGets.
    #[serde(default = "number::<{ 8 << 20 }, u64>")]
    pub part_bytes: u64,
    /// Maximum size of a message in bytes; a message holds one batch.
    #[serde(default = "number::<{ 64 << 20 }, u64>")]
    pub max_message_bytes: u64,
    /// Maximum retries of a call after a transient failure.
    #[serde(default = "number::<5, u32>")]
    pub retries: u32,
    /// Time limit of a call including retries, in milliseconds.
    #[serde(default = "number::<5_000, u64>")]
    pub timeout_ms: u64,
    /// Maximum silence of a server, in milliseconds, before the call is retried on a new connection.
    #[serde(default = "number::<1_000, u64>")]
    pub attempt_ms: u64,
}

fn default_id_column() -> String {
    ID_COLUMN.to_owned()
}
