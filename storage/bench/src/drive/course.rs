//! State shared by the callers of a repeat: begin and end, the next call, and the counted window. Knows nothing of how
//! a call is made.

use super::schedule::due_times;
use super::tally::{Faults, Tally};
use crate::chance::Random;
use crate::chance::{Pick, Picker};
use crate::plan::{Access, Point};
use crate::stop::Stop;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tierlab_storage::{ReadCost, StorageError};

/// Time from creating the callers to the first call.
const LEAD: Duration = Duration::from_millis(20);
/// Maximum time for calls of an open loop after the last due time, in windows; at least [`LEAST_DRAIN`].
const DRAIN_WINDOWS: u32 = 4;
const LEAST_DRAIN: Duration = Duration::from_secs(2);

/// One repeat of a point.
#[derive(Debug)]
pub(crate) struct Course {
    picker: Picker,
    /// Due times of an open loop, from the beginning.
    due: Option<Vec<Duration>>,
    /// Index of the next call of an open loop.
    next: AtomicUsize,
    seed: u64,
    pub(super) begin: Instant,
    pub(super) measure_from: Instant,
    pub(super) until: Instant,
    pub(super) drained: Instant,
    stop: Stop,
    tolerates_faults: bool,
    failed: AtomicBool,
}

/// Call to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) pick: Pick,
    /// Due time, in an open loop.
    pub(super) due: Option<Instant>,
}

impl Course {
    pub(crate) fn new(point: &Point, access: &Access, file_bytes: u64, repeat: u32, stop: &Stop) -> Result<Self> {
        // Each repeat has its own positions and arrivals.
        let seed = access.seed.wrapping_add(u64::from(repeat).wrapping_mul(0x9E37_79B9));
        let picker = Picker::new(point, access, file_bytes)?;
        let due = match point.rate {
            0 => None,
            rate => Some(due_times(rate, access.arrivals, seed, access.warmup + access.window)?),
        };
        let begin = Instant::now() + LEAD;
        let until = begin + access.warmup + access.window;
        let drain = (access.window * DRAIN_WINDOWS).max(LEAST_DRAIN);
        Ok(Self {
            picker,
            due,
            next: AtomicUsize::new(0),
            seed,
            begin,
            measure_from: begin + access.warmup,
            until,
            drained: until + drain,
            stop: stop.clone(),
            tolerates_faults: access.tolerates_faults,
            failed: AtomicBool::new(false),
        })
    }

    pub(super) fn random(&self, caller: u32) -> Random {
        Random::new(self.seed, u64::from(caller) + 1)
    }

    /// Due times of an open loop.
    pub(super) fn due(&self) -> Option<&[Duration]> {
        self.due.as_deref()
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Handles a failed call: a transient error is counted if errors are part of the measurement; any other error ends
    /// the repeat.
    pub(super) fn fault(&self, error: anyhow::Error, begun: Instant, tally: &mut Tally) -> Result<()> {
        let of_tier = error.chain().find_map(|cause| cause.downcast_ref::<StorageError>());
        let Some(kind) = of_tier
            .map(StorageError::kind)
            .filter(|kind| self.tolerates_faults && kind.is_transient())
        else {
            self.fail();
            return Err(error);
        };
        let now = Instant::now();
        if now >= self.measure_from && now < self.until {
            tally.faults.entry(kind.as_str()).or_default().add(&Faults {
                calls: 1,
                took: now - begun,
                words: format!("{error:#}"),
            });
        }
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.stop.is_asked()
    }

    /// Returns the next call of a caller; `None` when the repeat is over.
    pub(super) fn turn(&self, random: &mut Random, tally: &mut Tally) -> Option<Turn> {
        if self.is_over() {
            return None;
        }
        let Some(due) = &self.due else {
            let goes_on = Instant::now() < self.until;
            return goes_on.then(|| Turn {
                pick: self.picker.pick(random),
                due: None,
            });
        };
        let at = self.begin + *due.get(self.next.fetch_add(1, Ordering::Relaxed))?;
        if Instant::now() >= self.drained {
            self.give_up(at, tally);
            return None;
        }
        Some(Turn {
            pick: self.picker.pick(random),
            due: Some(at),
        })
    }

    /// Counts this call of an open loop, and all calls not yet begun, as unfinished.
    fn give_up(&self, first: Instant, tally: &mut Tally) {
        let due = self.due().unwrap_or_default();
        let rest = self.next.swap(due.len(), Ordering::Relaxed).min(due.len());
        let left = due[rest..].iter().map(|at| self.begin + *at);
        for at in std::iter::once(first).chain(left).filter(|at| *at >= self.measure_from) {
            tally.latency((self.drained - at).as_nanos());
            tally.unfinished += 1;
        }
    }

    /// Counts a call if it belongs to the window: in a closed loop if it ends in it, in an open loop if it is due in
    /// it.
    pub(super) fn count(&self, turn: Turn, begun: Instant, ended: Instant, cost: &ReadCost, tally: &mut Tally) {
        let Turn { pick, due } = turn;
        let in_window = ended >= self.measure_from && ended < self.until;
        tally.ended += u64::from(in_window);
        match due {
            None if in_window => {
                tally.call((ended - begun).as_nanos(), pick.len, pick.write, cost);
            }
            Some(due) if due >= self.measure_from => {
                tally.call((ended - due).as_nanos(), pick.len, pick.write, cost);
                tally.late(begun.saturating_duration_since(due).as_nanos());
            }
            _ => {}
        }
    }
}
