//! Queue between the pacer and the users. In: the number of a schedule's requests that are due. Out: each as a
//! [`Ticket`], in the schedule's order, to an idle user, or else to the next user that becomes idle.
//!
//! The user that became idle last gets the next ticket: its connection is warm, and no more connections are in use than
//! requests are in flight. A taker is called on the pacer's thread. Knows no time.

use super::sync::{AtomicUsize, Mutex, MutexGuard};
use crate::schedule::Schedule;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// One request to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Index of the request in the schedule.
    pub index: usize,
    /// Due time on the step's clock.
    pub due_us: u64,
}

/// A user that takes tickets.
pub trait TicketTaker: Send + Sync {
    /// Takes a ticket, on the pacer's thread, which waits meanwhile.
    fn assign(self: Arc<Self>, ticket: Ticket);

    /// Signals that there are no more tickets.
    fn end(&self);
}

/// Result for a user without a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ticket that was waiting.
    Ticket(Ticket),
    /// No ticket yet: the taker is queued, and will be called.
    Queued,
    /// No more tickets.
    Closed,
}

/// Tickets of a step. Released tickets wait without any limit but the schedule's length; each taken ticket must be
/// [`Tickets::finish`]ed.
pub struct Tickets {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) takers: usize,
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
    idle: Vec<Arc<dyn TicketTaker>>,
}

impl Tickets {
    /// Creates a queue for `takers` takers.
    pub fn new(schedule: Arc<Schedule>, takers: usize) -> Self {
        Self {
            schedule,
            takers,
            queue: Mutex::default(),
            taken: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    /// Returns a waiting ticket, or queues the taker.
    pub fn next(&self, taker: &Arc<dyn TicketTaker>) -> Next {
        let mut queue = self.queue();
        if queue.stopped {
            Next::Closed
        } else if let Some(ticket) = self.take(&mut queue) {
            Next::Ticket(ticket)
        } else if queue.closed {
            Next::Closed
        } else {
            queue.idle.push(Arc::clone(taker));
            Next::Queued
        }
    }

    /// Counts a ticket's request as finished.
    pub fn finish(&self) {
        self.finished.fetch_add(1, Ordering::Release);
    }

    /// Ends the step early: tickets that no user has taken are dropped.
    pub fn stop(&self) {
        self.queue().stopped = true;
        self.close();
    }

    /// Counts at `now_us` on the step's clock; a few atomic loads, without a lock.
    pub fn counts(&self, now_us: u64) -> Counts {
        // In this order, so that no request counts as finished before it is sent.
        let finished = self.finished.load(Ordering::Acquire);
        Counts {
            due: self.schedule.due_us.partition_point(|&due_us| due_us <= now_us),
            sent: self.taken.load(Ordering::Relaxed),
            finished,
        }
    }

    /// Number of unfinished requests among the first `released`.
    pub(crate) fn in_flight(&self, released: usize) -> usize {
        released.saturating_sub(self.finished.load(Ordering::Relaxed))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.queue().stopped
    }

    /// Releases `due` tickets, each to an idle taker while there is one.
    pub(crate) fn release(&self, due: usize) {
        self.queue().released += due;
        loop {
            let mut queue = self.queue();
            let Some(taker) = queue.idle.pop() else { return };
            let Some(ticket) = self.take(&mut queue) else {
                queue.idle.push(taker);
                return;
            };
            // After the lock is released: takers send, and others finish meanwhile.
            drop(queue);
            taker.assign(ticket);
        }
    }

    /// Ends the release of tickets.
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

/// Requests of a step at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose due time has come.
    pub due: usize,
    /// Tickets taken by users.
    pub sent: usize,
    /// Finished requests.
    pub finished: usize,
}
