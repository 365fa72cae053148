//! Statistics of latencies that know nothing of runs.
//!
//! - [`percentile`]: histograms of latencies, and percentiles over many of them
//! - [`sections`], [`student`]: 95 % intervals over repeats; [`inversion`]: intervals of percentiles, and
//!   gaps
//! - [`dependence`]: dependence of samples on each other

pub mod dependence;
pub mod inversion;
pub mod percentile;
pub mod sections;
pub mod student;
