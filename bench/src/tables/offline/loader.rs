//! Loader of a table: reads ahead and decodes pieces, draws rows from a shuffle buffer, and assembles batches. In: a
//! table on a tier. Out: batches, and their cost.
//!
//! ```text
//! tier -> pieces, `depth` at a time, on `workers` threads -> shuffle buffer -> batches, `ready_bytes` ahead -> sessions
//! ```

use super::workload::{Batch, Workload};
use crate::random::Random;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, stream};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tierlab_layouts::{Rows, Table};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{Receiver, channel};

/// Figures of a loader.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoaderFigures {
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

impl LoaderFigures {
    /// Adds a piece with its read time.
    pub(super) fn add(&mut self, rows: &Rows, took: Duration) {
        self.rows += rows.len() as u64;
        self.reads += 1;
        self.requests += u64::from(rows.cost.read.requests);
        self.wire_bytes += rows.cost.read.wire_bytes;
        self.reading_s += took.as_secs_f64();
        self.decoding_s += rows.cost.decode.as_secs_f64();
    }
}

/// Table of one workload.
pub(super) struct LoaderSource {
    pub(super) table: Arc<Table>,
    pub(super) workload: Arc<Workload>,
    pub(super) seed: u64,
    /// Pieces read at the same time, and their approximate size.
    pub(super) depth: usize,
    pub(super) piece_bytes: u64,
}

type Piece = Result<(Rows, Duration)>;

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

impl LoaderSource {
    /// Reads ahead until stopped, and then ends all reads. Pieces arrive in the order of their reads only if rows
    /// are not shuffled; otherwise no piece waits for a slower one.
    fn read_ahead(&self, runtime: &Runtime, stop: &Arc<AtomicBool>) -> Receiver<Piece> {
        let depth = self.depth;
        let (send, receive) = channel(1);
        let in_order = self.workload.shuffle_rows == 0;
        let (table, stop) = (Arc::clone(&self.table), Arc::clone(stop));
        let header = &self.workload.table.header;
        let pieces = pieces(&header.ids(), self.piece_bytes / u64::from(header.stride), self.seed);
        runtime.spawn(async move {
            let not_stopped = { move |_: &Vec<i64>| !stop.load(Ordering::Acquire) };
            let reads = pieces.take_while(not_stopped).map(|ids| {
                let table = Arc::clone(&table);
                tokio::spawn(async move {
                    let started = Instant::now();
                    let rows = table.look_up(&ids).await?;
                    anyhow::Ok((rows, started.elapsed()))
                })
            });
            let reads = stream::iter(reads);
            let mut reads = match in_order {
                true => reads.buffered(depth).left_stream(),
                false => reads.buffer_unordered(depth).right_stream(),
            };
            while let Some(read) = reads.next().await {
                let piece: Piece = read.context("a read panicked").flatten();
                let _ = send.send(piece).await;
            }
        });
        receive
    }

    /// Assembles batches until stopped.
    ///
    /// # Errors
    /// An error of the tier, or a damaged table.
    pub(super) fn load(&self, runtime: &Runtime, out: &Queue<Batch>, stop: &Arc<AtomicBool>) -> Result<LoaderFigures> {
        let mut pieces = self.read_ahead(runtime, stop);
        let mut shuffle = ShuffleBuffer::new(self.workload.shuffle_rows, self.seed);
        let mut loaded = LoaderFigures::default();
        let mut batch = self.workload.batch();
        let used_bytes = self.workload.used_bytes();
        let mut is_running = true;
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
            for row in rows.iter() {
                let used = row.get(..used_bytes).context("a row is shorter than its columns")?;
                shuffle.push(used, |row| match is_running {
                    true => self.workload.add(&mut batch, row),
                    false => Ok(()),
                })?;
                if batch.rows < self.workload.batch_rows {
                    continue;
                }
                let full = std::mem::replace(&mut batch, self.workload.batch());
                loaded.batching_s += working.elapsed().as_secs_f64();
                out.put(full);
                is_running = !stop.load(Ordering::Acquire);
                working = Instant::now();
            }
            loaded.batching_s += working.elapsed().as_secs_f64();
        }
    }
}

/// Adjacent rows of the buffer. Rows are copied, so that they do not hold the memory of their whole pieces.
struct ShuffleBuffer {
    bytes: Vec<u8>,
    capacity: usize,
    random: Random,
}

impl ShuffleBuffer {
    /// Creates a buffer of `capacity` rows; with 0, rows leave in order.
    const fn new(capacity: usize, seed: u64) -> Self {
        Self {
            bytes: Vec::new(),
            capacity,
            random: Random::new(seed, 0x5f1e),
        }
    }

    /// Adds a row of the same length as all others, and hands one to `emit` if the buffer is full.
    fn push(&mut self, row: &[u8], emit: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        if self.capacity == 0 {
            return emit(row);
        }
        if self.bytes.len() < self.capacity * row.len() {
            self.bytes.extend_from_slice(row);
            return Ok(());
        }
        let at = (self.random.fraction() * self.capacity as f64) as usize;
        let slot = &mut self.bytes[at * row.len()..(at + 1) * row.len()];
        emit(slot)?;
        slot.copy_from_slice(row);
        Ok(())
    }
}

