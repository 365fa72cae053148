//! Loader of a table: reads and decodes pieces ahead, draws rows from a shuffle buffer, and assembles batches. In: a
//! table on a tier. Out: batches, and their cost.
//!
//! ```text
//! tier -> pieces, `depth` at a time, on `workers` threads -> shuffle buffer -> batches, `ready_bytes` ahead -> sessions
//! ```

use super::plan::Loader;
use super::ready::Ready;
use super::shuffle::Shuffle;
use super::workload::{Batch, Workload};
use crate::chance::Random;
use anyhow::Result;
use futures::{Stream, StreamExt as _, stream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierlab_layouts::{Rows, Table};
use tierlab_storage::StorageError;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinError;

/// Figures of a loader.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loaded {
    /// Rows that were read.
    pub(super) rows: u64,
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
    /// Time to read all pieces, summed, decoding included.
    pub(super) reading_s: f64,
    /// Time from bytes of the tier to checked rows.
    pub(super) decoding_s: f64,
    /// Time in which the batching thread waited for a piece.
    pub(super) starved_s: f64,
    /// Time in which the batching thread shuffled and assembled batches.
    pub(super) batching_s: f64,
}

impl Loaded {
    /// Adds a piece with its time.
    pub(super) fn add(&mut self, rows: &Rows, took: Duration) {
        self.rows += rows.rows.len() as u64;
        self.requests += u64::from(rows.cost.read.requests);
        self.wire_bytes += rows.cost.read.wire_bytes;
        self.reading_s += took.as_secs_f64();
        self.decoding_s += rows.cost.decode.as_secs_f64();
    }
}

/// Table of one workload.
pub(super) struct RowSource {
    pub(super) table: Arc<Table>,
    pub(super) workload: Arc<Workload>,
    pub(super) seed: u64,
}

type Piece = Result<(Rows, Duration), StorageError>;

/// Returns the ids of all pieces of the table repeatedly, each time in another order.
pub(super) fn pieces(ids: &Range<i64>, rows: u64, seed: u64) -> impl Iterator<Item = Vec<i64>> + use<> {
    let (ids, step) = (ids.clone(), rows.max(1).cast_signed());
    (0_u64..).flat_map(move |epoch| {
        let mut starts: Vec<i64> = (ids.start..ids.end).step_by(step as usize).collect();
        Random::new(seed, epoch).shuffle(&mut starts);
        let end = ids.end;
        starts
            .into_iter()
            .map(move |start| (start..end.min(start.saturating_add(step))).collect())
    })
}

impl RowSource {
    /// Number of rows of a piece.
    fn piece_rows(&self, loader: &Loader) -> u64 {
        (loader.piece_bytes.0 / u64::from(self.workload.table.header.stride)).max(1)
    }

    /// Reads ahead until a stop, and then ends all of its reads. Pieces arrive in the order of their reads only if rows
    /// are not shuffled; otherwise no piece waits for a slower one.
    fn read_ahead(&self, runtime: &Runtime, loader: Loader, stop: &Arc<AtomicBool>) -> Receiver<Piece> {
        let (send, receive) = channel(1);
        let in_order = self.workload.shuffle_rows == 0;
        let (table, stop) = (Arc::clone(&self.table), Arc::clone(stop));
        let pieces = pieces(&self.workload.table.header.ids(), self.piece_rows(&loader), self.seed);
        runtime.spawn(async move {
            let going = { move |_: &Vec<i64>| !stop.load(Ordering::Acquire) };
            let reads = pieces.take_while(going).map(|ids| {
                let table = Arc::clone(&table);
                tokio::spawn(async move {
                    let began = Instant::now();
                    let rows = table.look_up(&ids).await?;
                    Ok((rows, began.elapsed()))
                })
            });
            let reads = stream::iter(reads);
            match in_order {
                true => hand_over(reads.buffered(loader.depth), send).await,
                false => hand_over(reads.buffer_unordered(loader.depth), send).await,
            }
        });
        receive
    }

    /// Makes batches until a stop.
    ///
    /// # Errors
    /// An error of the tier, or a damaged table.
    pub(super) fn load(
        &self,
        runtime: &Runtime,
        loader: Loader,
        out: &Ready<Batch>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Loaded> {
        let mut pieces = self.read_ahead(runtime, loader, stop);
        let mut shuffle = Shuffle::new(self.workload.shuffle_rows, self.seed);
        let mut loaded = Loaded::default();
        let mut batch = self.workload.batch();
        let mut taken = true;
        loop {
            let waiting = Instant::now();
            // Continues to the end after a stop, so that all reads have ended and none disturbs the next measurement.
            let Some(piece) = pieces.blocking_recv() else {
                return Ok(loaded);
            };
            loaded.starved_s += waiting.elapsed().as_secs_f64();
            let (rows, took) = piece?;
            loaded.add(&rows, took);
            let mut working = Instant::now();
            for row in rows.rows {
                let Some(row) = shuffle.push(row).filter(|_| taken) else {
                    continue;
                };
                self.workload.add(&mut batch, &row)?;
                if batch.rows < self.workload.batch_rows {
                    continue;
                }
                let full = std::mem::replace(&mut batch, self.workload.batch());
                loaded.batching_s += working.elapsed().as_secs_f64();
                out.put(full);
                taken = !stop.load(Ordering::Acquire);
                working = Instant::now();
            }
            loaded.batching_s += working.elapsed().as_secs_f64();
        }
    }
}

/// Passes pieces on as they arrive.
async fn hand_over(reads: impl Stream<Item = Result<Piece, JoinError>>, send: Sender<Piece>) {
    let mut reads = std::pin::pin!(reads);
    while let Some(piece) = reads.next().await {
        // A task that panicked ends the pieces.
        let Ok(piece) = piece else { return };
        let _ = send.send(piece).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_epoch_has_every_row_once_in_an_order_of_its_own() {
        let all: Vec<Vec<i64>> = pieces(&(5..105), 8, 3).take(26).collect();
        let (first, second) = all.split_at(13);
        for epoch in [first, second] {
            let mut ids: Vec<i64> = epoch.concat();
            ids.sort_unstable();
            assert_eq!(ids, (5..105).collect::<Vec<_>>());
        }
        assert_ne!(first, second);
        assert_eq!(all, pieces(&(5..105), 8, 3).take(26).collect::<Vec<_>>());
    }
}
