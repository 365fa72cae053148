//! The queue between the pacer and the users. In: how many requests of a schedule are due. Out: each as a [`Ticket`], in
//! the schedule's order, to a user that has nothing to do, or to the next one that has not.
//!
//! The user that became idle last gets the next ticket: its connection is warm, and no more connections are in use than
//! requests are in flight. A taker is called on the pacer's thread. Knows no time.

use crate::schedule::Schedule;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One request to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Which request of the schedule.
    pub index: usize,
    /// When it is due, on the step's clock.
    pub due_us: u64,
}

/// A user that takes tickets.
pub trait Taker: Send + Sync {
    /// Takes a ticket, on the thread of the pacer, which does nothing else meanwhile.
    fn hand(&self, ticket: Ticket);

    /// There are no more tickets.
    fn end(&self);
}

/// What a taker without work finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A ticket that was waiting.
    Ticket(Ticket),
    /// None yet: the taker is queued, and will be called.
    Later,
    /// None any more.
    Never,
}

/// The tickets of a step. Those released wait without bound but for the schedule's length; each that is taken must be
/// [`Tickets::finish`]ed.
pub struct Tickets {
    schedule: Arc<Schedule>,
    takers: usize,
    queue: Mutex<Queue>,
    taken: AtomicUsize,
    finished: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    released: usize,
    taken: usize,
    closed: bool,
    stopped: bool,
    idle: Vec<Arc<dyn Taker>>,
}

