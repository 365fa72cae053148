//! Parts of an instrument that the load generator and the storage bench share.
//!
//! - [`machine`]: what a machine does beside a measurement
//! - [`units`]: numbers as people write and read them

pub mod machine;
pub mod units;
