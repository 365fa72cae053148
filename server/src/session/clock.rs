//! Why a session's thread is idle: computing, waiting for storage, or without requests.
//!
//! In: the thread's own changes of state, and the requests that enter and leave the feature stage. Out: three counters
//! that sum to the thread's life. Waiting counts as waiting for storage for as long as at least one request of the model
//! is in the feature stage, and as being without requests otherwise.

use crate::metrics::SessionSeconds;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long at least one request of a model was in the feature stage.
#[derive(Debug)]
pub(crate) struct FeatureStage(Mutex<Occupancy>);

#[derive(Debug)]
struct Occupancy {
    requests: usize,
    since: Instant,
    occupied: Duration,
}

impl FeatureStage {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Occupancy {
            requests: 0,
            since: Instant::now(),
            occupied: Duration::ZERO,
        })))
    }

    /// Counts a request in until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> InFeatureStage {
        self.change(|requests| requests + 1);
        InFeatureStage(Arc::clone(self))
    }

    /// Requests in the stage now.
    pub(crate) fn requests(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).requests
    }

    /// Time occupied so far, up to `now`.
    fn occupied(&self, now: Instant) -> Duration {
        let this = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = if this.requests > 0 {
            now.saturating_duration_since(this.since)
        } else {
            Duration::ZERO
        };
        this.occupied + open
    }

    fn change(&self, requests: impl FnOnce(usize) -> usize) {
        let mut this = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let passed = now.saturating_duration_since(this.since);
        if this.requests > 0 {
            this.occupied += passed;
        }
        this.since = now;
        this.requests = requests(this.requests);
    }
}

/// A request in the feature stage.
pub(crate) struct InFeatureStage(Arc<FeatureStage>);

impl Drop for InFeatureStage {
    fn drop(&mut self) {
        self.0.change(|requests| requests.saturating_sub(1));
    }
}

/// The clock of one session's thread.
pub(crate) struct SessionClock {
    state: Mutex<State>,
    stage: Arc<FeatureStage>,
    seconds: SessionSeconds,
}

struct State {
    computing: bool,
    since: Instant,
    /// The feature stage's occupied time at `since`.
    occupied: Duration,
}

impl SessionClock {
    pub(crate) fn new(stage: Arc<FeatureStage>, seconds: SessionSeconds) -> Arc<Self> {
        let now = Instant::now();
        let state = State {
            computing: false,
            since: now,
            occupied: stage.occupied(now),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            stage,
            seconds,
        })
    }

    /// The thread begins to compute, or to wait.
    pub(crate) fn turn(&self, computing: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle_state(&mut state);
        state.computing = computing;
    }

    /// Adds the time since the last change to its counter.
    pub(crate) fn settle(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.settle_state(&mut state);
    }

    fn settle_state(&self, state: &mut State) {
        let now = Instant::now();
        let occupied = self.stage.occupied(now);
        let passed = now.saturating_duration_since(state.since);
        if state.computing {
            self.seconds.compute.inc_by(passed.as_secs_f64());
        } else {
            let storage = occupied.saturating_sub(state.occupied).min(passed);
            self.seconds.storage_wait.inc_by(storage.as_secs_f64());
            self.seconds.no_requests.inc_by((passed - storage).as_secs_f64());
        }
        state.since = now;
        state.occupied = occupied;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Counter;
    use std::thread::sleep;

    fn seconds() -> SessionSeconds {
        let counter = |name: &str| Counter::new(name, "test").unwrap();
        SessionSeconds {
            compute: counter("compute"),
            storage_wait: counter("storage_wait"),
            no_requests: counter("no_requests"),
        }
    }

    #[test]
    fn idle_time_has_a_cause_and_nothing_is_lost() {
        let began = Instant::now();
        let stage = FeatureStage::new();
        let clock = SessionClock::new(Arc::clone(&stage), seconds());
        sleep(Duration::from_millis(10));
        let guards = (stage.enter(), stage.enter());
        sleep(Duration::from_millis(20));
        drop(guards);
        sleep(Duration::from_millis(5));
        clock.turn(true);
        let during_compute = stage.enter();
        sleep(Duration::from_millis(15));
        drop(during_compute);
        clock.turn(false);
        clock.settle();
        let SessionSeconds {
            compute,
            storage_wait,
            no_requests,
        } = &clock.seconds;
        assert!(storage_wait.get() >= 0.020, "{}", storage_wait.get());
        assert!(no_requests.get() >= 0.015, "{}", no_requests.get());
        assert!(compute.get() >= 0.015, "{}", compute.get());
        let sum = compute.get() + storage_wait.get() + no_requests.get();
        assert!(sum <= began.elapsed().as_secs_f64() + 1e-6);
        assert_eq!(stage.requests(), 0);
    }
}
