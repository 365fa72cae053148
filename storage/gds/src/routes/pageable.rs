//! Plain path: a buffered read into ordinary memory, then a synchronous copy. Baseline for the other paths.

use super::landing::Piece;
use super::route::{PhaseTimes, Route, read_whole};
use crate::gpu::Gpu;
use std::sync::Arc;
use std::time::Instant;

/// Route through a buffer of ordinary memory.
pub(super) struct Pageable {
    gpu: Arc<Gpu>,
    buffer: Vec<u8>,
}

impl Pageable {
    pub(super) fn new(gpu: &Arc<Gpu>, chunk_bytes: usize) -> Self {
        Self {
            gpu: Arc::clone(gpu),
            buffer: vec![0; chunk_bytes],
        }
    }
}

impl Route for Pageable {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes {
        let mut times = PhaseTimes::default();
        let driver = &self.gpu.driver;
        for piece in pieces.iter_mut() {
            let began = Instant::now();
            read_whole(piece, &mut self.buffer);
            let read = Instant::now();
            times.reading += read - began;
            if piece.error.is_none() {
                // SAFETY: the piece's place is device memory of its length, and the buffer has at least that many bytes.
                let code = unsafe { (driver.to_device)(piece.to(), self.buffer.as_ptr().cast(), piece.wanted) };
                if let Err(error) = driver.check("cuMemcpyHtoD", code) {
                    piece.fail(error);
                }
                times.copying += read.elapsed();
            }
        }
        times
    }
}
