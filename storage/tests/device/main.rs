//! Reads into device memory, run against a stand-in for NVIDIA's libraries: nothing here says anything of hardware.

#[path = "../standin/mod.rs"]
mod standin;

mod bed;
mod faults;
mod paths;
mod processes;
