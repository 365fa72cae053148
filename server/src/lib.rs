//! Tierlab's inference server: the Open Inference Protocol v2 over HTTP and gRPC, with features joined from a storage tier.
//!
//! In: a configuration, listeners, a future that ends when the server shall. Out: a served model repository.
//! The way of a request is written down in one file, `pipeline.rs`; a stage knows at most its
//! right neighbour. [`config`] reads files, environment and flags; [`server`] runs.

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

pub use config::{Config, ConfigError, Sources};
pub use error::ServerError;
pub use front::connections::listen;
pub use server::{Addresses, Listeners, run};
pub use telemetry::log;
pub use telemetry::log::LogFormat;
