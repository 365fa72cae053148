//! Idle time of a session's thread, by cause: requests queued, waiting for storage, or no requests.
//!
//! In: the thread's own changes of state, the requests that enter and leave the feature stage, and whether any is
//! queued. Out: four counters that sum to the thread's lifetime. Idle time has one cause, the first that applies.
//! *Queued*: a request of the model is queued, because the thread waits for more requests to share its run or has not
//! woken yet. *Feature stage*: a request waits for storage. *None*: there is no request.

use crate::telemetry::SessionSeconds;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pending requests of a model, and the time during which there were any.
#[derive(Debug)]
pub(crate) struct PendingRequests(Mutex<PendingState>);

#[derive(Debug)]
struct PendingState {
    /// Requests in the feature stage.
    reading: usize,
    /// True if any request is queued.
    queued: bool,
    since: Instant,
    wait_times: WaitTimes,
}

/// Times by cause; the rest is time without requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WaitTimes {
    /// Time with a request queued.
    queue: Duration,
    /// Time with no request queued, but one in the feature stage.
    storage: Duration,
}

impl PendingRequests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(PendingState {
            reading: 0,
            queued: false,
            since: Instant::now(),
            wait_times: WaitTimes::default(),
        })))
    }

    /// Counts a request into the feature stage until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> FeatureReadGuard {
        self.lock_updated(Instant::now()).reading += 1;
        FeatureReadGuard(Arc::clone(self))
    }

    /// Number of requests in the feature stage.
    pub(crate) fn reading(&self) -> usize {
        self.0.lock().reading
    }

    /// Records that the queue has become non-empty or empty.
    pub(crate) fn set_queued(&self, queued: bool, now: Instant) {
        self.lock_updated(now).queued = queued;
    }

    /// Locks the state, in which the time up to `now` is counted.
    fn lock_updated(&self, now: Instant) -> MutexGuard<'_, PendingState> {
        let mut state = self.0.lock();
        let elapsed = now.saturating_duration_since(state.since);
        if state.queued {
            state.wait_times.queue += elapsed;
        } else if state.reading > 0 {
            state.wait_times.storage += elapsed;
        }
        state.since = state.since.max(now);
        state
    }
}

/// A request in the feature stage.
pub(crate) struct FeatureReadGuard(Arc<PendingRequests>);

impl Drop for FeatureReadGuard {
    fn drop(&mut self) {
        let mut state = self.0.lock_updated(Instant::now());
        state.reading = state.reading.saturating_sub(1);
    }
}

/// Clock of a session's thread.
pub(crate) struct SessionClock {
    state: Mutex<ClockState>,
    pending: Arc<PendingRequests>,
    seconds: SessionSeconds,
}

struct ClockState {
    computing: bool,
    since: Instant,
    /// Total wait of the model's requests at `since`.
    waits: WaitTimes,
}

