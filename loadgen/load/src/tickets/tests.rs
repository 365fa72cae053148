mod interleavings;

use super::*;
use crate::arrivals::Arrivals;
use crate::schedule::Schedule;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records the tickets that it receives.
#[derive(Default)]
pub(crate) struct RecordingTaker {
    pub(crate) assigned: Mutex<Vec<usize>>,
    pub(crate) ended: Mutex<bool>,
}

impl TicketTaker for RecordingTaker {
    fn assign(self: Arc<Self>, ticket: Ticket) {
        self.assigned.lock().unwrap().push(ticket.index);
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
        Next::Queued | Next::Closed => None,
    }
}

#[test]
fn the_last_to_come_is_called_first_and_who_comes_late_finds_what_waits() {
    let tickets = tickets(4);
    let recordings: [Arc<RecordingTaker>; 2] = Default::default();
    let takers: Vec<Arc<dyn TicketTaker>> = recordings.iter().map(|recording| Arc::clone(recording) as _).collect();
    assert!(takers.iter().all(|taker| tickets.next(taker) == Next::Queued));
    tickets.release(1);
    assert_eq!(*recordings[1].assigned.lock().unwrap(), [0]);
    tickets.release(3);
    assert_eq!(*recordings[0].assigned.lock().unwrap(), [1]);
    tickets.close();
    assert_eq!(index(tickets.next(&takers[1])), Some(2));
    tickets.finish();
    let counts = Counts {
        due: 4,
        sent: 3,
        finished: 1,
    };
    assert_eq!(tickets.counts(4_000), counts);
    assert_eq!(index(tickets.next(&takers[0])), Some(3));
    assert_eq!(tickets.next(&takers[0]), Next::Closed);
    assert!(!*recordings[0].ended.lock().unwrap());
}

#[test]
fn stopping_ends_those_who_wait_and_voids_what_nobody_took() {
    let tickets = tickets(4);
    let recording = Arc::new(RecordingTaker::default());
    let taker: Arc<dyn TicketTaker> = recording.clone();
    assert_eq!(tickets.next(&taker), Next::Queued);
    tickets.stop();
    assert!(*recording.ended.lock().unwrap() && tickets.is_stopped());
    tickets.release(4);
    assert_eq!(tickets.next(&taker), Next::Closed);
    assert!(recording.assigned.lock().unwrap().is_empty());
    assert_eq!(Arc::strong_count(&taker), 2);
}

proptest! {
    /// For any order of releases and queries, each ticket is given out once, and in order.
    #[test]
    fn each_ticket_goes_out_once(steps in prop::collection::vec(prop::option::of(1_usize..4), 1..60)) {
        let tickets = tickets(40);
        let recording = Arc::new(RecordingTaker::default());
        let taker: Arc<dyn TicketTaker> = recording.clone();
        let mut released = 0;
        for step in steps {
            match step {
                Some(due) => {
                    let due = due.min(40 - released);
                    released += due;
                    tickets.release(due);
                }
                None => if let Next::Ticket(ticket) = tickets.next(&taker) {
                    Arc::clone(&recording).assign(ticket);
                },
            }
        }
        tickets.release(40 - released);
        while let Next::Ticket(ticket) = tickets.next(&taker) {
            Arc::clone(&recording).assign(ticket);
        }
        prop_assert_eq!(&*recording.assigned.lock().unwrap(), &(0..40).collect::<Vec<_>>());
    }
}
