//! Validity of a point.
//!
//! - [`littles_law`]: requests in flight, counted and by the law; [`stationarity`]: constancy of the latency
//! - [`closed_loop`]: the interactive response time law, for users who wait for their replies
//! - [`rules`]: the rules and their inputs; `growth`: replies that fall behind; [`verdict`]: their combination

pub mod closed_loop;
mod growth;
pub mod littles_law;
pub mod rules;
pub mod stationarity;
pub mod verdict;
