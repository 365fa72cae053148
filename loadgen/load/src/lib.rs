//! Makes load and hands out samples: a schedule becomes requests, requests become one sample each.
//!
//! In: a schedule, bodies and an address. Out: when each request was due, was sent and was over, and how it ended. Never links the
//! server; what the two share is `tierlab-protocol`. Of `tierlab-analysis` it takes the plain records of a sample only. Knows nothing
//! of percentiles, of plans, or of files of results.
//!
//! In the order in which a step passes it:
//! - [`load`], [`arrivals`], [`keys`], [`wire`]: what is asked for, when, of which entities, and how it is written; plain data
//! - [`schedule`], [`keys`], [`payload`]: the due times, the entities and the bodies of a step
//! - [`inputs`]: what the bodies bring of tensors, by rule, from files or recorded
//! - [`pacer`]: releases requests at their due times, from a thread of its own; [`tickets`]: the queue in which users wait for them
//! - [`driver`]: goose users, each with a connection and at most one request on it; [`grpc`]: the connections of those over gRPC
//! - [`endpoint`]: what is addressed, and how; [`custom`]: requests to endpoints that do not speak the Open Inference Protocol
//! - [`by_goose`]: what goose's own client sends: closed loops, and journeys of several requests
//! - [`reply`]: what a reply must look like, and how much of one is read
//! - [`workers`]: the same by several processes, each with its share of the schedule
//! - [`live`], [`interrupt`]: who is told of a step while it runs, and who can end it
//! - [`redact`]: text without the credentials in it

pub mod arrivals;
pub mod by_goose;
pub mod custom;
pub mod driver;
pub mod endpoint;
pub mod grpc;
pub mod inputs;
pub mod interrupt;
pub mod keys;
pub mod live;
pub mod load;
pub mod pacer;
pub mod payload;
pub mod redact;
pub mod reply;
pub mod schedule;
pub mod tickets;
pub mod wire;
pub mod workers;
