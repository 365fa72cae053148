//! Thread that wakes futures at given times. In: times. Out: wake-ups, late by some ten microseconds. The async
//! runtime's timer would be late by a millisecond, which exceeds the latency of some services.

use nix::sys::prctl;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
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
    pub(super) async fn until(&self, at: Instant) {
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
