//! Thread that wakes futures at given times. In: times. Out: wake-ups, late by some ten microseconds. The async
//! runtime's timer would be late by a millisecond, which exceeds the latency of some services.
//!
//! [`Replay`] ends the reads of a recorded tier at their due time, and counts missed due times. Draws nothing.

use nix::sys::prctl;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Slack that the kernel may add to a sleep, in nanoseconds; its default is 50,000.
const SLACK_NS: u64 = 1;

/// Handle of the thread. The thread sleeps without waiters, and ends when this is dropped.
#[derive(Debug)]
pub(super) struct Timer {
    shared: Arc<TimerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct TimerState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Waiters by due time and number. Waiters whose future was dropped stay until they are due.
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    serial: u64,
    stopped: bool,
}

impl TimerState {
    fn run(&self) {
        // On failure, wake-ups are 50 us later, which is tolerable.
        let _ = prctl::set_timerslack(SLACK_NS);
        let mut state = self.state.lock();
        while !state.stopped {
            let now = Instant::now();
            while let Some(first) = state.waiting.first_entry().filter(|first| first.key().0 <= now) {
                let _ = first.remove().send(());
            }
            match state.waiting.first_key_value() {
                Some((&(at, _), _)) => {
                    self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl Timer {
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(TimerState::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("emulated-timer".to_owned())
            .spawn(move || of_thread.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Waits until `at`; returns at once if it has passed.
    pub(super) async fn wait_until(&self, at: Instant) {
        if at <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            state.serial += 1;
            let serial = state.serial;
            let first = state.waiting.first_key_value().is_none_or(|(first, _)| at < first.0);
            state.waiting.insert((at, serial), wake);
            if first {
                self.shared.changed.notify_one();
            }
        }
        // An error would mean that the thread has ended, which happens only when this timer is dropped.
        let _ = woken.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Maximum lead: the timer is set at most this much before the due time, to allow for waking.
const MAX_LEAD_NS: u64 = 100_000;
/// Step by which the lead grows after a late wake-up; it shrinks by `LEAD_DECREASE_NS` after an early wake-up. The lead
/// settles where one wake-up in fifty is late. After an early wake-up the call polls the clock until its due time. So a
/// longer lead would take more CPU, and a shorter lead shows in the p95 of short reads.
const LEAD_INCREASE_NS: u64 = 490;
const LEAD_DECREASE_NS: u64 = 10;
/// Divisor of a wait that gives its tolerated lateness. It is below the tolerance of a replay, so that long waits need
/// no polling.
const LATE_DIVISOR: u32 = 64;
/// Maximum length of a short wait: a few of the longest leads.
const SHORT_NS: u64 = 4 * MAX_LEAD_NS;
/// Divisor of a wait that gives its tolerated earliness. It is below the tolerance of a replay, so that long waits need
/// no polling.
const EARLY_DIVISOR: u32 = 128;
/// Share of missed due times from which the tier reports that the tier below is too slow.
const REPORTED_SHARE: f64 = 0.01;

#[derive(Debug, Default)]
pub(super) struct Replay {
    in_flight: AtomicU32,
    lead_ns: AtomicU64,
    waits: AtomicU64,
    /// Number of waits whose due time had already passed.
    missed: AtomicU64,
    /// Number of calls that poll the clock.
    polling: AtomicU32,
}

/// Call in progress. Its reads are in flight until it is dropped.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    pub(super) call: u64,
    pub(super) at: Instant,
    /// Reads in flight when the call began, including its own.
    pub(super) in_flight: u32,
    reads: u32,
    replay: &'a Replay,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.replay.in_flight.fetch_sub(self.reads, Ordering::Relaxed);
    }
}

/// Call that polls the clock. It is counted until this is dropped.
struct Polling<'a>(&'a AtomicU32);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Replay {
    /// Starts a call with `reads` concurrent reads.
    pub(super) fn arrive(&self, call: u64, reads: usize) -> Arrival<'_> {
        let reads = u32::try_from(reads).unwrap_or(u32::MAX);
        let before = self.in_flight.fetch_add(reads, Ordering::Relaxed);
        Arrival {
            call,
            at: Instant::now(),
            in_flight: before.wrapping_add(reads),
            reads,
            replay: self,
        }
    }

    /// Waits until `at`, or close to it: sleeps until shortly before, then polls the clock while other tasks run.
    pub(super) async fn wait_until(&self, timer: &Timer, at: Instant) {
        let now = Instant::now();
        self.waits.fetch_add(1, Ordering::Relaxed);
        if at <= now {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let lead_ns = self.lead_ns.load(Ordering::Relaxed);
        let wake_at = at.checked_sub(Duration::from_nanos(lead_ns));
        // If other calls poll the clock already, one more takes no more CPU, and a timer thread would have to wait for
        // their CPU.
        let is_short = at - now < Duration::from_nanos(SHORT_NS);
        let is_watched = is_short && self.polling.load(Ordering::Relaxed) > 0;
        if let Some(wake_at) = wake_at.filter(|wake_at| *wake_at > now && !is_watched) {
            timer.wait_until(wake_at).await;
            let is_late = Instant::now() > at + (at - now) / LATE_DIVISOR;
            self.lead_ns.store(next_lead_ns(lead_ns, is_late), Ordering::Relaxed);
        }
        let poll_until = at - (at - now) / EARLY_DIVISOR;
        self.polling.fetch_add(1, Ordering::Relaxed);
        let _polling = Polling(&self.polling);
        while Instant::now() < poll_until {
            tokio::task::yield_now().await;
        }
    }

    /// Reports if the tier below was slower than the recorded tier.
    pub(super) fn shortfall(&self) -> Option<String> {
        let waits = self.waits.load(Ordering::Relaxed).max(1);
        let share = self.missed.load(Ordering::Relaxed) as f64 / waits as f64;
        (share >= REPORTED_SHARE).then(|| {
            let percent = 100.0 * share;
            format!("replay: in {percent:.0} % of the calls the tier below took longer than recorded")
        })
    }
}

/// Lead after a wake-up.
const fn next_lead_ns(lead_ns: u64, is_late: bool) -> u64 {
    if !is_late {
        return lead_ns.saturating_sub(LEAD_DECREASE_NS);
    }
    let longer = lead_ns + LEAD_INCREASE_NS;
    if longer < MAX_LEAD_NS { longer } else { MAX_LEAD_NS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_woken_early_or_forgotten() {
        let timer = Timer::start().unwrap();
        let start = Instant::now();
        let waits = (0..200u64).rev().map(|i| {
            let (timer, at) = (&timer, start + Duration::from_micros(i * 97 % 20_000));
            async move {
                timer.wait_until(at).await;
                Instant::now() >= at
            }
        });
        assert!(join_all(waits).await.into_iter().all(|in_time| in_time));
        timer.wait_until(start).await;
    }

    #[tokio::test]
    async fn a_dropped_wait_does_no_harm_and_the_thread_ends() {
        let timer = Timer::start().unwrap();
        let far = Instant::now() + Duration::from_secs(3600);
        let timed_out = tokio::time::timeout(Duration::from_millis(1), timer.wait_until(far)).await;
        assert!(timed_out.is_err());
        timer.wait_until(Instant::now() + Duration::from_millis(1)).await;
        // Joins the thread: this test would hang if it slept on.
        drop(timer);
    }

    #[test]
    fn the_lead_ends_where_one_wake_up_of_fifty_is_late() {
        // Waking takes 1, 2, .. 99 us, each as often as the others.
        let mut lead = 0;
        for turn in 0..50_000_u64 {
            let waking = 1000 * (turn * 37 % 99 + 1);
            lead = next_lead_ns(lead, waking > lead);
        }
        assert!((95_000..=99_000).contains(&lead), "{lead}");
        // However slow the machine is, it is not asked for too early.
        let all_late = (0..5000).fold(0, |lead, _| next_lead_ns(lead, true));
        assert_eq!(all_late, MAX_LEAD_NS);
        assert_eq!((0..10_000).fold(all_late, |lead, _| next_lead_ns(lead, false)), 0);
    }

    #[test]
    fn reads_are_in_flight_until_their_call_is_dropped() {
        let replay = Replay::default();
        let first = replay.arrive(0, 1);
        let second = replay.arrive(1, 3);
        assert_eq!((first.in_flight, second.in_flight), (1, 4));
        drop(first);
        assert_eq!(replay.arrive(2, 1).in_flight, 4);
        drop(second);
        assert_eq!(replay.arrive(3, 1).in_flight, 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wait_ends_far_too_early_and_a_slow_tier_is_told() {
        let (replay, timer) = (Replay::default(), Timer::start().unwrap());
        // The lead is longer than any wait here, so only the clock is polled.
        replay.lead_ns.store(MAX_LEAD_NS, Ordering::Relaxed);
        for us in [1, 20, 60, 2000] {
            let began = Instant::now();
            replay.wait_until(&timer, began + Duration::from_micros(us)).await;
            // The time left at the wait's own start is shorter than the requested time.
            assert!(began.elapsed() >= Duration::from_micros(us) * (EARLY_DIVISOR - 1) / EARLY_DIVISOR);
        }
        assert_eq!(replay.waits.load(Ordering::Relaxed), 4);
        let passed = Instant::now();
        replay.wait_until(&timer, passed).await;
        let note = replay.shortfall().unwrap();
        assert!(note.contains("took longer than recorded"), "{note}");
        assert_eq!(Replay::default().shortfall(), None);
    }
}