impl SessionClock {
    pub(crate) fn new(pending: Arc<PendingRequests>, seconds: SessionSeconds) -> Arc<Self> {
        let now = Instant::now();
        let state = ClockState {
            computing: false,
            since: now,
            waits: pending.lock_updated(now).wait_times,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            pending,
            seconds,
        })
    }

    /// Records that the thread starts to compute, or to wait.
    pub(crate) fn set_computing(&self, computing: bool) {
        self.lock_updated().computing = computing;
    }

    /// Adds the time since the last change to its counter.
    pub(crate) fn settle(&self) {
        drop(self.lock_updated());
    }

    fn lock_updated(&self) -> MutexGuard<'_, ClockState> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let waits = self.pending.lock_updated(now).wait_times;
        let elapsed = now.saturating_duration_since(state.since);
        if state.computing {
            self.seconds.compute.inc_by(elapsed.as_secs_f64());
        } else {
            // The two clocks are read one after the other: no part may exceed the whole.
            let queue = waits.queue.saturating_sub(state.waits.queue).min(elapsed);
            let storage = waits.storage.saturating_sub(state.waits.storage).min(elapsed - queue);
            self.seconds.queue_wait.inc_by(queue.as_secs_f64());
            self.seconds.storage_wait.inc_by(storage.as_secs_f64());
            let rest = elapsed - queue - storage;
            self.seconds.no_requests.inc_by(rest.as_secs_f64());
        }
        state.since = now;
        state.waits = waits;
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Counter;
    use proptest::prelude::*;
    use std::thread::sleep;

    fn seconds() -> SessionSeconds {
        let counter = |name: &str| Counter::new(name, "test").unwrap();
        SessionSeconds {
            compute: counter("compute"),
            queue_wait: counter("queue_wait"),
            storage_wait: counter("storage_wait"),
            no_requests: counter("no_requests"),
        }
    }

    #[test]
    fn idle_time_has_a_cause_and_nothing_is_lost() {
        let began = Instant::now();
        let pending = PendingRequests::new();
        let clock = SessionClock::new(Arc::clone(&pending), seconds());
        sleep(Duration::from_millis(10));
        let guards = (pending.enter(), pending.enter());
        sleep(Duration::from_millis(20));
        pending.set_queued(true, Instant::now());
        sleep(Duration::from_millis(25));
        pending.set_queued(false, Instant::now());
        drop(guards);
        sleep(Duration::from_millis(5));
        clock.set_computing(true);
        let during_compute = pending.enter();
        pending.set_queued(true, Instant::now());
        sleep(Duration::from_millis(15));
        drop(during_compute);
        pending.set_queued(false, Instant::now());
        clock.set_computing(false);
        clock.settle();
        let SessionSeconds {
            compute,
            queue_wait,
            storage_wait,
            no_requests,
        } = &clock.seconds;
        assert!(queue_wait.get() >= 0.025, "{}", queue_wait.get());
        assert!(storage_wait.get() >= 0.020, "{}", storage_wait.get());
        assert!(no_requests.get() >= 0.015, "{}", no_requests.get());
        assert!(compute.get() >= 0.015, "{}", compute.get());
        let sum = compute.get() + queue_wait.get() + storage_wait.get() + no_requests.get();
        assert!(sum <= began.elapsed().as_secs_f64() + 1e-6);
        assert_eq!(pending.reading(), 0);
    }

    /// Events of requests, with microseconds since the event before.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Read,
        Queue,
        Take,
        Idle,
    }

    proptest! {
        /// Against a clock that looks at every microsecond.
        #[test]
        fn every_moment_has_the_first_cause_that_holds(
            steps in prop::collection::vec(
                (prop_oneof![Just(Event::Read), Just(Event::Queue), Just(Event::Take), Just(Event::Idle)], 0_u64..50),
                0..30,
            ),
        ) {
            let pending = PendingRequests::new();
            let start = pending.0.lock().since;
            let (mut at, mut reading, mut queued) = (0_u64, 0_usize, 0_usize);
            let mut expected = (0, 0);
            for (step, after) in steps {
                for _ in 0..after {
                    if queued > 0 { expected.0 += 1 } else if reading > 0 { expected.1 += 1 }
                }
                at += after;
                let now = start + Duration::from_micros(at);
                match step {
                    Event::Read => {
                        reading += 1;
                        pending.lock_updated(now).reading += 1;
                    }
                    Event::Queue if reading > 0 => {
                        (reading, queued) = (reading - 1, queued + 1);
                        pending.lock_updated(now).reading -= 1;
                        if queued == 1 {
                            pending.set_queued(true, now);
                        }
                    }
                    Event::Take if queued > 0 => {
                        queued = 0;
                        pending.set_queued(false, now);
                    }
                    _ => {}
                }
            }
            let waits = pending.lock_updated(start + Duration::from_micros(at)).wait_times;
            prop_assert_eq!((waits.queue.as_micros(), waits.storage.as_micros()), expected);
        }
    }
}
