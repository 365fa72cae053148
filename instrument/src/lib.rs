//! Parts of an instrument that the load generator and the storage bench share.
//!
//! - [`journal`]: the finished entries of a run, which outlive a kill
//! - [`machine`]: what a machine does beside a measurement
//! - [`progress`]: a bar, and how long a run still takes
//! - [`units`]: numbers as people write and read them

pub mod journal;
pub mod machine;
pub mod progress;
pub mod units;
