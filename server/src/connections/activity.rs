//! What a connection does, seen from outside of the protocol that is spoken on it: requests under way, replies that wait
//! for their reader, and since when there is nothing.
//!
//! In: requests that begin and end, writes that stall. Out: who is silent, and for how long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// One connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    leave: Notify,
}

#[derive(Debug)]
struct State {
    /// Requests whose replies are not handed to the connection yet.
    open: usize,
    /// Whether a write waits for the client.
    stalled: bool,
    /// When the last request ended, or the connection began.
    silent_since: Instant,
}

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                open: 0,
                stalled: false,
                silent_since: Instant::now(),
            }),
            leave: Notify::new(),
        })
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn open(self: &Arc<Self>) -> Open {
        self.lock().open += 1;
        Open(Arc::clone(self))
    }

    /// Says whether a write waits for the client.
    pub(super) fn set_stalled(&self, stalled: bool) {
        let mut state = self.lock();
        if state.stalled != stalled {
            state.stalled = stalled;
            state.silent_since = Instant::now();
        }
    }

    /// Ends once there was no request and no waiting write for this long.
    pub(super) async fn silent_for(&self, time: Duration) {
        loop {
            // Looked at again after `time` where there is something now: it cannot be silent for long enough before.
            let left = match self.silence() {
                Some(silence) if silence >= time => return,
                Some(silence) => time - silence,
                None => time,
            };
            tokio::time::sleep(left).await;
        }
    }

    /// Ends when another connection needs the place.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// How long nothing has been going on; none while something is.
    fn silence(&self) -> Option<Duration> {
        let state = self.lock();
        (state.open == 0 && !state.stalled).then(|| state.silent_since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct Open(Arc<Activity>);

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open -= 1;
        state.silent_since = Instant::now();
    }
}

/// Every open connection.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<(u64, BTreeMap<u64, Arc<Activity>>)>);

impl Register {
    /// Adds a connection until the entry is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let activity = Activity::new();
        let mut this = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, connections) = &mut *this;
        *next += 1;
        connections.insert(*next, Arc::clone(&activity));
        Entry {
            id: *next,
            activity,
            register: Arc::clone(self),
        }
    }

    /// Asks every connection to finish its requests and end.
    pub(super) fn ask_everyone_to_leave(&self) {
        let this = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        this.1.values().for_each(|one| one.leave.notify_one());
    }

    /// Asks the connection that has been silent longest to make place; nobody where all are busy.
    pub(super) fn ask_the_idlest_to_leave(&self) {
        let this = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = this.1.values().filter_map(|one| Some((one.silence()?, one)));
        if let Some((_, idlest)) = silent.max_by_key(|(silence, _)| *silence) {
            idlest.leave.notify_one();
        }
    }
}

/// A connection's place in the register.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    pub(super) activity: Arc<Activity>,
    register: Arc<Register>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut this = self.register.0.lock().unwrap_or_else(PoisonError::into_inner);
        this.1.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn the_idlest_leaves_and_the_busy_stay() {
        let register = Arc::new(Register::default());
        let [busy, idle, stalled] = [register.enter(), register.enter(), register.enter()];
        let request = busy.activity.open();
        stalled.activity.set_stalled(true);
        register.ask_the_idlest_to_leave();
        assert!(idle.activity.asked_to_leave().now_or_never().is_some());
        assert!(busy.activity.asked_to_leave().now_or_never().is_none());
        assert!(stalled.activity.asked_to_leave().now_or_never().is_none());
        assert!(busy.activity.silence().is_none());
        drop(request);
        assert!(busy.activity.silence().is_some());
        drop((busy, idle));
        assert_eq!(register.0.lock().unwrap().1.len(), 1);
    }
}
