//! Cores and memory of this process, and CPU pinning of its threads.

pub(crate) mod cores;
pub(crate) mod memory;
