//! Validity of a point.
//!
//! - [`laws`]: requests in flight, counted and by Little's law; the law of users who wait for their replies
//! - [`stationarity`]: constancy of the latency
//! - [`rules`]: the rules and their inputs; `growth`: replies that fall behind; [`verdict`]: their combination

mod growth;
pub mod laws;
pub mod rules;
pub mod stationarity;
pub mod verdict;
