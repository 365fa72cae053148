//! What the rooms of Tierlab say to each other and to their clients, as plain data.
//!
//! In: bytes, text and numbers. Out: typed values, or an error that names the field.
//! This crate does no I/O, has no async code and knows nothing of tiers, sessions or load.
//!
//! - [`tensor`]: data types and shapes of the Open Inference Protocol v2
//! - [`infer`]: infer requests and replies, as JSON and with the binary tensor extension
//! - [`grpc`]: the same protocol as gRPC messages
//! - [`metadata`]: the health, server and model metadata documents
//! - [`model`]: a model's `config.toml` and its manifest
//! - [`pbtxt`]: the text format of protocol buffers, and Triton's `config.pbtxt` in it
//! - [`table`]: the feature-table file format
//! - [`timing`]: the stages of a request and the `Server-Timing` header
//! - [`via`]: how a read got its bytes
//! - [`metrics`]: the metric names that the server exports and the load generator scrapes

pub mod grpc;
pub mod infer;
pub mod metadata;
pub mod metrics;
pub mod model;
pub mod pbtxt;
pub mod table;
pub mod tensor;
pub mod timing;
pub mod via;
