//! Machine during a measurement: CPU, the disk below a folder, NFS mounts, and its description.

mod disk;
mod environment;
mod look;
mod nfs;

pub(crate) use disk::DiskUse;
pub(crate) use environment::Environment;
pub(crate) use look::{Look, MachineUse, Watched, own_cpu_s};
pub(crate) use nfs::NfsUse;
