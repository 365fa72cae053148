//! NVIDIA devices: search for their libraries, one CUDA context, memory on both sides, and the paths from an open file
//! into it, cuFile among them. In: a device's number; files. Out: memory on the device that holds their bytes.
//!
//! Everything is loaded at run time, so that this builds and is tested without a CUDA toolkit. Without the libraries a
//! start fails with one error that lists every file that was tried. **Nothing here has run on hardware**: the tests of
//! the tier run it against a stand-in in which host memory plays the device. Knows nothing of tiers, objects or models:
//! the tier above (`tierlab-storage`) chooses objects and versions.
//!
//! Types, constants, layouts and signatures are cudarc's (`driver::sys`, `cufile::sys`). Loading is our own: cudarc
//! panics if a library or a function is missing, and never looks for `libcufile.so.0`, the only name in NVIDIA's wheel.
//!
//! Returned codes are plain numbers here, since a code unknown to this build must not become a Rust enum. The binding
//! of NVML is our own, since cudarc has none (docs.nvidia.com/deploy/nvml-api).
//!
//! Without the feature `cuda` the memory types exist without values, and there are no paths to read by.
#![allow(unsafe_code)]

#[cfg(not(feature = "cuda"))]
mod absent;
mod column;
#[cfg(feature = "cuda")]
mod counters;
#[cfg(feature = "cuda")]
mod cufile;
#[cfg(feature = "cuda")]
mod driver;
mod error;
mod find;
#[cfg(feature = "cuda")]
mod gather;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
mod memory;
pub mod nvml;
mod path;
#[cfg(feature = "cuda")]
mod pool;
#[cfg(feature = "cuda")]
pub mod routes;

#[cfg(not(feature = "cuda"))]
pub use absent::{DeviceBytes, DevicePool, Gpu, Pinned, Stream, gather};
pub use column::Column;
#[cfg(feature = "cuda")]
pub use counters::{Counters, Reads};
pub use error::{DeviceError, DeviceErrorKind};
pub use find::{Search, device_nodes};
#[cfg(feature = "cuda")]
pub use gather::gather;
#[cfg(feature = "cuda")]
pub use gpu::Gpu;
#[cfg(feature = "cuda")]
pub use memory::{Pinned, Stream};
pub use path::{DevicePath, missing_for_gds, shortfall};
#[cfg(feature = "cuda")]
pub use pool::{DeviceBytes, DevicePool};
