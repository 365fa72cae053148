//! NVIDIA devices: search for their libraries, one CUDA context, memory on both sides, and the paths from an open file
//! into it, cuFile among them. In: a device's number; files. Out: memory on the device that holds their bytes.
//!
//! Everything is loaded at run time, so that this builds and is tested without a CUDA toolkit. Without the libraries a
//! start fails with one error that lists every file that was tried. The tests of the tier run it against a stand-in in
//! which host memory plays the device. Knows nothing of tiers, objects or models:
//! the tier above (`tierlab-storage`) chooses objects and versions.
//!
//! Types, constants, layouts and signatures are cudarc's (`gpu::sys`, `cufile::sys`). Loading is our own: cudarc
//! panics if a library or a function is missing, and never looks for `libcufile.so.0`, the only name in NVIDIA's wheel.
//!
//! Returned codes are plain numbers here, since a code unknown to this build must not become a Rust enum. NVML is bound
//! here, since cudarc does not bind it (docs.nvidia.com/deploy/nvml-api).
#![allow(unsafe_code)]

mod cufile;
mod find;
mod gpu;
mod memory;
pub mod nvml;
mod path;
mod pool;
pub mod routes;

pub use cufile::Reads;
pub use find::{Search, device_nodes};
pub use gpu::Gpu;
pub use memory::{Pinned, Stream};
pub use path::{DevicePath, missing_for_gds, shortfall};
pub use pool::{Column, DeviceBytes, DevicePool, gather};

use std::io;

/// Kind of a failed call, for callers to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// Not possible with this machine, this build or this file.
    Unsupported,
    /// The device failed, or has no memory left.
    Unavailable,
    /// Access is refused.
    Denied,
    /// A value that the library refuses.
    Invalid,
    /// Bytes outside of the memory or the file.
    OutOfRange,
    /// The file is shorter than it was.
    Changed,
    /// The operating system refused a read.
    Io(io::ErrorKind),
}

/// Failed call of a device library: a kind to act on, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct DeviceError {
    /// Kind of the error, for callers to act on.
    pub kind: DeviceErrorKind,
    /// The call, the code and its name.
    pub detail: String,
}

impl DeviceError {
    /// Creates an error with these words.
    pub fn new(kind: DeviceErrorKind, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { kind, detail }
    }
}
