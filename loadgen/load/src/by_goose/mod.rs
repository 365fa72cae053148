//! What goose's own client sends.
//!
//! In: an address, bodies, users or due times. Out: samples, and what goose's own clock said. Knows nothing of percentiles.
//!
//! - [`closed_loop`]: goose in its own loop, as many requests as users have replies
//! - [`journey`]: goose scenarios of several requests, begun at due times
//! - `attack`: how both are run, and one reply read to its last byte; `client`: goose's client, for one server

mod attack;
mod client;
pub mod closed_loop;
pub mod journey;
