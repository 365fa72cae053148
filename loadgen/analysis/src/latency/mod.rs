//! What the latencies of a point say.
//!
//! - [`availability`]: what dependence is assumed when it is decided which percentiles are printed
//! - [`mod@bands`]: where the time went, and whether the backlog grew; [`mod@tail`]: what dominates the slowest requests
//! - [`distribution`]: cumulative curves, and latency over time; [`goodput`]: requests within a latency limit

pub mod availability;
pub mod bands;
pub mod distribution;
pub mod goodput;
pub mod tail;
