//! Analysis of a point's latencies.
//!
//! - [`grade`]: printed percentiles, and the trust in their intervals
//! - [`mod@bands`]: composition of the latency, and growth of the backlog; [`mod@tail`]: dominant parts of the slowest
//!   requests
//! - [`distribution`]: cumulative curves, and latency over time
//! - [`objective`]: latencies compared with an objective, and good replies within a limit

pub mod bands;
pub mod distribution;
pub mod grade;
pub mod objective;
pub mod tail;
