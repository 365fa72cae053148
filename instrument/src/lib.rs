//! Parts shared by the load generator and the storage bench.
//!
//! - [`host`]: the machine that measures
//! - [`journal`]: finished entries of a run, which survive a kill
//! - [`machine`]: the machine during a measurement
//! - [`page_cache`]: drops files from the page cache
//! - [`prices`]: the prices of a run, from a price file
//! - [`progress`]: a bar, and the remaining time of a run
//! - [`units`]: formatting and parsing of numbers

pub mod host;
pub mod journal;
pub mod machine;
pub mod page_cache;
pub mod prices;
pub mod progress;
pub mod units;
