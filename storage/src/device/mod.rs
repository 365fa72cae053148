//! CUDA devices: finding NVIDIA's libraries, one CUDA context, memory on both sides, and cuFile. In: a device's number.
//! Out: memory on it, streams, copies, and the trait of tiers that read into it.
//!
//! Everything is loaded at run time, so that this builds and is tested without a CUDA toolkit; a start without the
//! libraries is one error that lists what was looked for. **Nothing here has run on hardware**: the tests run it against
//! a stand-in in which host memory plays the device (`tests/standin/`). Knows nothing of tiers or models.
//!
//! Types, constants, layouts and signatures are cudarc's (`driver::sys`, `cufile::sys`). Loading is ours: cudarc panics
//! where a library or a function is missing, and never looks for `libcufile.so.0`, the only name in NVIDIA's wheel.
//!
//! Ours as well: codes that come back are plain numbers, since one that this build does not know may not become a Rust
//! enum; and NVML, which cudarc does not have (docs.nvidia.com/deploy/nvml-api).

#[cfg(not(feature = "gds"))]
mod absent;
mod column;
#[cfg(feature = "gds")]
pub(crate) mod counters;
#[cfg(feature = "gds")]
pub(crate) mod cufile;
#[cfg(feature = "gds")]
mod driver;
mod error;
mod find;
#[cfg(feature = "gds")]
mod gather;
#[cfg(feature = "gds")]
mod gpu;
#[cfg(feature = "gds")]
pub(crate) mod memory;
pub mod nvml;
mod path;
#[cfg(feature = "gds")]
mod pool;
mod reads;

#[cfg(not(feature = "gds"))]
pub use absent::{DeviceBytes, DevicePool, Gpu, Pinned, Stream, gather};
pub use column::Column;
pub use error::DeviceError;
pub use find::{Search, device_nodes};
#[cfg(feature = "gds")]
pub use gather::gather;
#[cfg(feature = "gds")]
pub use gpu::Gpu;
#[cfg(feature = "gds")]
pub use memory::{Pinned, Stream};
pub use path::{DevicePath, missing_for_gds, shortfall};
#[cfg(feature = "gds")]
pub use pool::{DeviceBytes, DevicePool};
pub use reads::{DeviceReads, Landed};
