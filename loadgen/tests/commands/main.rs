//! The commands that measure, through the real binary.

mod attribution;
mod lab;
mod program;
mod search;
mod sweep;