/// Batches in the queue, and waiting threads.
struct QueueState<T> {
    batches: VecDeque<T>,
    /// True from the time the queue is full until it is half empty.
    is_full: bool,
    has_ended: bool,
    /// Number of waiting takers.
    waiting: usize,
}

/// Queue between one loader and its sessions, in order. A loader that filled it sleeps until half of it is taken: if every free slot woke
/// the loader, the taker would pay for a wake-up each time. On a virtual machine that is tens of microseconds, up to a twentieth of a small
/// batch's run.
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    capacity: usize,
    not_empty: Condvar,
    half_empty: Condvar,
}

impl<T> Queue<T> {
    /// Creates a queue of at most `capacity` batches.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(QueueState {
                batches: VecDeque::new(),
                is_full: false,
                has_ended: false,
                waiting: 0,
            }),
            capacity: capacity.max(1),
            not_empty: Condvar::new(),
            half_empty: Condvar::new(),
        }
    }

    /// Adds a batch once there is room.
    pub(super) fn put(&self, batch: T) {
        let mut state = self.lock();
        state.is_full |= state.batches.len() >= self.capacity;
        while state.is_full {
            state = self.half_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.batches.push_back(batch);
        if state.waiting > 0 {
            self.not_empty.notify_one();
        }
    }

    /// Takes the next batch once there is one; `None` after the last.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                if state.is_full && state.batches.len() <= self.capacity / 2 {
                    state.is_full = false;
                    self.half_empty.notify_one();
                }
                return Some(batch);
            }
            if state.has_ended {
                return None;
            }
            state.waiting += 1;
            state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Returns a guard that closes the queue on drop, so that takers do not wait for a loader that panicked.
    pub(super) const fn close_on_drop(&self) -> CloseOnDrop<'_, T> {
        CloseOnDrop(self)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that closes a queue.
pub(super) struct CloseOnDrop<'a, T>(&'a Queue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.not_empty.notify_all();
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
    fn pushed(shuffle: &mut ShuffleBuffer, rows: usize) -> Vec<usize> {
        let mut out = Vec::new();
        for row in 0..rows {
            let emit = |row: &[u8]| {
                out.push(usize::from_le_bytes(row.try_into()?));
                Ok(())
            };
            shuffle.push(&row.to_le_bytes(), emit).unwrap();
        }
        out
    }

    proptest! {
        #[test]
        fn no_row_is_lost_or_made_twice(rows in 0_usize..500, capacity in 0_usize..64, seed: u64) {
            let mut shuffle = ShuffleBuffer::new(capacity, seed);
            let mut out = pushed(&mut shuffle, rows);
            prop_assert_eq!(out.len(), rows.saturating_sub(capacity));
            if capacity == 0 {
                prop_assert!(out.is_sorted());
            }
            out.extend(shuffle.bytes.as_chunks().0.iter().map(|row| usize::from_le_bytes(*row)));
            out.sort_unstable();
            prop_assert_eq!(out, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_leave_far_from_where_they_came() {
        let mut shuffle = ShuffleBuffer::new(1000, 7);
        let out = pushed(&mut shuffle, 10_000);
        let apart: f64 = out.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / out.len() as f64;
        // Two rows drawn from a thousand, with exponential waits: about a thousand apart.
        assert!((500.0..2000.0).contains(&apart), "{apart}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_batch_is_taken_once_and_no_more_lie_ready_than_are_allowed(max in 0_usize..9, batches in 0_usize..200, takers in 1_usize..4) {
            let queue = Queue::new(max);
            let mut taken: Vec<usize> = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _guard = queue.close_on_drop();
                    for batch in 0..batches {
                        queue.put(batch);
                        assert!(queue.lock().batches.len() <= max.max(1));
                    }
                });
                let taker = || scope.spawn(|| std::iter::from_fn(|| queue.take()).collect::<Vec<_>>());
                let takers: Vec<_> = (0..takers).map(|_| taker()).collect();
                takers.into_iter().flat_map(|taker| {
                    let taken = taker.join().unwrap();
                    assert!(taken.is_sorted());
                    taken
                }).collect()
            });
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..batches).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_queue_is_filled_again_once_half_of_it_is_taken() {
        let queue = Queue::new(4);
        (0..4).for_each(|batch| queue.put(batch));
        std::thread::scope(|scope| {
            let filling = scope.spawn(|| queue.put(4));
            while !queue.lock().is_full {
                std::thread::yield_now();
            }
            assert_eq!(queue.take(), Some(0));
            assert!(queue.lock().is_full);
            assert_eq!(queue.take(), Some(1));
            filling.join().unwrap();
        });
        drop(queue.close_on_drop());
        assert_eq!(std::iter::from_fn(|| queue.take()).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_loader_that_panics_leaves_nobody_waiting() {
        let queue = Queue::<u8>::new(4);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let _guard = queue.close_on_drop();
                panic!("a loader");
            });
            assert_eq!(queue.take(), None);
            assert!(loading.join().is_err());
        });
    }
}
