//! The queue under a scheduler that tries orders of threads at random and with few changes of thread. A session that nobody
//! wakes is a deadlock there.

// The shipped source, with other primitives.
#[allow(clippy::duplicate_mod, dead_code, unreachable_pub)]
#[path = "../queue.rs"]
mod queue;

use super::{alive, gauges, session_clock};
use crate::batch::clock::PendingRequests;
use crate::batch::rule::{Groups, Rule, SessionSlot};
use crate::batch::{clock, job, rule, runs};
use crate::request::Reason;
use queue::BatchQueue;
use shuttle::sync::mpsc::{Sender, channel};
use shuttle::thread::{self, JoinHandle};
use std::sync::Arc;
use std::time::Duration;

mod sync {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

const ORDERS: usize = 2_000;
const JOBS: usize = 4;

fn explore(test: fn()) {
    shuttle::check_random(test, ORDERS);
    shuttle::check_pct(test, ORDERS, 3);
}

fn queue(max_rows: usize, groups: &[usize]) -> Arc<BatchQueue> {
    let rule = Rule {
        max_rows,
        preferred_rows: Vec::new(),
        max_delay: Duration::ZERO,
    };
    BatchQueue::new(rule, Groups(groups.into()), 100, PendingRequests::new(), gauges())
}

/// Session that takes requests until the queue is closed and empty, and sends the rows of each.
fn session(queue: &Arc<BatchQueue>, group: usize, sender: &Sender<usize>) -> JoinHandle<()> {
    let (queue, sender) = (Arc::clone(queue), sender.clone());
    thread::spawn(move || {
        let (mut slot, clock) = (
            SessionSlot { group, running: false },
            session_clock(&PendingRequests::new()),
        );
        while let Some(batch) = queue.take(&mut slot, &clock, Duration::ZERO) {
            // A run, while others push and take.
            thread::yield_now();
            batch.iter().for_each(|job| sender.send(job.rows).unwrap());
        }
    })
}

/// Pushes requests whose rows say who they are; their clients wait for as long as the handle is held.
fn client(queue: &Arc<BatchQueue>, requests: std::ops::RangeInclusive<usize>) -> JoinHandle<Vec<super::Replies>> {
    let queue = Arc::clone(queue);
    thread::spawn(move || {
        let mut replies = Vec::new();
        for rows in requests {
            let (job, reply) = alive(rows, 1);
            replies.push(reply);
            drop(queue.push([job]).unwrap());
        }
        replies
    })
}

/// Nothing but the pushes themselves wakes the sessions: the queue is closed after every request was taken.
fn each_request_is_taken_once(queue: &Arc<BatchQueue>, groups_of_sessions: &[usize]) {
    let (sender, batches) = channel();
    let sessions: Vec<_> = groups_of_sessions
        .iter()
        .map(|&group| session(queue, group, &sender))
        .collect();
    let clients = [client(queue, 1..=2), client(queue, 3..=JOBS)];
    let mut rows: Vec<usize> = (0..JOBS).map(|_| batches.recv().unwrap()).collect();
    rows.sort_unstable();
    assert_eq!(rows, (1..=JOBS).collect::<Vec<_>>());
    queue.close();
    for session in sessions {
        session.join().unwrap();
    }
    assert!(batches.try_recv().is_err());
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn no_request_is_left_lying_in_one_group() {
    explore(|| each_request_is_taken_once(&queue(1, &[2]), &[0, 0]));
}

#[test]
fn no_request_is_left_lying_where_several_go_together() {
    explore(|| each_request_is_taken_once(&queue(16, &[2]), &[0, 0]));
}

#[test]
fn no_request_is_left_lying_between_groups() {
    explore(|| each_request_is_taken_once(&queue(1, &[1, 2]), &[0, 1, 1]));
}

#[test]
fn a_queue_that_closes_at_any_moment_is_emptied_and_refuses_the_rest() {
    explore(|| {
        let queue = queue(1, &[1, 2]);
        let (sender, batches) = channel();
        let sessions: Vec<_> = [0, 1, 1].map(|group| session(&queue, group, &sender)).into();
        drop(sender);
        let closer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.close())
        };
        let mut accepted = Vec::new();
        let mut replies = Vec::new();
        for rows in 1..=JOBS {
            let (job, reply) = alive(rows, 1);
            replies.push(reply);
            match queue.push([job]) {
                Ok(wake_up) => {
                    drop(wake_up);
                    accepted.push(rows);
                }
                Err(refusal) => assert_eq!(refusal.reason, Reason::Draining),
            }
        }
        closer.join().unwrap();
        for session in sessions {
            session.join().unwrap();
        }
        let mut rows: Vec<usize> = std::iter::from_fn(|| batches.recv().ok()).collect();
        rows.sort_unstable();
        assert_eq!(rows, accepted);
    });
}
