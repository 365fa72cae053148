//! The measuring machine, watched during a measurement.
//!
//! In: the server's address. Out: the use of the machine in a step's window, and foreign disturbances in words. Independent of requests
//! and of the handling of disturbed steps.
//!
//! - [`watch`]: the watching thread; `counters`: one sample of the kernel's counters; `processes`: own, foreign and
//!   kernel CPU time and storage traffic; `sockets`: connections to other machines, and processes of a server started
//!   by others
//! - [`quiet`]: waits until no foreign load disturbs the machine
//! - `usage`: differences between two samples; [`mod@disturbance`]: limits on them

mod counters;
pub mod disturbance;
mod processes;
pub mod quiet;
mod sockets;
mod usage;
pub mod watch;

pub use counters::{CpuTicks, SECTOR_BYTES};
