//! State shared by the callers of a repeat: start and end, the next call, the counted calls. Independent of how calls are made.

use super::tally::{Faults, Second, Tally, record};
use crate::plan::{Access, Arrivals, Point, Share, WriteSync};
use crate::random::{Pick, Picker, Random};
use crate::stop::Stop;
use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tierlab_storage::{ReadCost, StorageError};

/// Time from creating the callers to the first call.
const START_DELAY: Duration = Duration::from_millis(20);
/// Callers with threads of their own that start in that time.
const THREADS_PER_DELAY: u32 = 128;
/// Time from the first sample of the machine to the first call, if that call counts.
const SAMPLE_LEAD: Duration = Duration::from_millis(5);
/// Maximum time for calls of an open loop after the last due time, in windows; at least [`MIN_DRAIN`].
const DRAIN_WINDOWS: u32 = 4;
const MIN_DRAIN: Duration = Duration::from_secs(2);
/// The same after the window of a closed loop, whose tier may retry for long.
const MIN_CLOSED_DRAIN: Duration = Duration::from_secs(30);

/// Longest repeat that ends with its calls.
const MAX_REPEAT: Duration = Duration::from_hours(24);

/// Maximum seconds of a window with figures of their own, which bounds memory: two hours.
const MAX_SECONDS: usize = 7200;

/// One repeat of a point.
#[derive(Debug)]
pub(crate) struct RepeatRun {
    picker: Picker,
    /// Due times of an open loop, from the start.
    pub(super) due: Option<Vec<Duration>>,
    /// Index of the next call.
    next_index: AtomicUsize,
    /// Maximum calls: a cold repeat ends with its data, whose pages are warm afterwards.
    max_calls: Option<usize>,
    /// True once a caller found no data left.
    out_of_data: AtomicBool,
    /// If true, the repeat ends once all writes are durable.
    pub(super) ends_with_sync: bool,
    seed: u64,
    pub(super) start: Instant,
    pub(crate) window_start: Instant,
    pub(super) window_end: Instant,
    pub(super) drain_end: Instant,
    stop: Stop,
    tolerates_faults: bool,
    failed: AtomicBool,
    seconds: Mutex<Vec<Second>>,
}

/// Finished call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    pub(crate) bytes: usize,
    pub(crate) cost: ReadCost,
}

/// Caller of a tier, run as a task.
pub(crate) trait Caller: Send + 'static {
    /// Makes a call, whose time begins at `at` if it needs no preparation. Checks its bytes after its end time is taken.
    fn call(&mut self, pick: Pick, at: Instant) -> impl Future<Output = Result<Call>> + Send;
}

/// Call to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextCall {
    pub(super) pick: Pick,
    /// Due time in an open loop.
    pub(super) due: Option<Instant>,
    /// Time at which the caller got it.
    pub(super) at: Instant,
}

impl RepeatRun {
    pub(crate) fn new(point: &Point, access: &Access, file_bytes: u64, repeat: u32, stop: &Stop) -> Result<Self> {
        let seed = access.seed_of(repeat);
        let picker = Picker::new(point, access, file_bytes, seed)?;
        let warmup = access.warmup_of(point);
        let end = warmup + access.window;
        let due = match point.rate {
            0 => None,
            rate => Some(due_times(rate, access.arrivals, access.share, seed, end)),
        };
        let blocks = (file_bytes / point.block_bytes).max(1) as usize * point.objects() as usize;
        let max_calls = blocks.div_ceil(access.cold_parts(point.pattern) as usize);
        let threads = if point.way.is_peer() { point.depth } else { 0 };
        let start = Instant::now() + START_DELAY * (1 + threads / THREADS_PER_DELAY);
        let window = match point.operation.is_once() {
            true => MAX_REPEAT,
            false => access.window,
        };
        let window_end = start + warmup + window;
        let min_drain = if due.is_some() { MIN_DRAIN } else { MIN_CLOSED_DRAIN };
        let drain = (access.window * DRAIN_WINDOWS).max(min_drain);
        Ok(Self {
            picker,
            due,
            next_index: AtomicUsize::new(0),
            max_calls: point.ends_with_data().then_some(max_calls),
            out_of_data: AtomicBool::new(false),
            ends_with_sync: point.sync == WriteSync::End,
            seed,
            start,
            window_start: start + warmup,
            window_end,
            drain_end: window_end + drain,
            stop: stop.clone(),
            tolerates_faults: access.tolerates_faults,
            failed: AtomicBool::new(false),
            seconds: Mutex::default(),
        })
    }

