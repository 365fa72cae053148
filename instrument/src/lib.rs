//! Parts of an instrument that the load generator and the storage bench share.
//!
//! - [`host`]: the machine that measures
//! - [`journal`]: the finished entries of a run, which outlive a kill
//! - [`machine`]: the machine beside a measurement
//! - [`page_cache`]: files dropped from it
//! - [`prices`]: the prices of a run, from a price file
//! - [`progress`]: a bar, and the remaining time of a run
//! - [`units`]: numbers as people write and read them

pub mod host;
pub mod journal;
pub mod machine;
pub mod page_cache;
pub mod prices;
pub mod progress;
pub mod units;
