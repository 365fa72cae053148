//! The ways that bytes take from a file to device memory. In: pieces of files, each with its place on the device. Out:
//! the same pieces, each with what came of it, and the time that went where.

mod bounce;
mod cufile;
mod pageable;
mod ring;

use super::engine::EngineOptions;
use super::{DeviceError, DevicePath, Gpu};
use crate::error::{ErrorKind, StorageError};
use crate::tiers::nvme::files::OpenFile;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Where pieces begin in device memory is a multiple of this: what direct reads of all usual devices ask for.
pub(super) const ALIGN: usize = 4096;

/// A stretch of a file, and its place in device memory.
#[derive(Debug)]
pub(super) struct Piece {
    /// Which job it is of.
    pub(super) job: usize,
    pub(super) file: Arc<OpenFile>,
    pub(super) offset: u64,
    /// Bytes to read: aligned where the file is read directly, maybe past its end.
    pub(super) len: usize,
    /// Bytes that must come.
    pub(super) wanted: usize,
    /// Start of the block of device memory.
    pub(super) base: u64,
    /// Where in it the piece goes.
    pub(super) into: usize,
    /// Bytes that came.
    pub(super) came: usize,
    pub(super) requests: u32,
    pub(super) retries: u32,
    pub(super) error: Option<DeviceError>,
}

impl Piece {
    pub(super) fn to(&self) -> u64 {
        self.base + self.into as u64
    }

    fn fd(&self) -> RawFd {
        self.file.fd.as_raw_fd()
    }

    fn fail(&mut self, error: DeviceError) {
        self.error.get_or_insert(error);
    }

    /// The file ended before the bytes that were looked up.
    fn cut_short(&mut self) {
        let what = format!(
            "ends at byte {}, before what was looked up",
            self.offset + self.came as u64
        );
        self.fail(DeviceError::new(ErrorKind::Changed, what));
    }

    fn fail_io(&mut self, error: &std::io::Error) {
        let error = StorageError::from_io("", error);
        self.fail(DeviceError::new(error.kind(), error.detail()));
    }
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    /// With the file's device.
    pub(super) reading: Duration,
    /// Waiting for copies, as far as reading did not hide them.
    pub(super) copying: Duration,
}

/// One way. Nothing is under way when [`run`](Self::run) has returned. The device is current on the thread.
pub(super) trait Route {
    fn run(&mut self, pieces: &mut [Piece]) -> Spent;
}

/// Opens the way that the options name.
pub(super) fn open(gpu: &Arc<Gpu>, options: &EngineOptions) -> Result<Box<dyn Route>, DeviceError> {
    Ok(match options.path {
        DevicePath::Gds | DevicePath::Compat => Box::new(cufile::CuFileRoute::new(gpu, options.threads)),
        DevicePath::Bounce => Box::new(bounce::Bounce::new(gpu, options.pinned_buffers, options.chunk_bytes)?),
        DevicePath::BounceDirect => Box::new(ring::Ring::new(gpu, options.pinned_buffers, options.chunk_bytes)?),
        DevicePath::Pageable => Box::new(pageable::Pageable::new(gpu, options.chunk_bytes)),
    })
}

/// Fills a buffer from a file until the bytes wanted are there, with plain reads.
fn read_whole(piece: &mut Piece, buffer: &mut [u8]) {
    let buffer = &mut buffer[..piece.len];
    while piece.came < piece.wanted {
        let left = &mut buffer[piece.came..];
        let at = libc::off_t::try_from(piece.offset + piece.came as u64).unwrap_or(libc::off_t::MAX);
        piece.requests += 1;
        // SAFETY: the descriptor is open as long as the piece holds the file, and the buffer is ours and that long.
        let came = unsafe { libc::pread(piece.fd(), left.as_mut_ptr().cast(), left.len(), at) };
        match usize::try_from(came) {
            Ok(0) => return piece.cut_short(),
            Ok(came) => piece.came += came,
            Err(_) => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return piece.fail_io(&error);
                }
                piece.retries += 1;
            }
        }
    }
}