    /// Moves the repeat to a start agreed by several agents.
    pub(crate) fn starting_at(mut self, start: Instant) -> Self {
        for moment in [&mut self.window_start, &mut self.window_end, &mut self.drain_end] {
            *moment = start + (*moment - self.start);
        }
        self.start = start;
        self
    }

    /// Time of the first sample of the machine. Without a warm-up it is before the first call, whose read-ahead may be megabytes.
    pub(super) fn first_sample(&self) -> Instant {
        match self.window_start == self.start {
            true => self.start - SAMPLE_LEAD,
            false => self.window_start,
        }
    }

    /// Random numbers of a caller.
    pub(crate) fn random(&self, caller: u32) -> Random {
        Random::new(self.seed, u64::from(caller) + 1)
    }

    /// Returns the position of a further access of a call.
    pub(crate) fn pick(&self, random: &mut Random) -> Pick {
        self.picker.pick(random)
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Handles a failed call: a transient error is counted if errors are part of the measurement; any other error ends
    /// the repeat.
    pub(super) fn handle_error(&self, error: anyhow::Error, started: Instant, tally: &mut Tally) -> Result<()> {
        let of_tier = error.chain().find_map(|cause| cause.downcast_ref::<StorageError>());
        let Some(kind) = of_tier
            .map(StorageError::kind)
            .filter(|kind| self.tolerates_faults && kind.is_transient())
        else {
            self.fail();
            return Err(error);
        };
        let now = Instant::now();
        if now >= self.window_start && now < self.window_end {
            tally.faults.entry(kind.as_str()).or_default().add(&Faults {
                calls: 1,
                took: now - started,
                first_error: format!("{error:#}"),
            });
        }
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_cut_short() || self.is_out_of_data()
    }

    /// True after an error or an interrupt, which also ends calls that are not yet due.
    pub(super) fn is_cut_short(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.stop.is_requested()
    }

    /// Returns once calls in flight are given up: at the end of the drain, or soon after an interrupt.
    pub(super) async fn given_up(&self) {
        tokio::select! {
            () = tokio::time::sleep_until(self.drain_end.into()) => {}
            () = self.stop.requested() => tokio::time::sleep(MIN_DRAIN).await,
        }
    }

    /// Counts a call of an open loop that was given up. The call of a closed loop has no due time, and so no latency.
    ///
    /// # Errors
    /// A call of a closed loop that was not interrupted.
    pub(super) fn give_up(&self, next: NextCall, tally: &mut Tally) -> Result<()> {
        self.merge_second(tally, 0);
        if let Some(due) = next.due {
            self.count_unfinished(due, tally);
        } else if !self.stop.is_requested() {
            let waited = (self.drain_end - self.window_end).as_secs();
            bail!("a call did not end for {waited} s after the repeat: check the tier, or raise `seconds`");
        }
        Ok(())
    }

    /// True once the data of a repeat that ends with its data is used up.
    pub(super) fn is_out_of_data(&self) -> bool {
        self.out_of_data.load(Ordering::Relaxed)
    }

    /// Adds a caller's current second to the seconds of all callers, once a second per caller.
    fn merge_second(&self, tally: &mut Tally, next_second: usize) {
        let (number, second) = std::mem::replace(&mut tally.second, (next_second, Second::default()));
        if number < MAX_SECONDS && !second.latency_ns.is_empty() {
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
        seconds.resize_with((window.as_secs() as usize).min(MAX_SECONDS), Second::default);
        seconds
    }

    /// Returns the next call of a caller; `None` when the repeat is over.
    pub(super) fn next_call(&self, random: &mut Random, tally: &mut Tally) -> Option<NextCall> {
        let next = self.take_next(random, tally);
        if next.is_none() {
            self.merge_second(tally, 0);
        }
        next
    }

    fn take_next(&self, random: &mut Random, tally: &mut Tally) -> Option<NextCall> {
        if self.is_over() {
            return None;
        }
        let number = self.next_index.fetch_add(1, Ordering::Relaxed);
        if self.max_calls.is_some_and(|max_calls| number >= max_calls) {
            self.out_of_data.store(true, Ordering::Relaxed);
            return None;
        }
        let pick = self.picker.pick(random);
        // Read last: the call begins at this time.
        let now = Instant::now();
        let due = match &self.due {
            None if now >= self.window_end => return None,
            None => None,
            Some(due) => Some(self.start + *due.get(number)?),
        };
        if let Some(due) = due.filter(|_| now >= self.drain_end) {
            self.count_unfinished(due, tally);
            return None;
        }
        Some(NextCall { pick, due, at: now })
    }

    /// Counts this call of an open loop, and all calls not yet started, as unfinished.
    fn count_unfinished(&self, first: Instant, tally: &mut Tally) {
        let due = self.due.as_deref().unwrap_or_default();
        let rest = self.next_index.swap(due.len(), Ordering::Relaxed).min(due.len());
        let left = due[rest..].iter().map(|at| self.start + *at);
        for at in std::iter::once(first).chain(left).filter(|at| *at >= self.window_start) {
            record(&mut tally.latency_ns, (self.drain_end - at).as_nanos());
            tally.sums.unfinished += 1;
        }
    }

    /// Counts a call in the window's rates if it ends in the window. Latencies of an open loop are those of calls due in the window.
    pub(super) fn count(&self, next: NextCall, call: &Call, tally: &mut Tally) {
        let NextCall { pick, due, .. } = next;
        tally.first_start.get_or_insert(call.started);
        tally.last_end = Some(call.ended);
        let is_in_window = call.ended >= self.window_start && call.ended < self.window_end;
        let from = due.unwrap_or(call.started);
        if is_in_window {
            tally.sums.ended += 1;
            tally.sums.ended_bytes += call.bytes as u64;
            let number = (call.ended - self.window_start).as_secs() as usize;
            if number != tally.second.0 {
                self.merge_second(tally, number);
            }
            tally.second.1.call((call.ended - from).as_nanos(), call.bytes);
        }
        let mut add = |from: Instant| tally.call((call.ended - from).as_nanos(), call.bytes, pick.write, &call.cost);
        match due {
            None if is_in_window => add(call.started),
            Some(due) if due >= self.window_start => {
                add(due);
                let lag = call.started.saturating_duration_since(due);
                record(&mut tally.lag_ns, lag.as_nanos());
            }
            _ => {}
        }
    }
}

/// Returns the due times up to an end, of this agent's share of the rate. A plan bounds their number.
fn due_times(rate: u32, arrivals: Arrivals, share: Share, seed: u64, end: Duration) -> Vec<Duration> {
    // The sum of independent Poisson processes is a Poisson process; equal gaps of several agents are interleaved.
    let gap = f64::from(share.of) / f64::from(rate);
    let mut random = Random::new(seed, 0x0073_6368_6564);
    let mut due = Vec::with_capacity((end.as_secs_f64() / gap) as usize + 1);
    let mut at = match arrivals {
        Arrivals::Poisson => 0.0,
        Arrivals::Constant => gap * (f64::from(share.number + 1) / f64::from(share.of) - 1.0),
    };
    loop {
        at += match arrivals {
            // The inverse of the exponential distribution; 1 - share is never 0.
            Arrivals::Poisson => -(1.0 - random.fraction()).ln() * gap,
            Arrivals::Constant => gap,
        };
        let moment = Duration::from_secs_f64(at);
        if moment >= end {
            return due;
        }
        due.push(moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CacheState, Pattern, Way};

    #[test]
    fn many_callers_have_time_to_start() {
        let delay = |way, depth| {
            let point = Point {
                way,
                depth,
                ..Point::reads("disk", 4096)
            };
            let access = Access::reads(4096, Duration::from_secs(1), Duration::ZERO);
            let before = Instant::now();
            let run = RepeatRun::new(&point, &access, 4096, 0, &Stop::default()).unwrap();
            [run.start - before, run.start - Instant::now()]
        };
        let [since_before, _] = delay(Way::Pread, 4096);
        assert!(since_before >= 33 * START_DELAY, "{since_before:?}");
        for (way, depth) in [(Way::Pread, 1), (Way::Tier, 4096)] {
            let [_, since_after] = delay(way, depth);
            assert!(since_after <= START_DELAY, "{since_after:?}");
        }
    }

    #[test]
    fn a_seed_names_the_moments_and_the_rate_is_kept() {
        let end = Duration::from_secs(20);
        let of_seed = |seed| due_times(1000, Arrivals::Poisson, Share::default(), seed, end);
        let poisson = of_seed(1);
        assert_eq!(poisson, of_seed(1));
        assert_ne!(poisson, of_seed(2));
        // Four standard deviations of a Poisson count.
        assert!((poisson.len() as f64 - 20_000.0).abs() < 4.0 * 20_000_f64.sqrt());
        assert!(poisson.is_sorted());
        let constant = due_times(100, Arrivals::Constant, Share::default(), 1, Duration::from_secs(1));
        assert_eq!(constant.len(), 99);
    }

    #[test]
    fn bytes_per_second_are_of_calls_that_end_in_the_window() {
        let second = Duration::from_secs(1);
        let point = Point {
            rate: 10,
            ..Point::reads("t", 4096)
        };
        let access = Access::reads(1 << 20, second, second);
        let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let mut tally = Tally::default();
        let (before, within, after) = (run.start, run.window_start, run.window_end);
        for (due, ended) in [(before, within), (within, after), (within, after)] {
            let next = NextCall {
                pick: run.pick(&mut run.random(0)),
                due: Some(due),
                at: due,
            };
            let call = Call {
                started: due,
                ended,
                bytes: 4096,
                cost: ReadCost::default(),
            };
            run.count(next, &call, &mut tally);
        }
        let sums = tally.sums;
        assert_eq!((sums.calls, sums.asked_bytes), (2, 2 * 4096), "due in the window");
        assert_eq!((sums.ended, sums.ended_bytes), (1, 4096), "ended in the window");
        assert_eq!(tally.latency_ns.len(), 2);
    }

    #[test]
    fn the_machine_is_sampled_before_the_first_call_that_counts() {
        let of = |warmup| {
            let access = Access::reads(1 << 20, Duration::from_secs(1), warmup);
            RepeatRun::new(&Point::reads("t", 4096), &access, access.size, 0, &Stop::default()).unwrap()
        };
        let cold = of(Duration::ZERO);
        assert!(cold.first_sample() < cold.window_start);
        let warmed = of(Duration::from_millis(1));
        assert_eq!(warmed.first_sample(), warmed.window_start);
    }

    #[test]
    fn cold_random_reads_end_before_read_ahead_has_warmed_the_rest() {
        let calls = |cache| {
            let point = Point {
                cache,
                ..Point::reads("t", 4096)
            };
            let access = Access::reads(10 * 4096, Duration::from_secs(9), Duration::ZERO);
            let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
            let (mut random, mut tally) = (run.random(0), Tally::default());
            let calls = std::iter::from_fn(|| run.next_call(&mut random, &mut tally));
            calls.take(20).count()
        };
        assert_eq!([CacheState::Cold, CacheState::Warm].map(calls), [3, 20]);
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
        let run = RepeatRun::new(&point, &access, access.size, 0, &Stop::default()).unwrap();
        let (mut random, mut tally) = (run.random(0), Tally::default());
        let calls = std::iter::from_fn(|| run.next_call(&mut random, &mut tally));
        let blocks: Vec<u64> = calls.map(|next| next.pick.offset / 4096).collect();
        assert_eq!(blocks, [0, 4, 8, 12, 16]);
    }

    #[test]
    fn agents_offer_the_rate_together_and_take_turns() {
        let due = |number| {
            let share = Share { number, of: 2 };
            due_times(100, Arrivals::Constant, share, 1, Duration::from_secs(1))
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
