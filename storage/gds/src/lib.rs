//! NVIDIA devices: finding their libraries, one CUDA context, memory on both sides, and the ways that bytes take from an
//! open file into it, cuFile among them. In: a device's number; files. Out: memory on the device that holds their bytes.
//!
//! Everything is loaded at run time, so that this builds and is tested without a CUDA toolkit; a start without the
//! libraries is one error that lists what was looked for. **Nothing here has run on hardware**: the tests of the tier run
//! it against a stand-in in which host memory plays the device. Knows nothing of tiers, objects or models: who may read
//! which version of what is told by the tier above (`tierlab-storage`).
//!
//! Types, constants, layouts and signatures are cudarc's (`driver::sys`, `cufile::sys`). Loading is ours: cudarc panics
//! where a library or a function is missing, and never looks for `libcufile.so.0`, the only name in NVIDIA's wheel.
//!
//! Ours as well: codes that come back are plain numbers, since one that this build does not know may not become a Rust
//! enum; and NVML, which cudarc does not have (docs.nvidia.com/deploy/nvml-api).
//!
//! Without the feature `cuda` there are the same types of memory, of which there are no values, and no ways to read.

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
