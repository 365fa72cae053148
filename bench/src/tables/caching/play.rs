//! Traces of look-ups, and their playback. In: a law and a seed; a tier, the table's object on it. Out: rows, the same on every machine for
//! the same seed; the time of each look-up, and the misses over time. Callers take the next row after each look-up: a closed loop, whose
//! latencies are service times.

use crate::random::{Random, Zipf};
use crate::stop::Stop;
use crate::ways::Counts;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tierlab_storage::{Object, Tier};

/// Table for look-ups: rows of one size in one object, generated from a seed.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) bytes: Bytes,
    pub(super) row_bytes: u64,
}

impl Table {
    pub(super) fn new(rows: u32, row_bytes: u64, seed: u64) -> Self {
        let mut bytes = vec![0_u8; (u64::from(rows) * row_bytes) as usize];
        let mut random = Random::new(seed, 0x7ab1e);
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = random.next().to_le_bytes();
        }
        Self {
            bytes: Bytes::from(bytes),
            row_bytes,
        }
    }

    /// Byte range of a row.
    pub(super) fn range(&self, row: u32) -> Range<u64> {
        let start = u64::from(row) * self.row_bytes;
        start..start + self.row_bytes
    }

    pub(super) fn row(&self, row: u32) -> &[u8] {
        let range = self.range(row);
        &self.bytes[range.start as usize..range.end as usize]
    }
}

/// State of a playback at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Mark {
    /// Look-ups started; calls to the origin also count at their start.
    pub(super) lookups: u64,
    pub(super) elapsed_s: f64,
    /// Calls that reached the origin.
    pub(super) misses: u64,
}

/// Figures of a playback.
#[derive(Debug)]
pub(super) struct PlaybackFigures {
    pub(super) latencies_us: Vec<f64>,
    pub(super) elapsed_s: f64,
    pub(super) misses: u64,
    pub(super) marks: Vec<Mark>,
}

/// Trace to play through a tier.
pub(super) struct Playback {
    pub(super) tier: Arc<dyn Tier>,
    pub(super) object: Object,
    pub(super) table: Table,
    pub(super) rows: Arc<Vec<u32>>,
    /// Counter of calls that reach the origin. Each look-up is within one entry of any cache, so such a call is a miss. A look-up that
    /// joins another's fetch is not a miss, although it waits.
    pub(super) origin: Arc<Counts>,
    /// Number of callers.
    pub(super) depth: usize,
    /// Time after which no look-up starts.
    pub(super) max_time: Duration,
    /// Look-ups from one mark to the next.
    pub(super) mark_interval: usize,
    pub(super) stop: Stop,
}

/// State shared by the callers.
struct RunningPlayback {
    playback: Playback,
    started: Instant,
    next: AtomicUsize,
    ended: AtomicUsize,
    /// Calls to the origin before this trace.
    calls_before: u64,
    marks: Mutex<Vec<Mark>>,
}

impl RunningPlayback {
    fn misses(&self) -> u64 {
        self.playback.origin.calls.load(Ordering::Relaxed) - self.calls_before
    }

    async fn call(&self) -> Result<Vec<f64>> {
        let playback = &self.playback;
        let mut latencies = Vec::new();
        loop {
            let is_over = playback.stop.is_requested() || self.started.elapsed() >= playback.max_time;
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&row) = playback.rows.get(next).filter(|_| !is_over) else {
                return Ok(latencies);
            };
            let started = Instant::now();
            let read = playback.tier.read(&playback.object, playback.table.range(row)).await;
            let took = started.elapsed();
            let is_equal = read.as_ref().is_ok_and(|read| read.bytes == playback.table.row(row));
            if !is_equal {
                // Leaves no row for the other callers.
                self.next.store(playback.rows.len(), Ordering::Relaxed);
            }
            read?;
            ensure!(is_equal, "row {row}: bytes differ from those written");
            latencies.push(took.as_secs_f64() * 1e6);
            let ended = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
            if ended.is_multiple_of(playback.mark_interval) {
                let mark = Mark {
                    lookups: self.next.load(Ordering::Relaxed).min(playback.rows.len()) as u64,
                    elapsed_s: self.started.elapsed().as_secs_f64(),
                    misses: self.misses(),
                };
                self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
            }
        }
    }
}

