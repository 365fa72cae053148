//! State shared by the callers of a repeat: start and end, the next call, the counted calls. Independent of how calls are made.

use super::tally::{Faults, Second, Tally, record};
use crate::chance::{Pick, Picker, Random};
use crate::plan::{Access, Arrivals, Pattern, Point, Share, WriteSync};
use crate::stop::Stop;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tierlab_storage::{ReadCost, StorageError};

/// Maximum calls of one repeat.
const MOST_CALLS: f64 = 20e6;
/// Time from creating the callers to the first call.
const LEAD: Duration = Duration::from_millis(20);
/// Maximum time for calls of an open loop after the last due time, in windows; at least [`LEAST_DRAIN`].
const DRAIN_WINDOWS: u32 = 4;
const LEAST_DRAIN: Duration = Duration::from_secs(2);

/// Longest repeat that ends with its calls.
const LONGEST: Duration = Duration::from_hours(24);

/// Maximum seconds of a window with figures of their own, which bounds memory: two hours.
const MOST_SECONDS: usize = 7200;

/// One repeat of a point.
#[derive(Debug)]
pub(crate) struct Course {
    picker: Picker,
    /// Due times of an open loop, from the start.
    due: Option<Vec<Duration>>,
    /// Index of the next call.
    next: AtomicUsize,
    /// Maximum calls: a cold sequential repeat ends with its data, whose pages are warm afterwards.
    most: Option<usize>,
    /// True once a caller found no data left.
    ran_out: AtomicBool,
    /// If true, the repeat ends once all writes are durable.
    pub(super) ends_with_sync: bool,
    seed: u64,
    pub(super) begin: Instant,
    pub(crate) measure_from: Instant,
    pub(super) until: Instant,
    pub(super) drained: Instant,
    stop: Stop,
    tolerates_faults: bool,
    failed: AtomicBool,
    seconds: Mutex<Vec<Second>>,
}

/// Finished call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) bytes: usize,
    pub(crate) cost: ReadCost,
}

/// Caller of a tier, run as a task.
pub(crate) trait Caller: Send + 'static {
    /// Makes a call. Checks its bytes after its end time is taken.
    fn call(&mut self, pick: Pick) -> impl Future<Output = Result<Call>> + Send;
}

/// Call to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) pick: Pick,
    /// Due time in an open loop.
    pub(super) due: Option<Instant>,
    /// Time at which the caller got it.
    pub(super) at: Instant,
}

impl Course {
    pub(crate) fn new(point: &Point, access: &Access, file_bytes: u64, repeat: u32, stop: &Stop) -> Result<Self> {
        let seed = access.seed_of(repeat);
        let picker = Picker::new(point, access, file_bytes)?;
        let warmup = match point.skips_warmup() {
            true => Duration::ZERO,
            false => access.warmup,
        };
        let due = match point.rate {
            0 => None,
            rate => Some(due_times(
                rate,
                access.arrivals,
                access.share,
                seed,
                warmup + access.window,
            )?),
        };
        let blocks = (file_bytes / point.block_bytes).max(1) as usize * point.objects() as usize;
        let most = point.ends_with_data().then_some(match point.pattern {
            // The first round: read-ahead has fetched the blocks of the others.
            Pattern::Strided => blocks.div_ceil(access.stride as usize),
            _ => blocks,
        });
        let begin = Instant::now() + LEAD;
        let window = match point.operation.is_once() {
            true => LONGEST,
            false => access.window,
        };
        let until = begin + warmup + window;
        let drain = (access.window * DRAIN_WINDOWS).max(LEAST_DRAIN);
        Ok(Self {
            picker,
            due,
            next: AtomicUsize::new(0),
            most,
            ran_out: AtomicBool::new(false),
            ends_with_sync: point.sync == WriteSync::End,
            seed,
            begin,
            measure_from: begin + warmup,
            until,
            drained: until + drain,
            stop: stop.clone(),
            tolerates_faults: access.tolerates_faults,
            failed: AtomicBool::new(false),
            seconds: Mutex::default(),
        })
    }

    /// Moves the repeat to a start agreed by several agents.
    pub(crate) fn beginning(mut self, begin: Instant) -> Self {
        for moment in [&mut self.measure_from, &mut self.until, &mut self.drained] {
            *moment = begin + (*moment - self.begin);
        }
        self.begin = begin;
        self
    }