impl Tickets {
    /// A queue for `takers` takers.
    #[must_use]
    pub fn new(schedule: Arc<Schedule>, takers: usize) -> Self {
        Self {
            schedule,
            takers,
            queue: Mutex::default(),
            taken: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    /// Asks for a ticket, and joins the queue where none waits.
    pub fn next(&self, taker: &Arc<dyn Taker>) -> Next {
        let mut queue = self.queue();
        if queue.stopped {
            Next::Never
        } else if let Some(ticket) = self.take(&mut queue) {
            Next::Ticket(ticket)
        } else if queue.closed {
            Next::Never
        } else {
            queue.idle.push(Arc::clone(taker));
            Next::Later
        }
    }

    /// Says that a ticket's request is over.
    pub fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the step early: tickets that no user has taken are dropped.
    pub fn stop(&self) {
        self.queue().stopped = true;
        self.close();
    }

    /// What has happened by `now_us` on the step's clock; a few atomic loads, without a lock.
    #[must_use]
    pub fn counts(&self, now_us: u64) -> Counts {
        // In this order, so that no request is over before it is sent.
        let over = self.finished.load(Ordering::Acquire);
        Counts {
            due: self.schedule.due_us.partition_point(|&due_us| due_us <= now_us),
            sent: self.taken.load(Ordering::Relaxed),
            over,
        }
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) const fn takers(&self) -> usize {
        self.takers
    }

    /// Of so many released, those that are not finished.
    pub(crate) fn in_flight(&self, released: usize) -> usize {
        released.saturating_sub(self.finished.load(Ordering::Relaxed))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.queue().stopped
    }

    /// The next `due` tickets: each to an idle taker, while there is one.
    pub(crate) fn release(&self, due: usize) {
        self.queue().released += due;
        loop {
            let mut queue = self.queue();
            let Some(taker) = queue.idle.pop() else { return };
            let Some(ticket) = self.take(&mut queue) else {
                queue.idle.push(taker);
                return;
            };
            // Not under the lock: takers send, and others finish meanwhile.
            drop(queue);
            taker.hand(ticket);
        }
    }

    /// No further ticket is released.
    pub(crate) fn close(&self) {
        let idle = {
            let mut queue = self.queue();
            queue.closed = true;
            std::mem::take(&mut queue.idle)
        };
        for taker in idle {
            taker.end();
        }
    }

    fn take(&self, queue: &mut Queue) -> Option<Ticket> {
        if queue.stopped || queue.taken == queue.released {
            return None;
        }
        let index = queue.taken;
        let due_us = *self.schedule.due_us.get(index)?;
        queue.taken += 1;
        self.taken.store(queue.taken, Ordering::Relaxed);
        Some(Ticket { index, due_us })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tickets")
            .field("takers", &self.takers)
            .field("taken", &self.taken)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// Requests of a step by one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whose due time had come.
    pub due: usize,
    /// That users had taken.
    pub sent: usize,
    /// That were over.
    pub over: usize,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Writes down what it is handed.
    #[derive(Default)]
    pub(crate) struct RecordingTaker {
        pub(crate) handed: Mutex<Vec<usize>>,
        pub(crate) ended: Mutex<bool>,
    }

    impl Taker for RecordingTaker {
        fn hand(&self, ticket: Ticket) {
            self.handed.lock().unwrap().push(ticket.index);
        }

        fn end(&self) {
            *self.ended.lock().unwrap() = true;
        }
    }

    fn tickets(count: u64) -> Tickets {
        let window = Duration::from_millis(count);
        let schedule = Schedule::new(&Arrivals::constant(), 1_000.0, Duration::ZERO, window, 1);
        Tickets::new(Arc::new(schedule), 2)
    }

    fn index(next: Next) -> Option<usize> {
        match next {
            Next::Ticket(ticket) => Some(ticket.index),
            Next::Later | Next::Never => None,
        }
    }

    #[test]
    fn the_last_to_come_is_called_first_and_who_comes_late_finds_what_waits() {
        let tickets = tickets(4);
        let recordings: [Arc<RecordingTaker>; 2] = Default::default();
        let takers: Vec<Arc<dyn Taker>> = recordings.iter().map(|recording| Arc::clone(recording) as _).collect();
        assert!(takers.iter().all(|taker| tickets.next(taker) == Next::Later));
        tickets.release(1);
        assert_eq!(*recordings[1].handed.lock().unwrap(), [0]);
        tickets.release(3);
        assert_eq!(*recordings[0].handed.lock().unwrap(), [1]);
        tickets.close();
        assert_eq!(index(tickets.next(&takers[1])), Some(2));
        tickets.finish();
        let counts = Counts {
            due: 4,
            sent: 3,
            over: 1,
        };
        assert_eq!(tickets.counts(4_000), counts);
        assert_eq!(index(tickets.next(&takers[0])), Some(3));
        assert_eq!(tickets.next(&takers[0]), Next::Never);
        assert!(!*recordings[0].ended.lock().unwrap());
    }

    #[test]
    fn stopping_ends_those_who_wait_and_voids_what_nobody_took() {
        let tickets = tickets(4);
        let recording = Arc::new(RecordingTaker::default());
        let taker: Arc<dyn Taker> = recording.clone();
        assert_eq!(tickets.next(&taker), Next::Later);
        tickets.stop();
        assert!(*recording.ended.lock().unwrap() && tickets.is_stopped());
        tickets.release(4);
        assert_eq!(tickets.next(&taker), Next::Never);
        assert!(recording.handed.lock().unwrap().is_empty());
        assert_eq!(Arc::strong_count(&taker), 2);
    }

    proptest! {
        /// Whatever the order of releases and questions, each ticket goes out once, and in order.
        #[test]
        fn each_ticket_goes_out_once(steps in prop::collection::vec(prop::option::of(1_usize..4), 1..60)) {
            let tickets = tickets(40);
            let recording = Arc::new(RecordingTaker::default());
            let taker: Arc<dyn Taker> = recording.clone();
            let mut released = 0;
            for step in steps {
                match step {
                    Some(due) => {
                        let due = due.min(40 - released);
                        released += due;
                        tickets.release(due);
                    }
                    None => if let Next::Ticket(ticket) = tickets.next(&taker) {
                        recording.hand(ticket);
                    },
                }
            }
            tickets.release(40 - released);
            while let Next::Ticket(ticket) = tickets.next(&taker) {
                recording.hand(ticket);
            }
            prop_assert_eq!(&*recording.handed.lock().unwrap(), &(0..40).collect::<Vec<_>>());
        }
    }
}
