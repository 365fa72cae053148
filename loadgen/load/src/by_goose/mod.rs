//! Load sent by goose's own client.
//!
//! In: an address, bodies, users or due times. Out: samples, and the times of goose's own clock. Independent of percentiles.
//! Without the feature `goose` steps are described here, and their run is refused.
//!
//! - [`closed_loop`]: goose in its own loop, as many requests as users have replies
//! - [`journey`]: goose scenarios of several requests, started at due times
//! - `client`: its client for one server; `send`: a run, and one request, whose reply is read to its last byte

mod client;
pub mod closed_loop;
pub mod journey;
#[cfg(feature = "goose")]
mod send;