impl Playback {
    /// Plays the trace.
    ///
    /// # Errors
    /// A read fails, bytes are wrong, or no look-up ended in time.
    pub(super) async fn play(self) -> Result<PlaybackFigures> {
        let running = Arc::new(RunningPlayback {
            started: Instant::now(),
            next: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            calls_before: self.origin.calls.load(Ordering::Relaxed),
            marks: Mutex::default(),
            playback: self,
        });
        let call = |running: Arc<RunningPlayback>| tokio::spawn(async move { running.call().await });
        let callers: Vec<_> = (0..running.playback.depth).map(|_| call(running.clone())).collect();
        let mut latencies_us = Vec::new();
        let mut ended = Ok(());
        for caller in callers {
            match caller.await.context("a caller panicked")? {
                Ok(own) => latencies_us.extend(own),
                Err(error) => ended = Err(error),
            }
        }
        let elapsed_s = running.started.elapsed().as_secs_f64();
        ended?;
        let max_time_s = running.playback.max_time.as_secs_f64();
        let is_measured = !latencies_us.is_empty() || running.playback.stop.is_requested();
        ensure!(is_measured, "no look-up ended in {max_time_s:.0} s");
        let mut marks = running.marks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        marks.sort_by_key(|mark| mark.lookups);
        Ok(PlaybackFigures {
            latencies_us,
            elapsed_s,
            misses: running.misses(),
            marks,
        })
    }
}

/// Distance from the final hit ratio within which the cache is warm, as a share of that ratio.
const WARM_TOLERANCE: f64 = 0.05;
/// Final hit ratio below which hits are coincidence, without a warm-up.
const MIN_RATIO: f64 = 0.01;

/// Returns the look-ups and seconds up to the first mark whose two latest sections have a hit ratio within 5 % of the last quarter's;
/// `None` without hits, or with too few look-ups.
pub(super) fn warm_up(marks: &[Mark]) -> Option<(u64, f64)> {
    let ratio = |from: &Mark, to: &Mark| {
        let lookups = to.lookups.saturating_sub(from.lookups).max(1) as f64;
        1.0 - to.misses.saturating_sub(from.misses) as f64 / lookups
    };
    if marks.len() < 4 {
        return None;
    }
    let all = [&[Mark::default()], marks].concat();
    let (last, quarter) = (all[all.len() - 1], all[(all.len() - 1) * 3 / 4]);
    let final_hit_ratio = ratio(&quarter, &last).clamp(0.0, 1.0);
    let is_warm = |at: &usize| ratio(&all[at.saturating_sub(2)], &all[*at]) >= final_hit_ratio * (1.0 - WARM_TOLERANCE);
    let first = (1..all.len()).find(is_warm).filter(|_| final_hit_ratio >= MIN_RATIO)?;
    Some((all[first].lookups, all[first].elapsed_s))
}

/// Popularity of rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Law {
    /// Rank `r` is accessed with a constant weight `r^-exponent`; 0 is uniform.
    Zipf { exponent: f64 },
    /// One row after another, restarting after the last.
    Scan {},
    /// Zipf's law, with ranks reassigned to other rows after every `every` look-ups.
    Shifting { exponent: f64, every: u32 },
}

