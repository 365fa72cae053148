//! Tiers, one folder or file each: TOML keys, opening, reading.

pub mod flight;
pub mod gds;
pub mod memory;
pub mod nfs;
pub mod nvme;
pub mod s3;
mod source;
