//! Parts shared by the load generator and the storage bench.
//!
//! - [`host`]: the machine that measures, and its page cache
//! - [`journal`]: finished entries of a run, which survive a kill
//! - [`machine`]: the machine during a measurement
//! - [`prices`]: the prices of a run, from a price file
//! - [`progress`]: a bar, and the remaining time of a run
//! - [`units`]: formatting and parsing of numbers

pub mod host;
pub mod journal;
pub mod machine;
pub mod prices;
pub mod progress;
pub mod units;
