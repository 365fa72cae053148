//! The machine that a measurement runs on, watched while it runs.
//!
//! In: the server's address. Out: the use of the machine in a step's window, and foreign disturbances in words. Knows nothing of
//! requests, nor of what becomes of a disturbed step.
//!
//! - [`watch`]: the thread that looks; `look`: one look at the counters of the kernel; `processes`: own, foreign and kernel CPU time and
//!   storage traffic; `sockets`: connections to other machines, and processes of a server that others started here
//! - [`quiet`]: waits until nothing foreign disturbs it
//! - `between`: differences between two looks; [`mod@disturbance`]: limits on them

mod between;
pub mod disturbance;
mod look;
mod processes;
pub mod quiet;
mod sockets;
pub mod watch;

pub use look::{CpuTicks, SECTOR_BYTES};
