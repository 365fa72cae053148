//! Load sent by goose's own client.
//!
//! In: an address, bodies, users or due times. Out: samples, and the times of goose's own clock. Independent of percentiles.
//!
//! - [`closed_loop`]: goose in its own loop, as many requests as users have replies
//! - [`journey`]: goose scenarios of several requests, started at due times
//! - `send`: goose's client for one server, and one request, whose reply is read to its last byte

pub mod closed_loop;
pub mod journey;
mod send;
