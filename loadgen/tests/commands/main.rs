//! The commands that measure, through the real binary.

mod lab;
mod program;
mod search;
mod sweep;
