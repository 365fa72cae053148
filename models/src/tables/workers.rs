//! Work on every core, in bounded memory: numbered pieces, and the blocks of a table in chunks. Independent of the
//! work.

use crate::error::ModelsError;
use crate::stop::Stop;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};
use tierlab_formats::table::TableHeader;

/// Bytes per worker, unless a single block is larger.
const CHUNK_BYTES: u64 = 4 << 20;
/// Maximum number of workers.
pub(super) const MAX_WORKERS: usize = 16;

/// Returns the number of workers that keep every core busy.
pub(super) fn worker_count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}

/// Calls `work` with every number below `count`, on several threads. Each makes a state with `begin`, and a result of it
/// with `end`.
///
/// # Errors
/// An error of `work` or `end`. Pieces already begun are finished first.
pub(super) fn run<S, R: Send>(
    (workers, count): (usize, usize),
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<(), ModelsError> + Sync,
    end: impl Fn(S) -> Result<R, ModelsError> + Sync,
) -> Result<Vec<R>, ModelsError> {
    let next = AtomicUsize::new(0);
    let run_worker = || {
        let mut state = begin();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return end(state);
            }
            if let Err(e) = work(&mut state, number) {
                next.store(count, Ordering::Relaxed);
                return Err(e);
            }
        }
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(run_worker)).collect();
        let results = handles.into_iter().map(thread::ScopedJoinHandle::join);
        let results = results.map(|result| result.unwrap_or_else(|e| panic::resume_unwind(e)));
        results.collect()
    })
}

/// Consecutive blocks.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) blocks: Range<u64>,
    /// Byte range of their rows in the file.
    pub(super) bytes: Range<u64>,
}

/// Calls `work` with every chunk of a table, on every core, each worker with its own buffer of the chunk's size. Passes the
/// results to `done`, in the order in which they finish.
///
/// # Errors
/// An error of `work`, or a stop. Chunks already begun are finished first.
pub(super) fn for_each_chunk<T>(
    header: &TableHeader,
    stop: &Stop,
    work: impl Fn(&Chunk, &mut [u8]) -> Result<T, ModelsError> + Sync,
    done: impl FnMut(Chunk, T) + Send,
) -> Result<(), ModelsError> {
    let block_bytes = u64::from(header.rows_per_block) * u64::from(header.stride);
    let chunk_blocks = (CHUNK_BYTES / block_bytes).max(1);
    let blocks = header.block_crcs.len() as u64;
    let done = Mutex::new(done);
    let run_chunk = |buffer: &mut Vec<u8>, index: usize| {
        let first = index as u64 * chunk_blocks;
        let blocks = first..(first + chunk_blocks).min(blocks);
        let start = header.header_len() + blocks.start * block_bytes;
        let end = (header.header_len() + blocks.end * block_bytes).min(header.rows_end());
        let bytes = start..end;
        buffer.resize((end - start) as usize, 0);
        stop.check()?;
        let chunk = Chunk { blocks, bytes };
        let result = work(&chunk, buffer)?;
        done.lock()(chunk, result);
        Ok(())
    };
    let chunks = blocks.div_ceil(chunk_blocks) as usize;
    run((worker_count(), chunks), Vec::new, run_chunk, |_| Ok(())).map(drop)
}
