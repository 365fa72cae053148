//! Common parts of the paths from a file to the device.

use super::landing::Piece;
use std::time::Duration;

/// Alignment of stretches in device memory, which suits direct reads of all usual devices.
pub const ALIGN: usize = 4096;

/// Times of a run by phase.
#[derive(Debug, Clone, Copy, Default)]
pub struct PhaseTimes {
    /// With the file's device.
    pub reading: Duration,
    /// Waiting for copies, as far as reading did not hide them.
    pub copying: Duration,
}

/// A path from a file to the device. No read or copy is in flight when [`run`](Self::run) has returned. The device is
/// current on the thread.
pub(super) trait Route {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes;
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
