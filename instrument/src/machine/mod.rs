//! The machine that a measurement runs on, watched while it runs.
//!
//! In: where the server is. Out: what the machine did in the step's window, and in words what foreign thing disturbed it.
//! Knows nothing of requests, nor of what becomes of a disturbed step.
//!
//! - [`watch`]: the thread that looks; `look`: one look at the counters of the kernel; `processes`: whose CPU time and storage traffic
//!   is whose; `sockets`: whether they reach other machines; `listener`: the processes of a server that somebody else started here
//! - [`quiet`]: waiting until nothing foreign disturbs it
//! - `between`: what happened between two looks; [`mod@disturbance`]: whether that is too much

mod between;
pub mod disturbance;
mod listener;
mod look;
mod processes;
pub mod quiet;
mod sockets;
pub mod watch;

pub use look::{CpuTicks, SECTOR_BYTES};
