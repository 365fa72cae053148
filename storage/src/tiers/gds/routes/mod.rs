//! The ways that bytes take from a file to device memory. In: pieces of files, each with its place on the device. Out:
//! the same pieces, each with what came of it, and the time that went where.

mod bounce;
mod cufile;
mod pageable;
mod ring;
pub(super) mod route;

use super::options::EngineOptions;
use crate::device::{DeviceError, DevicePath, Gpu};
use route::Route;
use std::sync::Arc;

/// Opens the way that the options name.
pub(super) fn open(gpu: &Arc<Gpu>, options: &EngineOptions) -> Result<Box<dyn Route>, DeviceError> {
    Ok(match options.path {
        DevicePath::Gds | DevicePath::Compat => Box::new(cufile::CuFileRoute::new(gpu, options.threads)),
        DevicePath::Bounce => Box::new(bounce::Bounce::new(gpu, options.pinned_buffers, options.chunk_bytes)?),
        DevicePath::BounceDirect => Box::new(ring::Ring::new(gpu, options.pinned_buffers, options.chunk_bytes)?),
        DevicePath::Pageable => Box::new(pageable::Pageable::new(gpu, options.chunk_bytes)),
    })
}
