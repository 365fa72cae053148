//! Tierlab's inference server: the Open Inference Protocol v2 over HTTP and gRPC, with features joined from a storage tier.
//!
//! In: a configuration, listeners, a future that ends when the server has to stop. Out: a served model repository.
//!
//! | room | what is in it |
//! |---|---|
//! | `front` | connections, the checks before every route, HTTP and gRPC |
//! | `pipeline` | the stages of a request in order, in one file |
//! | `models` | the life of a model: repository, loading, what is served, management |
//! | `inference` | ONNX Runtime, sessions, tensors |
//! | `features` | rows of feature tables as input tensors |
//! | `batch` | the queue of a model, in which requests come to share a run |
//! | `telemetry` | metrics, spans, the log |
//! | `request` | admission, refusals, stage times and input tensors of a request |
//! | `host` | cores and memory of this process |
//! | [`config`] | files, environment and flags to one validated configuration |
//!
//! A room imports rooms below it in this list only; a stage knows at most its right neighbour. [`command`] is the program, [`server`] runs.

mod batch;
pub mod command;
pub mod config;
mod error;
mod features;
mod front;
mod host;
mod inference;
mod log_budget;
mod models;
mod pipeline;
mod request;
pub mod server;
mod telemetry;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serializer};
use std::time::Duration;

pub use config::{Config, ConfigError, Sources};
pub use error::ServerError;
pub use front::connections::listen;
pub use server::{Addresses, Listeners, run};
pub use telemetry::log;
pub use telemetry::log::LogFormat;

/// Duration as a whole number of milliseconds, for `serde(with = "Millis")`.
#[derive(JsonSchema)]
#[schemars(inline, with = "u64")]
pub(crate) struct Millis;

impl Millis {
    /// Reads a duration.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(value: D) -> Result<Duration, D::Error> {
        u64::deserialize(value).map(Duration::from_millis)
    }

    /// Writes a key's default into the schema.
    pub(crate) fn serialize<S: Serializer>(default: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(default.as_millis() as u64)
    }
}
