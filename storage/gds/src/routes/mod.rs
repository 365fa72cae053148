//! Paths from a file to device memory. In: memory, and ranges of files to read into it. Out: the result of each, and
//! the time of each phase.

use crate::gpu::Gpu;
use crate::path::DevicePath;
use crate::pool::DeviceBytes;
use crate::{DeviceError, DeviceErrorKind};
use parking_lot::Mutex;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

mod bounce;
mod cufile;
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
    /// Threads that read in a run, through cuFile or into pinned buffers.
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
            DevicePath::Bounce => Box::new(bounce::Bounce::new(gpu, options)?),
            DevicePath::BounceDirect => Box::new(ring::Ring::new(gpu, options.pinned_buffers, chunk_bytes)?),
            DevicePath::Pageable => Box::new(bounce::Pageable::new(gpu, chunk_bytes)),
        };
        Ok(Self { route, chunk_bytes })
    }

    /// Reads all ranges of these landings. No read is in flight when it has returned; each landing holds its bytes
    /// and errors. A range longer than `chunk_bytes` fails, and is not read at all.
    pub fn run<'a>(&mut self, landings: impl Iterator<Item = &'a mut Landing>) -> PhaseTimes {
        let mut pieces: Vec<&mut Piece> = landings.flat_map(Landing::pieces).collect();
        // Checked before any read is in flight: buffers have no room for more.
        pieces.retain_mut(|piece| {
            let fits = piece.len <= self.chunk_bytes;
            if !fits {
                let detail = format!("read of {} bytes exceeds the limit of {}", piece.len, self.chunk_bytes);
                piece.fail(DeviceError::new(DeviceErrorKind::OutOfRange, detail));
            }
            fits
        });
        self.route.run(&mut pieces)
    }
}

/// Size of a run, in bytes, from which more than one thread pays off.
const WORTH_THREADS: usize = 1 << 20;
/// Alignment of ranges in device memory, which suits direct reads of all usual devices.
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

/// Handles each item once, on this thread and on others: one thread for each of `lanes`. The items are shared out as the
/// threads become free. The device is current on each.
fn share_out<L: Send, T: Send>(gpu: &Gpu, lanes: &mut [L], items: &mut [T], handle: impl Fn(&mut L, &mut T) + Sync) {
    let next = Mutex::new(items.iter_mut());
    let take = || next.lock().next();
    let drain = |lane: &mut L| {
        while let Some(item) = take() {
            handle(lane, item);
        }
    };
    let Some((first, others)) = lanes.split_first_mut() else {
        return;
    };
    std::thread::scope(|scope| {
        for lane in others {
            // A thread that cannot start, or cannot use the device, leaves its share to the others.
            let _ = std::thread::Builder::new()
                .name("tierlab-device".to_owned())
                .spawn_scoped(scope, || {
                    if gpu.make_current().is_ok() {
                        drain(lane);
                    }
                });
        }
        drain(first);
    });
}

/// Number of threads that pay off for a run of these pieces, `most` at most.
fn threads_for(pieces: &[&mut Piece], most: usize) -> usize {
    let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
    if bytes < WORTH_THREADS {
        1
    } else {
        most.min(pieces.len()).max(1)
    }
}

/// Fills a buffer from a file until the wanted bytes have arrived, with plain reads.
fn read_whole(piece: &mut Piece, buffer: &mut [u8]) {
    let buffer = &mut buffer[..piece.len];
    while piece.done < piece.wanted {
        let left = &mut buffer[piece.done..];
        let at = libc::off_t::try_from(piece.offset + piece.done as u64).unwrap_or(libc::off_t::MAX);
        piece.requests += 1;
        // SAFETY: the descriptor is open as long as the piece holds the file, and the buffer is ours and that long.
        let count = unsafe { libc::pread(piece.fd(), left.as_mut_ptr().cast(), left.len(), at) };
        match usize::try_from(count) {
            Ok(0) => return piece.cut_short(),
            Ok(count) => piece.done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return piece.fail_io(&error);
                }
                piece.retries += 1;
            }
        }
    }
}

