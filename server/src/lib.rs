//! Tierlab's inference server: the Open Inference Protocol v2 over HTTP and gRPC, with features joined from a storage tier.
//!
//! In: a configuration, listeners, a future that ends when the server is to stop. Out: a served model repository.
//!
//! | room | what is in it |
//! |---|---|
//! | `front` | connections, the checks before every route, HTTP and gRPC |
//! | `pipeline` | the stages of a request in order, in one file; admission, the batch queue, refusals |
//! | `models` | the life of a model: repository, loading, what is served, management |
//! | `features` | rows of feature tables as input tensors |
//! | `inference` | ONNX Runtime, sessions, tensors |
//! | `telemetry` | metrics, spans, the log |
//! | [`config`] | files, environment and flags to one validated configuration |
//!
//! A stage knows at most its right neighbour. [`command`] is the program, [`server`] runs.

pub mod command;
pub mod config;
mod drain;
mod error;
mod features;
mod front;
mod inference;
mod models;
mod pipeline;
pub mod server;
mod telemetry;
mod values;

pub use config::{Config, ConfigError, Sources};
pub use error::ServerError;
pub use front::connections::listen;
pub use server::{Addresses, Listeners, run};
pub use telemetry::log;
pub use telemetry::log::LogFormat;
