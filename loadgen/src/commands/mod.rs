//! Commands, one file or folder each.

pub mod advise;
pub mod init;
pub mod judge;
pub mod lab;
pub mod options;
pub mod report;
pub mod sweep;
