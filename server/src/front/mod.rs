//! Front: connections, the checks before every route, and the two protocols.
//!
//! In: listeners. Out: replies. HTTP and gRPC read and write messages; the pipeline answers requests.

pub(crate) mod access;
pub(crate) mod body_pieces;
pub(crate) mod connections;
pub(crate) mod grpc;
pub(crate) mod http;
mod reply;
pub(crate) mod routes;
pub(crate) mod state;
pub(crate) mod triton_settings;
