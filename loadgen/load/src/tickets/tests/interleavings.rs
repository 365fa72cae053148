//! The queue under a scheduler that tries thread orders at random and with few changes of thread (Burckhardt et al., "A
//! Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS 2010). A lost wake-up is a deadlock
//! there.

// The shipped source, with other primitives.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "../queue.rs"]
mod queue;

use crate::arrivals::Arrivals;
use crate::schedule::Schedule;
use queue::{Next, Ticket, TicketTaker, Tickets};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;
use std::time::Duration;

mod sync {
    pub(super) use shuttle::sync::atomic::AtomicUsize;
    pub(super) use shuttle::sync::{Mutex, MutexGuard};
}

const ORDERS: usize = 2_000;
const TICKETS: usize = 4;

fn explore(test: fn()) {
    shuttle::check_random(test, ORDERS);
    shuttle::check_pct(test, ORDERS, 3);
}

fn tickets() -> Arc<Tickets> {
    let window = Duration::from_millis(TICKETS as u64);
    let schedule = Schedule::new(&Arrivals::constant(), 1_000.0, Duration::ZERO, window, 1);
    Arc::new(Tickets::new(Arc::new(schedule), 2))
}

/// Forwards the tickets that it receives; `None` is the end.
struct Forwarder(Sender<Option<Ticket>>);

impl TicketTaker for Forwarder {
    fn assign(self: Arc<Self>, ticket: Ticket) {
        self.0.send(Some(ticket)).unwrap();
    }

    fn end(&self) {
        self.0.send(None).unwrap();
    }
}

/// Runs a user until the last ticket, and returns the indices of its requests.
fn user(tickets: &Arc<Tickets>) -> JoinHandle<Vec<usize>> {
    let tickets = Arc::clone(tickets);
    thread::spawn(move || {
        let (sender, assigned): (_, Receiver<Option<Ticket>>) = channel();
        let taker: Arc<dyn TicketTaker> = Arc::new(Forwarder(sender));
        let mut had = Vec::new();
        loop {
            let ticket = match tickets.next(&taker) {
                Next::Ticket(ticket) => Some(ticket),
                Next::Queued => assigned.recv().unwrap(),
                Next::Closed => None,
            };
            let Some(ticket) = ticket else { return had };
            had.push(ticket.index);
            tickets.finish();
        }
    })
}

fn all_had(users: Vec<JoinHandle<Vec<usize>>>) -> Vec<usize> {
    let mut all: Vec<usize> = users.into_iter().flat_map(|user| user.join().unwrap()).collect();
    all.sort_unstable();
    all
}

#[test]
fn each_ticket_goes_to_one_user_and_every_user_ends() {
    explore(|| {
        let tickets = tickets();
        let users = vec![user(&tickets), user(&tickets)];
        for due in [1, 1, 2] {
            tickets.release(due);
        }
        tickets.close();
        assert_eq!(all_had(users), (0..TICKETS).collect::<Vec<_>>());
        assert_eq!(tickets.in_flight(TICKETS), 0);
        assert_eq!(tickets.counts(u64::MAX).finished, TICKETS);
    });
}

#[test]
fn a_stop_at_any_moment_ends_every_user_and_voids_only_what_nobody_took() {
    explore(|| {
        let tickets = tickets();
        let users = vec![user(&tickets), user(&tickets)];
        let stopper = {
            let tickets = Arc::clone(&tickets);
            thread::spawn(move || tickets.stop())
        };
        for _ in 0..TICKETS {
            tickets.release(1);
        }
        stopper.join().unwrap();
        let had = all_had(users);
        assert_eq!(had, (0..had.len()).collect::<Vec<_>>());
        let counts = tickets.counts(u64::MAX);
        assert_eq!((counts.sent, counts.finished), (had.len(), had.len()));
    });
}

#[test]
fn nothing_is_over_before_it_was_sent() {
    explore(|| {
        let tickets = tickets();
        let users = vec![user(&tickets)];
        let watcher = {
            let tickets = Arc::clone(&tickets);
            thread::spawn(move || {
                for _ in 0..3 {
                    let counts = tickets.counts(u64::MAX);
                    assert!(counts.finished <= counts.sent, "{counts:?}");
                }
            })
        };
        tickets.release(TICKETS);
        tickets.close();
        watcher.join().unwrap();
        assert_eq!(all_had(users).len(), TICKETS);
    });
}
