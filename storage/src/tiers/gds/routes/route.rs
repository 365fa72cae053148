//! What every way from a file to the device has in common: pieces of files, and what comes of them.

use crate::device::DeviceError;
use crate::error::{ErrorKind, StorageError};
use crate::tiers::nvme::files::OpenFile;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Where pieces begin in device memory is a multiple of this: what direct reads of all usual devices ask for.
pub(in crate::tiers::gds) const ALIGN: usize = 4096;

/// A stretch of a file, and its place in device memory.
#[derive(Debug)]
pub(in crate::tiers::gds) struct Piece {
    /// Which job it is of.
    pub(in crate::tiers::gds) job: usize,
    pub(in crate::tiers::gds) file: Arc<OpenFile>,
    pub(in crate::tiers::gds) offset: u64,
    /// Bytes to read: aligned where the file is read directly, maybe past its end.
    pub(in crate::tiers::gds) len: usize,
    /// Bytes that must come.
    pub(in crate::tiers::gds) wanted: usize,
    /// Start of the block of device memory.
    pub(in crate::tiers::gds) base: u64,
    /// Where in it the piece goes.
    pub(in crate::tiers::gds) into: usize,
    /// Bytes that came.
    pub(in crate::tiers::gds) came: usize,
    pub(in crate::tiers::gds) requests: u32,
    pub(in crate::tiers::gds) retries: u32,
    pub(in crate::tiers::gds) error: Option<DeviceError>,
}

impl Piece {
    pub(in crate::tiers::gds) fn to(&self) -> u64 {
        self.base + self.into as u64
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.fd.as_raw_fd()
    }

    pub(super) fn fail(&mut self, error: DeviceError) {
        self.error.get_or_insert(error);
    }

    /// The file ended before the bytes that were looked up.
    pub(super) fn cut_short(&mut self) {
        let what = format!(
            "ends at byte {}, before what was looked up",
            self.offset + self.came as u64
        );
        self.fail(DeviceError::new(ErrorKind::Changed, what));
    }

    pub(super) fn fail_io(&mut self, error: &std::io::Error) {
        let error = StorageError::from_io("", error);
        self.fail(DeviceError::new(error.kind(), error.detail()));
    }
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::tiers::gds) struct PhaseTimes {
    /// With the file's device.
    pub(in crate::tiers::gds) reading: Duration,
    /// Waiting for copies, as far as reading did not hide them.
    pub(in crate::tiers::gds) copying: Duration,
}

/// One way. Nothing is under way when [`run`](Self::run) has returned. The device is current on the thread.
pub(in crate::tiers::gds) trait Route {
    fn run(&mut self, pieces: &mut [Piece]) -> PhaseTimes;
}

/// Fills a buffer from a file until the bytes wanted are there, with plain reads.
pub(super) fn read_whole(piece: &mut Piece, buffer: &mut [u8]) {
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
