//! The commands that measure, through the real binary.

mod attribution;
mod hosts;
mod lab;
mod nonsense;
mod program;
mod search;
mod sweep;
