//! Parts of an instrument that the load generator and the storage bench share.
//!
//! - [`units`]: numbers as people write and read them

pub mod units;
