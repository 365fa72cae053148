//! The measuring machine, watched during a measurement.
//!
//! In: the server's address. Out: the use of the machine in a step's window, and foreign disturbances in words. Independent of requests
//! and of the handling of disturbed steps.
//!
//! - [`watch`]: the watching thread; `look`: one look at the kernel's counters; `processes`: own, foreign and kernel CPU time and
//!   storage traffic; `sockets`: connections to other machines, and processes of a server started by others
//! - [`quiet`]: waits until no foreign load disturbs the machine
//! - `between`: differences between two looks; [`mod@disturbance`]: limits on them

mod between;
pub mod disturbance;
mod look;
mod processes;
pub mod quiet;
mod sockets;
pub mod watch;

pub use look::{CpuTicks, SECTOR_BYTES};
