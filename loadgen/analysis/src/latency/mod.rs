//! What the latencies of a point say.
//!
//! - [`grade`]: which percentiles are printed, and whether their intervals hold
//! - [`mod@bands`]: where the time went, and whether the backlog grew; [`mod@tail`]: what dominates the slowest requests
//! - [`distribution`]: cumulative curves, and latency over time
//! - [`objective`]: latencies beside an objective; [`goodput`]: the same with failed requests

pub mod bands;
pub mod distribution;
pub mod goodput;
pub mod grade;
pub mod objective;
pub mod tail;
