//! Cores and memory of this process, and the CPUs of its threads.

pub(crate) mod cores;
pub(crate) mod memory;
