//! The tiers, one folder or file each: what its TOML says, how it is opened, how it reads.

pub mod flight;
pub mod gds;
pub mod memory;
pub mod nfs;
pub mod nvme;
pub mod s3;
mod source;