impl Law {
    /// Exponent, and look-ups after which ranks are reassigned.
    const fn parameters(&self) -> (f64, u32) {
        match *self {
            Self::Scan {} => (0.0, u32::MAX),
            Self::Zipf { exponent } => (exponent, u32::MAX),
            Self::Shifting { exponent, every } => (exponent, every),
        }
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<()> {
        let (exponent, every) = self.parameters();
        if !(0.0..=10.0).contains(&exponent) {
            bail!("laws.exponent: must be from 0 (uniform) to 10, not {exponent}");
        }
        ensure!(every > 0, "laws.every: must be at least 1");
        Ok(())
    }

    /// Returns the rows of a trace, each from 0 to below `rows`.
    ///
    /// # Errors
    /// More rows than Zipf's law supports.
    pub(super) fn trace(&self, rows: u32, lookups: u32, seed: u64) -> Result<Vec<u32>> {
        let mut random = Random::new(seed, 0x7ace);
        let rows64 = u64::from(rows);
        if matches!(self, Self::Scan {}) {
            let first = random.next() % rows64;
            let row = |at: u32| ((first + u64::from(at)) % rows64) as u32;
            return Ok((0..lookups).map(row).collect());
        }
        let (exponent, every) = self.parameters();
        let zipf = Zipf::new(rows64, exponent)?;
        let row = |at: u32| {
            // Current index of the most popular row; the others follow it.
            let shift = Random::new(seed, 0x5417 + u64::from(at / every)).next() % rows64;
            ((zipf.block(random.fraction()) + shift) % rows64) as u32
        };
        Ok((0..lookups).map(row).collect())
    }
}

impl fmt::Display for Law {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan {} => write!(out, "scan"),
            Self::Zipf { exponent } if *exponent == 0.0 => write!(out, "uniform"),
            Self::Zipf { exponent } => write!(out, "zipf {exponent}"),
            Self::Shifting { exponent, every } => write!(out, "zipf {exponent}, shifting every {every}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn marks(misses: &[u64]) -> Vec<Mark> {
        let mut sum = 0;
        let mark = |(at, misses): (usize, &u64)| {
            sum += misses;
            Mark {
                lookups: (at as u64 + 1) * 100,
                elapsed_s: at as f64 + 1.0,
                misses: sum,
            }
        };
        misses.iter().enumerate().map(mark).collect()
    }

    #[test]
    fn warm_is_when_it_hits_as_at_the_end() {
        // 0, 20, 50, 50 ... hits of 100: two sections of 50 are complete after the fourth.
        let warm = |misses: &[u64]| warm_up(&marks(misses));
        assert_eq!(warm(&[100, 80, 50, 50, 50, 50, 50, 50]), Some((400, 4.0)));
        assert_eq!(warm(&[10, 10, 10, 10]), Some((100, 1.0)));
        assert_eq!(warm(&[100; 8]), None);
        assert_eq!(warm(&[100, 0]), None);
    }

    /// Rows by their number of accesses, the most popular first.
    fn popular(trace: &[u32]) -> Vec<u32> {
        let mut counts: HashMap<u32, u32> = HashMap::new();
        trace.iter().for_each(|row| *counts.entry(*row).or_default() += 1);
        let mut rows: Vec<_> = counts.into_iter().collect();
        rows.sort_by_key(|&(row, count)| (std::cmp::Reverse(count), row));
        rows.into_iter().map(|(row, _)| row).collect()
    }

    #[test]
    fn a_seed_names_a_trace_and_laws_are_what_they_are_called() {
        let zipf = Law::Zipf { exponent: 1.2 };
        let trace = zipf.trace(1000, 4000, 7).unwrap();
        assert_eq!(trace, zipf.trace(1000, 4000, 7).unwrap());
        assert_ne!(trace, zipf.trace(1000, 4000, 8).unwrap());
        assert!(trace.iter().all(|row| *row < 1000));
        assert_eq!(popular(&trace[..2000])[0], popular(&trace[2000..])[0]);
        let shifting = Law::Shifting {
            exponent: 1.2,
            every: 2000,
        };
        let trace = shifting.trace(1000, 4000, 7).unwrap();
        assert_ne!(popular(&trace[..2000])[0], popular(&trace[2000..])[0]);
        let scan = Law::Scan {}.trace(10, 25, 3).unwrap();
        assert!(scan.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 10));
        assert_eq!(scan[..5], scan[20..]);
    }

    #[test]
    fn laws_read_as_they_are_written_and_bad_ones_are_refused() {
        let read = |text: &str| toml::from_str::<Law>(text);
        assert_eq!(read("law = \"zipf\"\nexponent = 0.8").unwrap().to_string(), "zipf 0.8");
        assert_eq!(read("law = \"scan\"").unwrap(), Law::Scan {});
        assert!(read("law = \"zipf\"").is_err() && read("law = \"scan\"\nexponent = 1.0").is_err());
        assert!(Law::Zipf { exponent: -1.0 }.check().is_err());
        assert!(
            Law::Shifting {
                exponent: 1.0,
                every: 0
            }
            .check()
            .is_err()
        );
    }
}
