//! Reads into device memory, run against a stand-in for NVIDIA's libraries: they prove nothing about hardware.

#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../standin/mod.rs"]
mod standin;

mod faults;
mod harness;
mod paths;
