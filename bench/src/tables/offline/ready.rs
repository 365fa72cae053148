//! Queue of batches assembled ahead of the sessions. In: batches of one loader. Out: the same, in order, to the
//! sessions.
//!
//! A loader that filled the queue sleeps until half of it is taken. If every free slot woke the loader, the taker
//! would pay for a wake-up each time. On a virtual machine that is tens of microseconds: up to a twentieth of a small
//! batch's run.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Batches in the queue, and waiting threads.
struct State<T> {
    ready: VecDeque<T>,
    /// True from the time the queue is full until it is half empty.
    is_full: bool,
    has_ended: bool,
    /// Number of waiting takers.
    waiting: usize,
}

/// Queue between one loader and its sessions.
pub(super) struct Ready<T> {
    state: Mutex<State<T>>,
    most: usize,
    filled: Condvar,
    drained: Condvar,
}

impl<T> Ready<T> {
    /// Creates a queue of at most `most` batches.
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                is_full: false,
                has_ended: false,
                waiting: 0,
            }),
            most: most.max(1),
            filled: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Adds a batch once there is room.
    pub(super) fn put(&self, batch: T) {
        let mut state = self.lock();
        state.is_full |= state.ready.len() >= self.most;
        while state.is_full {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ready.push_back(batch);
        if state.waiting > 0 {
            self.filled.notify_one();
        }
    }

    /// Takes the next batch once there is one; `None` after the last.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.ready.pop_front() {
                if state.is_full && state.ready.len() <= self.most / 2 {
                    state.is_full = false;
                    self.drained.notify_one();
                }
                return Some(batch);
            }
            if state.has_ended {
                return None;
            }
            state.waiting += 1;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Returns a guard that closes the queue on drop, so that takers do not wait for a loader that panicked.
    pub(super) const fn ends_with(&self) -> Ends<'_, T> {
        Ends(self)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that closes a queue.
pub(super) struct Ends<'a, T>(&'a Ready<T>);

impl<T> Drop for Ends<'_, T> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_batch_is_taken_once_and_no_more_lie_ready_than_are_allowed(most in 0_usize..9, batches in 0_usize..200, takers in 1_usize..4) {
            let ready = Ready::new(most);
            let mut taken: Vec<usize> = std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _ends = ready.ends_with();
                    for batch in 0..batches {
                        ready.put(batch);
                        assert!(ready.lock().ready.len() <= most.max(1));
                    }
                });
                let taker = || scope.spawn(|| std::iter::from_fn(|| ready.take()).collect::<Vec<_>>());
                let takers: Vec<_> = (0..takers).map(|_| taker()).collect();
                takers.into_iter().flat_map(|taker| {
                    let taken = taker.join().unwrap();
                    assert!(taken.is_sorted());
                    taken
                }).collect()
            });
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..batches).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_queue_is_filled_again_once_half_of_it_is_taken() {
        let ready = Ready::new(4);
        (0..4).for_each(|batch| ready.put(batch));
        std::thread::scope(|scope| {
            let filling = scope.spawn(|| ready.put(4));
            while !ready.lock().is_full {
                std::thread::yield_now();
            }
            assert_eq!(ready.take(), Some(0));
            assert!(ready.lock().is_full);
            assert_eq!(ready.take(), Some(1));
            filling.join().unwrap();
        });
        drop(ready.ends_with());
        assert_eq!(std::iter::from_fn(|| ready.take()).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_loader_that_panics_leaves_nobody_waiting() {
        let ready = Ready::<u8>::new(4);
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let _ends = ready.ends_with();
                panic!("a loader");
            });
            assert_eq!(ready.take(), None);
            assert!(loading.join().is_err());
        });
    }
}
