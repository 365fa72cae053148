//! Paths from a file to device memory. In: memory, and stretches of files to read into it. Out: the result of each, and
//! the time of each phase.

use crate::error::{DeviceError, DeviceErrorKind};
use crate::gpu::Gpu;
use crate::path::DevicePath;
use landing::Piece;
pub use landing::{Came, Landing, SourceFile, Stretch};
use std::sync::Arc;
use std::time::Duration;

mod bounce;
mod cufile;
mod landing;
mod ring;

/// Options of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOptions {
    /// Path to use.
    pub path: DevicePath,
    /// Bytes of a read, a pinned buffer and a copy: a multiple of [`ALIGN`].
    pub chunk_bytes: usize,
    /// Number of pinned buffers.
    pub pinned_buffers: usize,
    /// Threads that call cuFile in a run.
    pub threads: usize,
}

/// An opened path: for one thread, on which the device is current.
pub struct Reader {
    route: Box<dyn Route>,
    chunk_bytes: usize,
}

impl Reader {
    /// Opens the path in the options.
    ///
    /// # Errors
    /// Fails if pinned memory or io_uring is unavailable, or with the driver's error.
    pub fn open(gpu: &Arc<Gpu>, options: &RouteOptions) -> Result<Self, DeviceError> {
        gpu.make_current()?;
        let chunk_bytes = options.chunk_bytes;
        let route: Box<dyn Route> = match options.path {
            DevicePath::Gds | DevicePath::Compat => Box::new(cufile::CuFileRoute::new(gpu, options.threads)),
            DevicePath::Bounce => Box::new(bounce::Bounce::new(gpu, options.pinned_buffers, chunk_bytes)?),
            DevicePath::BounceDirect => Box::new(ring::Ring::new(gpu, options.pinned_buffers, chunk_bytes)?),
            DevicePath::Pageable => Box::new(bounce::Pageable::new(gpu, chunk_bytes)),
        };
        Ok(Self { route, chunk_bytes })
    }

    /// Reads all stretches of these landings. No read is in flight when it has returned; each landing holds its bytes
    /// and errors. A stretch longer than `chunk_bytes` fails, and is not read at all.
    pub fn run<'a>(&mut self, landings: impl Iterator<Item = &'a mut Landing>) -> PhaseTimes {
        let mut pieces: Vec<&mut Piece> = landings.flat_map(Landing::pieces).collect();
        // Checked before any read is in flight: buffers have no room for more.
        pieces.retain_mut(|piece| {
            let fits = piece.len <= self.chunk_bytes;
            if !fits {
                let what = format!("read of {} bytes exceeds the limit of {}", piece.len, self.chunk_bytes);
                piece.fail(DeviceError::new(DeviceErrorKind::OutOfRange, what));
            }
            fits
        });
        self.route.run(&mut pieces)
    }
}

/// Alignment of stretches in device memory, which suits direct reads of all usual devices.
pub const ALIGN: usize = 4096;

/// Times of a run by phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct PhaseTimes {
    /// Time at the file's device.
    pub reading: Duration,
    /// Time waiting for copies that were not hidden by reading.
    pub copying: Duration,
}

/// A path from a file to the device. No read or copy is in flight when [`run`](Self::run) has returned. The device is
/// current on the thread.
trait Route {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes;
}

/// Fills a buffer from a file until the wanted bytes have arrived, with plain reads.
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
