//! Loader of a table: reads ahead and decodes pieces, draws rows from a shuffle buffer, and assembles batches. In: a
//! table on a tier. Out: batches, and their cost.
//!
//! ```text
//! tier -> pieces, `depth` at a time, on `workers` threads -> shuffle buffer -> batches, `ready_bytes` ahead -> sessions
//! ```

use super::ready::Ready;
use super::workload::{Batch, Workload};
use crate::chance::Random;
use anyhow::Result;
use futures::{StreamExt as _, stream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tierlab_layouts::{Rows, Table};
use tierlab_storage::StorageError;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, channel};

/// Figures of a loader.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Loaded {
    /// Rows read.
    pub(super) rows: u64,
    /// Pieces read.
    pub(super) reads: u64,
    pub(super) requests: u64,
    pub(super) wire_bytes: u64,
    /// Sum of the pieces' read times, including decoding.
    pub(super) reading_s: f64,
    /// Time from bytes of the tier to checked rows.
    pub(super) decoding_s: f64,
    /// Time in which the batching thread waited for a piece.
    pub(super) starved_s: f64,
    /// Time in which the batching thread shuffled and assembled batches.
    pub(super) batching_s: f64,
}

impl Loaded {
    /// Adds a piece with its read time.
    pub(super) fn add(&mut self, rows: &Rows, took: Duration) {
        self.rows += rows.rows.len() as u64;
        self.reads += 1;
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
    /// Pieces read at the same time, and their approximate size.
    pub(super) depth: usize,
    pub(super) piece_bytes: u64,
}

type Piece = Result<(Rows, Duration), StorageError>;

/// Returns the ids of all pieces of the table repeatedly, in a new order each time.
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
    fn piece_rows(&self) -> u64 {
        (self.piece_bytes / u64::from(self.workload.table.header.stride)).max(1)
    }

    /// Reads ahead until stopped, and then ends all reads. Pieces arrive in the order of their reads only if rows
    /// are not shuffled; otherwise no piece waits for a slower one.
    fn read_ahead(&self, runtime: &Runtime, stop: &Arc<AtomicBool>) -> Receiver<Piece> {
        let depth = self.depth;
        let (send, receive) = channel(1);
        let in_order = self.workload.shuffle_rows == 0;
        let (table, stop) = (Arc::clone(&self.table), Arc::clone(stop));
        let pieces = pieces(&self.workload.table.header.ids(), self.piece_rows(), self.seed);
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
            let mut reads = match in_order {
                true => reads.buffered(depth).left_stream(),
                false => reads.buffer_unordered(depth).right_stream(),
            };
            // A panicked task ends the pieces.
            while let Some(Ok(piece)) = reads.next().await {
                let _ = send.send(piece).await;
            }
        });
        receive
    }

    /// Assembles batches until stopped.
    ///
    /// # Errors
    /// An error of the tier, or a damaged table.
    pub(super) fn load(&self, runtime: &Runtime, out: &Ready<Batch>, stop: &Arc<AtomicBool>) -> Result<Loaded> {
        let mut pieces = self.read_ahead(runtime, stop);
        let mut shuffle = Shuffle::new(self.workload.shuffle_rows, self.seed);
        let mut loaded = Loaded::default();
        let mut batch = self.workload.batch();
        let mut taken = true;
        loop {
            let waiting = Instant::now();
            // Drains the pieces after a stop, so that no read disturbs the next measurement.
            let Some(piece) = pieces.blocking_recv() else {
                return Ok(loaded);
            };
            loaded.starved_s += waiting.elapsed().as_secs_f64();
            let (rows, took) = piece?;
            loaded.add(&rows, took);
            let mut working = Instant::now();
            for row in rows.rows {
                shuffle.push(&row, |row| match taken {
                    true => self.workload.add(&mut batch, row),
                    false => Ok(()),
                })?;
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

/// Adjacent rows of the buffer. Rows are copied, so that they do not hold the memory of their whole pieces.
struct Shuffle {
    held: Vec<u8>,
    most: usize,
    random: Random,
}

impl Shuffle {
    /// Creates a buffer of `most` rows; with 0, rows leave in order.
    const fn new(most: usize, seed: u64) -> Self {
        Self {
            held: Vec::new(),
            most,
            random: Random::new(seed, 0x5f1e),
        }
    }

    /// Adds a row of the same length as all others, and hands one to `leaves` if the buffer is full.
    fn push(&mut self, row: &[u8], leaves: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        if self.most == 0 {
            return leaves(row);
        }
        if self.held.len() < self.most * row.len() {
            self.held.extend_from_slice(row);
            return Ok(());
        }
        let at = (self.random.share() * self.most as f64) as usize;
        let place = &mut self.held[at * row.len()..(at + 1) * row.len()];
        leaves(place)?;
        place.copy_from_slice(row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    /// Numbers that leave a buffer to which those below `rows` are added.
    fn pushed(shuffle: &mut Shuffle, rows: usize) -> Vec<usize> {
        let mut out = Vec::new();
        for row in 0..rows {
            let leaves = |row: &[u8]| {
                out.push(usize::from_le_bytes(row.try_into()?));
                Ok(())
            };
            shuffle.push(&row.to_le_bytes(), leaves).unwrap();
        }
        out
    }

    proptest! {
        #[test]
        fn no_row_is_lost_or_made_twice(rows in 0_usize..500, most in 0_usize..64, seed: u64) {
            let mut shuffle = Shuffle::new(most, seed);
            let mut out = pushed(&mut shuffle, rows);
            prop_assert_eq!(out.len(), rows.saturating_sub(most));
            if most == 0 {
                prop_assert!(out.is_sorted());
            }
            out.extend(shuffle.held.as_chunks().0.iter().map(|row| usize::from_le_bytes(*row)));
            out.sort_unstable();
            prop_assert_eq!(out, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_leave_far_from_where_they_came() {
        let mut shuffle = Shuffle::new(1000, 7);
        let out = pushed(&mut shuffle, 10_000);
        let apart: f64 = out.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / out.len() as f64;
        // Two rows drawn from a thousand, with exponential waits: about a thousand apart.
        assert!((500.0..2000.0).contains(&apart), "{apart}");
    }
}
