//! Processes a table's blocks in chunks on every core, in bounded memory. Knows nothing of the processing.

use crate::error::ModelsError;
use crate::stop::Stop;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use tierlab_formats::table::TableHeader;

/// Bytes per worker, unless a single block is larger.
const CHUNK_BYTES: u64 = 4 << 20;
/// Maximum number of workers.
const MAX_WORKERS: usize = 16;

/// Consecutive blocks.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) blocks: Range<u64>,
    /// Byte range of their rows in the file.
    pub(super) bytes: Range<u64>,
}

/// Calls `work` with every chunk, on every core, each worker with its own buffer of the chunk's size. Passes the
/// results to `done` on this thread, in the order in which they finish.
///
/// # Errors
/// The first error of `work`, or a stop. Chunks already begun are finished first.
pub(super) fn for_each<T: Send>(
    header: &TableHeader,
    stop: &Stop,
    work: impl Fn(&Chunk, &mut [u8]) -> Result<T, ModelsError> + Sync,
    mut done: impl FnMut(Chunk, T),
) -> Result<(), ModelsError> {
    let block_bytes = u64::from(header.rows_per_block) * u64::from(header.stride);
    let chunk_blocks = (CHUNK_BYTES / block_bytes).max(1);
    let blocks = header.block_crcs.len() as u64;
    let chunks = blocks.div_ceil(chunk_blocks);
    let chunk_at = |index: u64| {
        let blocks = index * chunk_blocks..((index + 1) * chunk_blocks).min(blocks);
        let start = header.header_len() + blocks.start * block_bytes;
        let end = (header.header_len() + blocks.end * block_bytes).min(header.rows_end());
        Chunk {
            blocks,
            bytes: start..end,
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
    let next = AtomicU64::new(0);
    let mut first_error = None;
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(2 * workers);
        for _ in 0..workers {
            let sender = sender.clone();
            let (next, work, chunk_at) = (&next, &work, &chunk_at);
            scope.spawn(move || {
                let mut buffer = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= chunks {
                        return;
                    }
                    let chunk = chunk_at(index);
                    buffer.resize((chunk.bytes.end - chunk.bytes.start) as usize, 0);
                    let result = stop.check().and_then(|()| work(&chunk, &mut buffer));
                    if sender.send((chunk, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (chunk, result) in receiver {
            match result {
                Ok(value) => done(chunk, value),
                Err(e) => {
                    next.store(chunks, Ordering::Relaxed);
                    first_error.get_or_insert(e);
                }
            }
        }
    });
    first_error.map_or(Ok(()), Err)
}
