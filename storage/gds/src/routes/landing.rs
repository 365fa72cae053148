//! Device memory that stretches of files are read into. In: memory, stretches, and the position of each in it. Out:
//! pieces for a route, inside that memory, and their results.

use crate::error::{DeviceError, DeviceErrorKind};
use crate::pool::DeviceBytes;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::{fmt, io};

/// File that stays open for reading while this is held.
pub trait SourceFile: fmt::Debug + Send + Sync {
    /// Descriptor of the file.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Alignment of direct reads, in bytes; `None` if the file is not open for direct reads.
    fn direct_align(&self) -> Option<u32>;
}

/// Stretch of a file, and its position in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes to read: aligned if the file is read directly, possibly past its end.
    pub len: usize,
    /// Bytes that must arrive.
    pub wanted: usize,
    /// Offset in the memory.
    pub into: usize,
}

/// Result of the stretches of a [`Landing`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Came {
    /// Bytes, over-read included.
    pub bytes: u64,
    /// Number of reads.
    pub requests: u32,
    /// Number of retries among the reads.
    pub retries: u32,
}

/// Stretch being read.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) file: Arc<dyn SourceFile>,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) wanted: usize,
    /// Start of the block of device memory.
    pub(super) base: u64,
    pub(super) into: usize,
    /// Bytes that arrived.
    pub(super) came: usize,
    pub(super) requests: u32,
    pub(super) retries: u32,
    pub(super) error: Option<DeviceError>,
}

impl Piece {
    pub(super) fn to(&self) -> u64 {
        self.base + self.into as u64
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.fd().as_raw_fd()
    }

    pub(super) fn fail(&mut self, error: DeviceError) {
        self.error.get_or_insert(error);
    }

    /// Fails the piece: the file ended before the bytes that were looked up.
    pub(super) fn cut_short(&mut self) {
        let what = format!(
            "ends at byte {}, before the looked-up length",
            self.offset + self.came as u64
        );
        self.fail(DeviceError::new(DeviceErrorKind::Changed, what));
    }

    pub(super) fn fail_io(&mut self, error: &io::Error) {
        self.fail(DeviceError::of_io("", error));
    }
}

/// Device memory, and the stretches to read into it. Owns both, so that no read outlives its memory.
#[derive(Debug)]
pub struct Landing {
    bytes: DeviceBytes,
    pieces: Vec<Piece>,
}

impl Landing {
    /// Creates a landing without stretches.
    pub fn new(bytes: DeviceBytes) -> Self {
        let pieces = Vec::new();
        Self { bytes, pieces }
    }

    /// Adds a stretch of a file.
    ///
    /// # Errors
    /// [`DeviceErrorKind::OutOfRange`] if the stretch does not fit in the memory.
    pub fn ask(&mut self, file: Arc<dyn SourceFile>, stretch: Stretch) -> Result<(), DeviceError> {
        self.bytes.check(stretch.into, stretch.len)?;
        self.pieces.push(Piece {
            file,
            offset: stretch.offset,
            len: stretch.len,
            wanted: stretch.wanted.min(stretch.len),
            base: self.bytes.address(),
            into: stretch.into,
            came: 0,
            requests: 0,
            retries: 0,
            error: None,
        });
        Ok(())
    }

    pub(super) fn pieces(&mut self) -> &mut [Piece] {
        &mut self.pieces
    }

    /// Bytes that arrived so far, including those of failed stretches.
    pub fn bytes_read(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.came as u64).sum()
    }

    /// Returns the result of all stretches.
    ///
    /// # Errors
    /// Returns the error of the first stretch that failed.
    pub fn came(&self) -> Result<Came, DeviceError> {
        let mut came = Came::default();
        for piece in &self.pieces {
            if let Some(error) = &piece.error {
                return Err(error.clone());
            }
            came.bytes += piece.came as u64;
            came.requests += piece.requests;
            came.retries += piece.retries;
        }
        Ok(came)
    }

    /// Returns the memory.
    pub fn into_bytes(self) -> DeviceBytes {
        self.bytes
    }
}