/// File that stays open for reading while this is held.
pub trait SourceFile: fmt::Debug + Send + Sync {
    /// Descriptor of the file.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Alignment of direct reads, in bytes; `None` if the file is not open for direct reads.
    fn direct_align(&self) -> Option<u32>;
}

/// Range of a file, and its position in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes to read: aligned if the file is read directly, possibly past its end.
    pub len: usize,
    /// Bytes that must arrive.
    pub wanted: usize,
    /// Offset in the memory.
    pub into: usize,
}

/// Result of the ranges of a [`Landing`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes, over-read included.
    pub bytes: u64,
    /// Number of reads.
    pub requests: u32,
    /// Number of retries among the reads.
    pub retries: u32,
}

/// Range being read.
#[derive(Debug)]
struct Piece {
    file: Arc<dyn SourceFile>,
    offset: u64,
    len: usize,
    wanted: usize,
    /// Start of the block of device memory.
    base: u64,
    into: usize,
    /// Bytes that arrived.
    done: usize,
    requests: u32,
    retries: u32,
    error: Option<DeviceError>,
}

impl Piece {
    fn to(&self) -> u64 {
        self.base + self.into as u64
    }

    fn fd(&self) -> RawFd {
        self.file.fd().as_raw_fd()
    }

    fn fail(&mut self, error: DeviceError) {
        self.error.get_or_insert(error);
    }

    /// Fails the piece: the file ended before the bytes that were looked up.
    fn cut_short(&mut self) {
        let end = self.offset + self.done as u64;
        let detail = format!("ends at byte {end}, before the looked-up length");
        self.fail(DeviceError::new(DeviceErrorKind::Changed, detail));
    }

    fn fail_io(&mut self, error: &io::Error) {
        self.fail(DeviceError::new(DeviceErrorKind::Io(error.kind()), error.to_string()));
    }
}

/// Device memory, and the ranges to read into it. Owns both, so that no read outlives its memory.
#[derive(Debug)]
pub struct Landing {
    bytes: DeviceBytes,
    pieces: Vec<Piece>,
}

impl Landing {
    /// Creates a landing without ranges.
    pub fn new(bytes: DeviceBytes) -> Self {
        let pieces = Vec::new();
        Self { bytes, pieces }
    }

    /// Adds a range of a file.
    ///
    /// # Errors
    /// [`DeviceErrorKind::OutOfRange`] if the range does not fit in the memory.
    pub fn add(&mut self, file: Arc<dyn SourceFile>, range: FileRange) -> Result<(), DeviceError> {
        self.bytes.check(range.into, range.len)?;
        self.pieces.push(Piece {
            file,
            offset: range.offset,
            len: range.len,
            wanted: range.wanted.min(range.len),
            base: self.bytes.address(),
            into: range.into,
            done: 0,
            requests: 0,
            retries: 0,
            error: None,
        });
        Ok(())
    }

    fn pieces(&mut self) -> &mut [Piece] {
        &mut self.pieces
    }

    /// Bytes that arrived so far, including those of failed ranges.
    pub fn bytes_read(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.done as u64).sum()
    }

    /// Returns the result of all ranges.
    ///
    /// # Errors
    /// Returns the error of the first range that failed.
    pub fn totals(&self) -> Result<Totals, DeviceError> {
        let mut sum = Totals::default();
        for piece in &self.pieces {
            if let Some(error) = &piece.error {
                return Err(error.clone());
            }
            sum.bytes += piece.done as u64;
            sum.requests += piece.requests;
            sum.retries += piece.retries;
        }
        Ok(sum)
    }

    /// Returns the memory.
    pub fn into_bytes(self) -> DeviceBytes {
        self.bytes
    }
}