    /// Random numbers of a caller.
    pub(crate) fn random(&self, caller: u32) -> Random {
        Random::new(self.seed, u64::from(caller) + 1)
    }

    /// Returns the position of a further access of a call.
    pub(crate) fn pick(&self, random: &mut Random) -> Pick {
        self.picker.pick(random)
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
        self.failed.load(Ordering::Relaxed) || self.stop.is_asked() || self.ran_out()
    }

    /// True once the data of a repeat that ends with its data is used up.
    pub(super) fn ran_out(&self) -> bool {
        self.ran_out.load(Ordering::Relaxed)
    }

    /// Adds a caller's current second to the seconds of all callers, once a second per caller.
    fn hand_in(&self, tally: &mut Tally, next: usize) {
        let (number, second) = std::mem::replace(&mut tally.second, (next, Second::default()));
        if number < MOST_SECONDS && !second.latency_ns.is_empty() {
            let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
            if seconds.len() <= number {
                seconds.resize_with(number + 1, Second::default);
            }
            seconds[number].add(&second);
        }
    }

    /// Calls of each whole second of a window.
    pub(super) fn seconds(&self, window: Duration) -> Vec<Second> {
        let mut seconds = std::mem::take(&mut *self.seconds.lock().unwrap_or_else(PoisonError::into_inner));
        seconds.resize_with((window.as_secs() as usize).min(MOST_SECONDS), Second::default);
        seconds
    }

    /// Returns the next call of a caller; `None` when the repeat is over.
    pub(super) fn turn(&self, random: &mut Random, tally: &mut Tally) -> Option<Turn> {
        let turn = self.next_turn(random, tally);
        if turn.is_none() {
            self.hand_in(tally, 0);
        }
        turn
    }

    fn next_turn(&self, random: &mut Random, tally: &mut Tally) -> Option<Turn> {
        if self.is_over() {
            return None;
        }
        let now = Instant::now();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.most.is_some_and(|most| number >= most) {
            self.ran_out.store(true, Ordering::Relaxed);
            return None;
        }
        let due = match &self.due {
            None if now >= self.until => return None,
            None => None,
            Some(due) => Some(self.begin + *due.get(number)?),
        };
        if let Some(due) = due.filter(|_| now >= self.drained) {
            self.give_up(due, tally);
            return None;
        }
        let pick = self.picker.pick(random);
        Some(Turn { pick, due, at: now })
    }

    /// Counts this call of an open loop, and all calls not yet started, as unfinished.
    fn give_up(&self, first: Instant, tally: &mut Tally) {
        let due = self.due().unwrap_or_default();
        let rest = self.next.swap(due.len(), Ordering::Relaxed).min(due.len());
        let left = due[rest..].iter().map(|at| self.begin + *at);
        for at in std::iter::once(first).chain(left).filter(|at| *at >= self.measure_from) {
            record(&mut tally.latency_ns, (self.drained - at).as_nanos());
            tally.sums.unfinished += 1;
        }
    }

    /// Counts a call in the window's rates if it ends in the window. Latencies of an open loop are those of calls due in the window.
    pub(super) fn count(&self, turn: Turn, call: &Call, tally: &mut Tally) {
        let Turn { pick, due, .. } = turn;
        tally.last_end = Some(call.ended);
        let is_in_window = call.ended >= self.measure_from && call.ended < self.until;
        let from = due.unwrap_or(call.begun);
        if is_in_window {
            tally.sums.ended += 1;
            tally.sums.ended_bytes += call.bytes as u64;
            let number = (call.ended - self.measure_from).as_secs() as usize;
            if number != tally.second.0 {
                self.hand_in(tally, number);
            }
            tally.second.1.call((call.ended - from).as_nanos(), call.bytes);
        }
        let mut add = |from: Instant| tally.call((call.ended - from).as_nanos(), call.bytes, pick.write, &call.cost);
        match due {
            None if is_in_window => add(call.begun),
            Some(due) if due >= self.measure_from => {
                add(due);
                record(&mut tally.late_ns, call.begun.saturating_duration_since(due).as_nanos());
            }
            _ => {}
        }
    }
}

