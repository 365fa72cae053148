//! Commands, one file or folder each.

pub mod advise;
pub mod agent;
pub mod answer;
pub mod init;
pub mod judge;
pub mod lab;
pub mod report;
pub mod run_options;
pub mod sweep;
pub mod target_options;
