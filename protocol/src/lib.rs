//! Wire formats between the server, its clients and the load generator, as plain data.
//!
//! In: bytes, text and numbers. Out: typed values, or an error that names the field.
//! This crate does no I/O, has no async code and is independent of tiers, sessions and load.
//!
//! - [`tensor`]: data types and shapes of the Open Inference Protocol v2
//! - [`infer`]: infer requests and replies, as JSON and with the binary tensor extension
//! - [`grpc`]: the same protocol as gRPC messages
//! - [`metadata`]: the health, server and model metadata documents
//! - [`timing`]: the stages of a request and the `Server-Timing` header
//! - [`via`]: the paths that bytes of a read took
//! - [`metrics`]: the metric names that the server exports and the load generator scrapes

pub mod grpc;
pub mod infer;
pub mod metadata;
pub mod metrics;
pub mod tensor;
pub mod timing;
pub mod via;