/// Returns the due times up to an end, of this agent's share of the rate.
///
/// # Errors
/// More calls than a repeat may have.
fn due_times(rate: u32, arrivals: Arrivals, share: Share, seed: u64, end: Duration) -> anyhow::Result<Vec<Duration>> {
    // The sum of independent Poisson processes is a Poisson process; equal gaps of several agents are interleaved.
    let gap = f64::from(share.of) / f64::from(rate);
    let expected = end.as_secs_f64() / gap;
    anyhow::ensure!(
        expected <= MOST_CALLS,
        "{expected:.0} calls in a repeat are more than {MOST_CALLS:.0}"
    );
    let mut random = Random::new(seed, 0x0073_6368_6564);
    let mut due = Vec::with_capacity(expected as usize + 1);
    let mut at = match arrivals {
        Arrivals::Poisson => 0.0,
        Arrivals::Constant => gap * (f64::from(share.number + 1) / f64::from(share.of) - 1.0),
    };
    loop {
        at += match arrivals {
            // The inverse of the exponential distribution; 1 - share is never 0.
            Arrivals::Poisson => -(1.0 - random.share()).ln() * gap,
            Arrivals::Constant => gap,
        };
        let moment = Duration::from_secs_f64(at);
        if moment >= end {
            return Ok(due);
        }
        due.push(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CacheState;

    #[test]
    fn a_seed_names_the_moments_and_the_rate_is_kept() {
        let end = Duration::from_secs(20);
        let poisson = due_times(1000, Arrivals::Poisson, Share::default(), 1, end).unwrap();
        assert_eq!(
            poisson,
            due_times(1000, Arrivals::Poisson, Share::default(), 1, end).unwrap()
        );
        assert_ne!(
            poisson,
            due_times(1000, Arrivals::Poisson, Share::default(), 2, end).unwrap()
        );
        // Four standard deviations of a Poisson count.
        assert!((poisson.len() as f64 - 20_000.0).abs() < 4.0 * 20_000_f64.sqrt());
        assert!(poisson.is_sorted());
        assert_eq!(
            due_times(100, Arrivals::Constant, Share::default(), 1, Duration::from_secs(1))
                .unwrap()
                .len(),
            99
        );
        assert!(due_times(4_000_000_000, Arrivals::Constant, Share::default(), 1, end).is_err());
    }

    #[test]
    fn bytes_per_second_are_of_calls_that_end_in_the_window() {
        let second = Duration::from_secs(1);
        let point = Point {
            rate: 10,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(1 << 20, second, second);
        let course = Course::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let mut tally = Tally::default();
        let (before, within, after) = (course.begin, course.measure_from, course.until);
        for (due, ended) in [(before, within), (within, after), (within, after)] {
            let turn = Turn {
                pick: course.pick(&mut course.random(0)),
                due: Some(due),
                at: due,
            };
            let call = Call {
                begun: due,
                ended,
                bytes: 4096,
                cost: ReadCost::default(),
            };
            course.count(turn, &call, &mut tally);
        }
        let sums = tally.sums;
        assert_eq!((sums.calls, sums.asked_bytes), (2, 2 * 4096), "due in the window");
        assert_eq!((sums.ended, sums.ended_bytes), (1, 4096), "ended in the window");
        assert_eq!(tally.latency_ns.len(), 2);
    }

    #[test]
    fn cold_strided_reads_end_with_their_first_round() {
        let point = Point {
            pattern: Pattern::Strided,
            cache: CacheState::Cold,
            ..Point::reads("t", 4096)
        };
        let access = Access {
            stride: 4,
            ..Access::reads(18 * 4096, Duration::from_secs(9), Duration::ZERO)
        };
        let course = Course::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let (mut random, mut tally) = (course.random(0), Tally::default());
        let turns = std::iter::from_fn(|| course.turn(&mut random, &mut tally));
        let blocks: Vec<u64> = turns.map(|turn| turn.pick.offset / 4096).collect();
        assert_eq!(blocks, [0, 4, 8, 12, 16]);
    }

    #[test]
    fn agents_offer_the_rate_together_and_take_turns() {
        let due = |number| {
            let share = Share { number, of: 2 };
            due_times(100, Arrivals::Constant, share, 1, Duration::from_secs(1)).unwrap()
        };
        let mut both = [due(0), due(1)].concat();
        both.sort_unstable();
        let apart = both.windows(2).map(|two| (two[1] - two[0]).as_secs_f64());
        assert!(
            both.len() == 99 && apart.into_iter().all(|gap| (gap - 0.01).abs() < 1e-6),
            "{both:?}"
        );
    }
}
