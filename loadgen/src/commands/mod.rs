//! Commands, one file or folder each.

pub mod advise;
pub mod agent;
pub mod agents_options;
pub mod answer;
pub mod foreign;
pub mod init;
pub mod judge;
pub mod lab;
mod planless;
pub mod report;
mod resized;
pub mod run_options;
pub mod selfcheck;
pub mod sweep;
pub mod target_options;
pub mod trace;
