//! Generates load and returns samples: a schedule becomes requests, each request a sample.
//!
//! In: a schedule, bodies and an address. Out: due time, send time, end and outcome of each request. Never links the
//! server; `tierlab-protocol` holds the parts that both share. Of `tierlab-analysis` it uses only the plain records of
//! a sample. Knows nothing of percentiles, of plans, or of result files.
//!
//! In the order of a step:
//! - [`arrivals`], [`keys`]: arrivals and entities of requests; plain data
//! - [`schedule`], [`keys`], [`payload`]: the load and its due times, the entities, and the bodies of a step in their encoding
//! - [`recording`]: recorded requests with their times, read from logs and traces
//! - [`inputs`]: tensors of the bodies, by rule, from files or recorded; [`element`]: their elements
//! - [`pacer`]: releases requests at their due times, from its own thread; [`tickets`]: the queue in which users wait
//!   for them
//! - [`driver`]: users, each with a connection and at most one request on it; [`grpc`]: the shared connections
//!   over gRPC
//! - [`endpoint`]: addresses and access; [`custom`]: requests to endpoints that do not speak the Open Inference
//!   Protocol
//! - [`by_goose`]: load sent by goose's own client: closed loops, and journeys of several requests
//! - [`reply`]: expectations for replies, and limits on their length
//! - [`workers`]: load from several processes, each with its share of the schedule
//! - [`live`], [`interrupt`]: live view of a step, and its interruption
//! - [`null_endpoint`]: server that does nothing, for noise floors
//! - `template`: text with placeholders; [`redact`]: text without credentials

// Closed loops and journeys are described in every build, and run by goose alone.
#![cfg_attr(
    not(feature = "goose"),
    allow(dead_code, unused_imports, reason = "only goose runs them")
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod arrivals;
pub mod by_goose;
pub mod custom;
pub mod driver;
pub mod element;
pub mod endpoint;
pub mod grpc;
pub mod inputs;
pub mod interrupt;
pub mod keys;
pub mod live;
pub mod null_endpoint;
pub mod pacer;
pub mod payload;
pub mod recording;
pub mod redact;
pub mod reply;
pub mod schedule;
mod template;
pub mod tickets;
pub mod workers;

/// Locks a mutex, also if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
