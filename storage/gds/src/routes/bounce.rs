//! Route through pinned buffers, in rotation: while one buffer is copied to the device, the next is read into. A buffer
//! is read into again only after its copies have ended. Several threads read large runs, each into buffers of its own: one
//! thread copies 6 GB/s out of the page cache, and the bus takes 55.

use super::{PhaseTimes, Piece, Route, RouteOptions, read_whole, share_out, threads_for};
use crate::DeviceError;
use crate::gpu::Gpu;
use crate::memory::{Event, Pinned, Stream};
use std::sync::Arc;
use std::time::Instant;

/// A pinned buffer, and the end of the last copy from it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) copied: Event,
    pub(super) memory: Pinned,
}

/// Allocates slots.
pub(super) fn slots(gpu: &Arc<Gpu>, count: usize, bytes: usize) -> Result<Vec<Slot>, DeviceError> {
    (0..count)
        .map(|_| {
            Ok(Slot {
                memory: Pinned::new(gpu, bytes)?,
                copied: Event::new(gpu)?,
            })
        })
        .collect()
}

/// Starts to copy the bytes of a piece from its slot.
pub(super) fn begin_copy(slot: &Slot, piece: &mut Piece, stream: &Stream) {
    // SAFETY: the piece's place is device memory of its length, owned by its job until the run is over; the slot is not
    // written before its event, and the run waits for the stream before it returns.
    let started = unsafe { slot.memory.copy_to(0, piece.to(), piece.wanted, stream) };
    if let Err(error) = started.and_then(|()| slot.copied.record(stream)) {
        piece.fail(error);
    }
}

/// Buffers of one thread. The stream comes first: dropping it waits for its copies, before the memory is freed.
struct Lane {
    stream: Stream,
    slots: Vec<Slot>,
    current: usize,
    /// Bytes in the current slot: small pieces share one.
    used: usize,
    /// Times of the current run.
    times: PhaseTimes,
}

impl Lane {
    fn handle(&mut self, piece: &mut Piece) {
        let began = Instant::now();
        if let Err(error) = self.make_room(piece.len) {
            return piece.fail(error);
        }
        let free = Instant::now();
        self.times.copying += free - began;
        let memory = &mut self.slots[self.current].memory;
        let at = self.used;
        self.used += piece.len;
        read_whole(piece, &mut memory.as_mut_slice()[at..]);
        self.times.reading += free.elapsed();
        if piece.error.is_none() {
            // SAFETY: the piece's place is device memory of its length, owned by its job until the run is over; this part
            // of the slot is not written before the copy has ended, and the run waits for the stream before it returns.
            let started = unsafe { memory.copy_to(at, piece.to(), piece.wanted, &self.stream) };
            if let Err(error) = started {
                piece.fail(error);
            }
        }
    }

    /// Goes on to the next slot if the current one has no room, and waits for the slot's copies.
    fn make_room(&mut self, len: usize) -> Result<(), DeviceError> {
        let slot = &self.slots[self.current];
        if self.used + len > slot.memory.as_slice().len() {
            slot.copied.record(&self.stream)?;
            self.current = (self.current + 1) % self.slots.len();
            self.slots[self.current].copied.wait()?;
            self.used = 0;
        }
        Ok(())
    }
}

pub(super) struct Bounce {
    gpu: Arc<Gpu>,
    /// One for each thread; the pinned buffers are divided among them.
    lanes: Vec<Lane>,
}

impl Bounce {
    pub(super) fn new(gpu: &Arc<Gpu>, options: &RouteOptions) -> Result<Self, DeviceError> {
        let count = options.threads.min(options.pinned_buffers).max(1);
        let lane = |index: usize| {
            let buffers = options.pinned_buffers / count + usize::from(index < options.pinned_buffers % count);
            Ok(Lane {
                stream: Stream::new(gpu)?,
                slots: slots(gpu, buffers, options.chunk_bytes)?,
                current: 0,
                used: 0,
                times: PhaseTimes::default(),
            })
        };
        Ok(Self {
            gpu: Arc::clone(gpu),
            lanes: (0..count).map(lane).collect::<Result<_, DeviceError>>()?,
        })
    }
}

impl Route for Bounce {
    fn run(&mut self, pieces: &mut [&mut Piece]) -> PhaseTimes {
        let count = threads_for(pieces, self.lanes.len());
        let lanes = &mut self.lanes[..count];
        share_out(&self.gpu, lanes, pieces, |lane, piece| lane.handle(piece));
        let mut times = PhaseTimes::default();
        for lane in &mut *lanes {
            // The threads ran side by side: the longest of them is what the run took.
            let taken = std::mem::take(&mut lane.times);
            if taken.reading + taken.copying > times.reading + times.copying {
                times = taken;
            }
        }
        let began = Instant::now();
        for lane in lanes {
            finish(&lane.stream, pieces);
            lane.used = 0;
        }
        times.copying += began.elapsed();
        times
    }
}

/// Waits for all copies of a stream; an error of any copy fails every piece.
pub(super) fn finish(stream: &Stream, pieces: &mut [&mut Piece]) -> std::time::Duration {
    let began = Instant::now();
    if let Err(error) = stream.wait() {
        pieces.iter_mut().for_each(|piece| piece.fail(error.clone()));
    }
    began.elapsed()
}

/// Route through a buffer of ordinary memory: a buffered read, then a synchronous copy. Baseline for the other paths.
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
