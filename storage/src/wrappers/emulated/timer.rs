//! Thread that wakes futures at given times. In: times. Out: wake-ups, late by some ten microseconds. The async
//! runtime's timer would be late by a millisecond, which exceeds the latency of some services.

use nix::sys::prctl;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// Slack that the kernel may add to a sleep, in nanoseconds; its default is 50,000.
const SLACK_NS: u64 = 1;

/// Handle of the thread. It sleeps without waiters, and ends when this is dropped.
#[derive(Debug)]
pub(super) struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Waiters, earliest first. Waiters whose future was dropped stay until they are due.
    waiting: BinaryHeap<Reverse<Waiting>>,
    serial: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    at: Instant,
    serial: u64,
    wake: oneshot::Sender<()>,
}

impl Waiting {
    fn order(&self) -> (Instant, u64) {
        (self.at, self.serial)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // Without it, wake-ups are 50 us later: no reason to fail.
        let _ = prctl::set_timerslack(SLACK_NS);
        let mut state = self.lock();
        while !state.stopped {
            let now = Instant::now();
            while state.waiting.peek().is_some_and(|first| first.0.at <= now) {
                if let Some(Reverse(due)) = state.waiting.pop() {
                    let _ = due.wake.send(());
                }
            }
            state = match state.waiting.peek() {
                Some(first) => {
                    let rest = first.0.at.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Timer {
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("emulated-timer".to_owned())
            .spawn(move || of_thread.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Waits until a moment; not at all when it has passed.
    pub(super) async fn until(&self, at: Instant) {
        if at <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            state.serial += 1;
            let serial = state.serial;
            let first = state.waiting.peek().is_none_or(|first| at < first.0.at);
            state.waiting.push(Reverse(Waiting { at, serial, wake }));
            if first {
                self.shared.changed.notify_one();
            }
        }
        // An error would mean that the thread has ended, which it does only when this timer is dropped.
        let _ = woken.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_woken_early_or_forgotten() {
        let timer = Timer::start().unwrap();
        let start = Instant::now();
        let waits = (0..200u64).rev().map(|i| {
            let (timer, at) = (&timer, start + Duration::from_micros(i * 97 % 20_000));
            async move {
                timer.until(at).await;
                Instant::now() >= at
            }
        });
        assert!(join_all(waits).await.into_iter().all(|in_time| in_time));
        timer.until(start).await;
    }

    #[tokio::test]
    async fn a_dropped_wait_does_no_harm_and_the_thread_ends() {
        let timer = Timer::start().unwrap();
        let far = Instant::now() + Duration::from_secs(3600);
        let given_up = tokio::time::timeout(Duration::from_millis(1), timer.until(far)).await;
        assert!(given_up.is_err());
        timer.until(Instant::now() + Duration::from_millis(1)).await;
        // Joins the thread: this test would hang if it slept on.
        drop(timer);
    }
}
