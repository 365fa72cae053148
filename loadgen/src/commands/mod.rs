//! The commands, one file or folder each.

pub mod coverage;
pub mod lab;
pub mod merge;
pub mod report;
pub mod selfcheck;
pub mod simulate_lab;
pub mod sweep;
pub mod trace;
