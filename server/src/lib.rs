//! Tierlab's inference server: the Open Inference Protocol v2 over HTTP and gRPC, with features joined from a storage tier.
//!
//! In: a configuration, listeners, a future that ends when the server shall. Out: a served model repository.
//! The way of a request is written down in one file, `pipeline.rs`; a stage knows at most its
//! right neighbour. [`config`] reads files, environment and flags; [`server`] runs.

mod access;
mod admission;
mod batch;
pub mod config;
mod connections;
mod drain;
mod features;
mod grpc;
mod heavy;
mod http;
pub mod log;
mod manage;
mod management;
mod metrics;
mod model;
mod passage;
mod pipeline;
mod refusal;
mod repository;
mod routes;
mod runtime;
mod served;
pub mod server;
mod session;
mod settings;
mod state;
mod stopwatch;
mod tensors;
mod trace;

pub use config::{Config, ConfigError, Sources};
pub use connections::listen;
pub use log::LogFormat;
pub use server::{Addresses, Listeners, ServerError, run};
