//! Route through cuFile: from the file to device memory by the driver's own choice. Files are registered once and stay
//! registered. Several threads read the pieces of large jobs, because each cuFile call waits for its own read.

use super::{PhaseTimes, Piece, Route, SourceFile, share_out, threads_for};
use crate::cufile::{CuFile, Handle};
use crate::gpu::Gpu;
use crate::{DeviceError, DeviceErrorKind};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of files registered with cuFile.
const REGISTERED: usize = 64;

pub(super) struct CuFileRoute {
    gpu: Arc<Gpu>,
    threads: usize,
    /// Registered files, least recently used first.
    files: VecDeque<(Arc<dyn SourceFile>, Handle)>,
}

impl CuFileRoute {
    pub(super) fn new(gpu: &Arc<Gpu>, threads: usize) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            threads,
            files: VecDeque::new(),
        }
    }

    /// Returns the registration of a file.
    fn handle(&mut self, cufile: &CuFile, file: &Arc<dyn SourceFile>) -> Result<Handle, DeviceError> {
        if let Some(at) = self.files.iter().position(|(known, _)| Arc::ptr_eq(known, file))
            && let Some(entry) = self.files.remove(at)
        {
            let handle = entry.1;
            self.files.push_back(entry);
            return Ok(handle);
        }
        let handle = cufile.register(std::os::fd::AsRawFd::as_raw_fd(&file.fd()))?;
        self.files.push_back((Arc::clone(file), handle));
        Ok(handle)
    }

    /// Deregisters the oldest files. Call it between runs, when no read is in flight.
    fn trim(&mut self, cufile: &CuFile) {
        while self.files.len() > REGISTERED
            && let Some((_, oldest)) = self.files.pop_front()
        {
            // SAFETY: registered in `handle`, gone from the list, and no read is under way.
            unsafe { cufile.deregister(oldest) };
        }
    }
}

/// Reads a piece until its wanted bytes have arrived.
fn read(cufile: &CuFile, handle: Handle, piece: &mut Piece) {
    while piece.done < piece.wanted {
        let left = piece.len - piece.done;
        let target = (piece.base, piece.into + piece.done);
        piece.requests += 1;
        // SAFETY: the handle stays registered for the run, and the job owns the device memory that contains the piece.
        match unsafe { cufile.read(handle, target, left, piece.offset + piece.done as u64) } {
            Ok(count) if count == 0 || count > left => return piece.cut_short(),
            Ok(count) => piece.done += count,
            Err(error) => return piece.fail(error),
        }
    }
}

impl Route for CuFileRoute {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes {
        let gpu = Arc::clone(&self.gpu);
        let began = Instant::now();
        let Some(cufile) = &gpu.cufile else {
            let absent = DeviceError::new(DeviceErrorKind::Unsupported, "cuFile is not open");
            pieces.iter_mut().for_each(|piece| piece.fail(absent.clone()));
            return PhaseTimes::default();
        };
        let mut lanes = vec![(); threads_for(pieces, self.threads)];
        let mut work = Vec::with_capacity(pieces.len());
        for piece in pieces.iter_mut() {
            match self.handle(cufile, &piece.file) {
                Ok(handle) => work.push((handle, piece)),
                Err(error) => piece.fail(error),
            }
        }
        share_out(&gpu, &mut lanes, &mut work, |(), (handle, piece)| {
            read(cufile, *handle, piece);
        });
        self.trim(cufile);
        PhaseTimes {
            reading: began.elapsed(),
            ..PhaseTimes::default()
        }
    }
}

impl Drop for CuFileRoute {
    fn drop(&mut self) {
        let Some(cufile) = &self.gpu.cufile else { return };
        for (_, handle) in self.files.drain(..) {
            // SAFETY: registered, and used no more.
            unsafe { cufile.deregister(handle) };
        }
    }
}
