use super::BatchQueue;
use super::clock::{PendingRequests, SessionClock};
use super::job::{Job, JobOutput};
use super::rule::{Groups, Rule, SessionSlot};
use super::runs::ActiveRun;
use crate::request::{Part, Reason, Refusal};
use crate::telemetry::SessionSeconds;
use crate::telemetry::trace::RequestScope;
use prometheus::{Counter, IntGauge};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

mod interleavings;

pub(super) type Replies = oneshot::Receiver<Result<JobOutput, Refusal>>;

fn job(rows: usize, width: i64, deadline: Duration) -> (Job, Replies) {
    let (reply, replies) = oneshot::channel();
    let now = Instant::now();
    let part = Part {
        shape: vec![rows as i64, width],
        data: Vec::new().into(),
    };
    let scope = RequestScope::current();
    (
        Job {
            parts: vec![part],
            rows,
            enqueued: now,
            rank: now,
            deadline: now + deadline,
            start_by: now + deadline,
            scope,
            run_began: Arc::default(),
            reply: Some(reply),
        },
        replies,
    )
}

pub(super) fn alive(rows: usize, width: i64) -> (Job, Replies) {
    job(rows, width, Duration::from_secs(60))
}

pub(super) fn gauges() -> [IntGauge; 2] {
    [(); 2].map(|()| IntGauge::new("b", "b").unwrap())
}

pub(super) fn session_clock(pending: &Arc<PendingRequests>) -> Arc<SessionClock> {
    let counter = || Counter::new("a", "a").unwrap();
    let seconds = SessionSeconds {
        compute: counter(),
        queue_wait: counter(),
        storage_wait: counter(),
        no_requests: counter(),
    };
    SessionClock::new(Arc::clone(pending), seconds)
}

fn queue(max_rows: usize, capacity: usize) -> (Arc<BatchQueue>, Arc<SessionClock>) {
    let pending = PendingRequests::new();
    let clock = session_clock(&pending);
    let rule = Rule {
        max_rows,
        preferred_rows: Vec::new(),
        max_delay: Duration::ZERO,
    };
    (
        BatchQueue::new(rule, Groups(vec![1]), capacity, pending, gauges()),
        clock,
    )
}

fn rows_of(batch: &[Job]) -> Vec<usize> {
    batch.iter().map(|job| job.rows).collect()
}

#[test]
fn batches_hold_what_fits_and_goes_together_in_order() {
    let (queue, clock) = queue(8, 100);
    let mut replies = Vec::new();
    for (rows, width) in [(3, 4), (2, 5), (4, 4), (6, 4), (1, 4)] {
        let (job, reply) = alive(rows, width);
        queue.push([job]).unwrap();
        replies.push(reply);
    }
    let take = || rows_of(&queue.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap());
    assert_eq!(take(), [3, 4, 1]);
    assert_eq!(take(), [2]);
    assert_eq!(take(), [6]);
    assert_eq!(queue.depth.get(), 0);
}

#[test]
fn a_full_queue_refuses_and_a_closed_one_empties() {
    let (queue, clock) = queue(1, 2);
    let (first, _first_reply) = alive(1, 1);
    let (second, _second_reply) = alive(1, 1);
    queue.push([first]).unwrap();
    queue.push([second]).unwrap();
    assert_eq!(queue.push([alive(1, 1).0]).err().unwrap().reason, Reason::Full);
    queue.close();
    assert_eq!(queue.push([alive(1, 1).0]).err().unwrap().reason, Reason::Draining);
    assert_eq!(
        queue
            .take(&mut SessionSlot::default(), &clock, Duration::ZERO)
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        queue
            .take(&mut SessionSlot::default(), &clock, Duration::ZERO)
            .unwrap()
            .len(),
        1
    );
    assert!(
        queue
            .take(&mut SessionSlot::default(), &clock, Duration::ZERO)
            .is_none()
    );
}

#[test]
fn requests_that_come_after_an_unload_are_told_of_it() {
    let (queue, _clock) = queue(1, 2);
    let unloaded = Refusal::new(Reason::NotReady, "model `m` was unloaded");
    queue.stop_runs(&unloaded);
    // Its last holder closes it once more.
    queue.close();
    assert_eq!(queue.push([alive(1, 1).0]).err(), Some(unloaded));
}

#[test]
fn the_dead_cost_nothing() {
    let (queue, clock) = queue(8, 100);
    let (abandoned, dropped_reply) = alive(2, 4);
    drop(dropped_reply);
    let (late, mut late_reply) = job(2, 4, Duration::ZERO);
    let (living, _living_reply) = alive(5, 4);
    for job in [abandoned, late, living] {
        queue.push([job]).unwrap();
    }
    assert_eq!(
        rows_of(&queue.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap()),
        [5]
    );
    assert_eq!(late_reply.try_recv().unwrap().unwrap_err().reason, Reason::Deadline);
    queue.close();
    assert!(
        queue
            .take(&mut SessionSlot::default(), &clock, Duration::ZERO)
            .is_none()
    );
    assert_eq!(queue.lock().rows, 0);
}

#[test]
fn a_request_waits_until_its_first_run_and_then_until_its_deadline() {
    let (queue, clock) = queue(1, 100);
    let take = || queue.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap();
    let minute = Duration::from_secs(60);
    let piece = |rows: usize, deadline: Duration, run_began: &Arc<OnceLock<Instant>>| {
        let (mut job, reply) = job(rows, 1, deadline);
        job.start_by = job.enqueued;
        job.run_began = Arc::clone(run_began);
        (job, reply)
    };
    let (began, waits) = (Arc::new(OnceLock::from(Instant::now())), Arc::default());
    let (late, mut late_reply) = piece(1, Duration::ZERO, &began);
    let (waiting, mut waiting_reply) = piece(2, minute, &waits);
    let (running, _running_reply) = piece(3, minute, &began);
    queue.push([late, waiting, running]).unwrap();
    assert_eq!(rows_of(&take()), [3]);
    for reply in [&mut late_reply, &mut waiting_reply] {
        assert_eq!(reply.try_recv().unwrap().unwrap_err().reason, Reason::Deadline);
    }
}

#[test]
fn the_pieces_of_a_request_are_queued_together_or_not_at_all() {
    let (queue, _) = queue(8, 4);
    let pieces = |count: usize| {
        let pieces: Vec<_> = (0..count).map(|_| alive(8, 1)).collect();
        let (jobs, replies): (Vec<Job>, Vec<Replies>) = pieces.into_iter().unzip();
        queue.push(jobs).map(|_| replies)
    };
    queue.record_run(Duration::from_secs(50));
    // The second half would wait for longer than its deadline, behind the first.
    let first = pieces(4).unwrap();
    assert_eq!(queue.lock().rows, 32);
    drop(first);
    queue.interrupt_given_up();
    let _first = pieces(1).unwrap();
    assert_eq!(pieces(4).unwrap_err().reason, Reason::Full);
    assert_eq!(queue.lock().rows, 8);
    queue.record_run(Duration::from_secs(500));
    assert_eq!(
        pieces(1).unwrap_err().reason,
        Reason::Full,
        "a request behind others may be late"
    );
}

#[test]
fn the_estimated_wait_is_of_runs_and_of_requests_that_go_first() {
    let (queue, _) = queue(64, 1000);
    let within = |limit: u64, level: u32| {
        let (mut job, reply) = job(1, 1, Duration::from_millis(limit));
        job.rank += Duration::from_secs(3600) * level;
        queue.push([job]).map(|_| reply)
    };
    queue.record_run(Duration::from_millis(5));
    // One run of 64 rows answers them all.
    let mut replies: Vec<_> = (0..64).map(|_| within(100, 0).unwrap()).collect();
    replies.extend((0..640).map(|_| within(100_000, 1).unwrap()));
    assert!(within(50, 1).is_err());
    within(50, 0).unwrap();
    queue.check_wait(Duration::from_millis(50)).unwrap();
    assert!(queue.check_wait(Duration::from_millis(1)).is_err());
}

#[test]
fn the_queues_of_two_versions_share_a_gauge() {
    let gauges = gauges();
    let queue = || {
        let rule = Rule {
            max_rows: 1,
            preferred_rows: Vec::new(),
            max_delay: Duration::ZERO,
        };
        BatchQueue::new(rule, Groups(vec![1]), 10, PendingRequests::new(), gauges.clone())
    };
    let (old, new) = (queue(), queue());
    let mut replies = Vec::new();
    for queue in [&old, &old, &new] {
        let (job, reply) = alive(1, 1);
        queue.push([job]).unwrap();
        replies.push(reply);
    }
    assert_eq!(gauges[0].get(), 3);
    let clock = session_clock(&PendingRequests::new());
    old.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap();
    assert_eq!(gauges[0].get(), 2);
    drop(old);
    assert_eq!(gauges[0].get(), 1);
}

#[test]
fn an_idle_session_wakes_for_the_first_request() {
    let (queue, clock) = queue(8, 100);
    let taker = {
        let queue = Arc::clone(&queue);
        std::thread::spawn(move || {
            queue
                .take(&mut SessionSlot::default(), &clock, Duration::from_secs(60))
                .map(|batch| batch.len())
        })
    };
    let (job, _reply) = alive(1, 1);
    queue.push([job]).unwrap();
    assert_eq!(taker.join().unwrap(), Some(1));
}

#[test]
fn higher_levels_go_first_and_lower_ones_wait_no_longer_than_their_step() {
    let (queue, clock) = queue(1, 100);
    let began = Instant::now();
    let step = Duration::from_millis(100);
    let mut replies = Vec::new();
    // Each came 40 ms after the one before; rows stand for who it is.
    for (rows, level) in [(1, 2), (2, 0), (3, 1), (4, 0), (5, 0), (6, 0), (7, 0)] {
        let (mut job, reply) = alive(rows, 1);
        job.enqueued = began + Duration::from_millis(40) * rows as u32;
        job.rank = job.enqueued + step * level;
        queue.push([job]).unwrap();
        replies.push(reply);
    }
    let order: Vec<usize> = (0..7)
        .map(|_| queue.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap()[0].rows)
        .collect();
    assert_eq!(order, [2, 4, 5, 3, 1, 6, 7]);
}

/// Session on its own thread. It reports each batch that it takes, and runs it until told to resume.
struct Worker {
    batches: std::sync::mpsc::Receiver<usize>,
    resume: std::sync::mpsc::Sender<()>,
}

fn worker(queue: &Arc<BatchQueue>, group: usize, clock: &Arc<SessionClock>) -> Worker {
    let (queue, clock) = (Arc::clone(queue), Arc::clone(clock));
    let (sender, batches) = std::sync::mpsc::channel();
    let (resume, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut slot = SessionSlot { group, running: false };
        queue.add_session(&slot, Arc::new(ActiveRun::new(0, |_| {})));
        while let Some(batch) = queue.take(&mut slot, &clock, Duration::ZERO) {
            let _ = sender.send(batch.len());
            let _ = wait.recv();
        }
    });
    Worker { batches, resume }
}

impl Worker {
    fn next_batch(&self) -> usize {
        self.batches.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn is_idle(&self) -> bool {
        self.batches.try_recv().is_err()
    }
}

/// The workers of two groups: one session, and two.
fn groups_of_two() -> (Arc<BatchQueue>, [Worker; 3]) {
    let (_, clock) = queue(1, 1);
    let rule = Rule {
        max_rows: 1,
        preferred_rows: Vec::new(),
        max_delay: Duration::ZERO,
    };
    let queue = BatchQueue::new(rule, Groups(vec![1, 2]), 100, PendingRequests::new(), gauges());
    let workers = [0, 1, 1].map(|group| worker(&queue, group, &clock));
    (queue, workers)
}

#[test]
fn a_request_that_is_given_up_leaves_the_queue_while_every_session_is_busy() {
    let (queue, clock) = queue(1, 3);
    let pushed = |rows| {
        let (job, reply) = alive(rows, 1);
        queue.push([job]).map(|_| reply)
    };
    let first = pushed(1).unwrap();
    let second = pushed(2).unwrap();
    let third = pushed(3).unwrap();
    assert_eq!(pushed(4).unwrap_err().reason, Reason::Full);
    drop((first, third));
    queue.interrupt_given_up();
    assert_eq!((queue.depth.get(), queue.lock().rows), (1, 2));
    let fourth = pushed(4).unwrap();
    drop(second);
    queue.interrupt_given_up();
    let batch = queue.take(&mut SessionSlot::default(), &clock, Duration::ZERO).unwrap();
    assert_eq!(rows_of(&batch), [4]);
    drop(fourth);
    queue.interrupt_given_up();
    assert_eq!((queue.depth.get(), queue.lock().rows), (0, 0));
}

#[test]
fn a_request_that_is_alone_goes_to_the_widest_session_and_others_to_the_rest() {
    let (queue, [wide, one, other]) = groups_of_two();
    let mut replies = Vec::new();
    let mut push = || {
        let (job, reply) = alive(1, 1);
        drop(queue.push([job]).unwrap());
        replies.push(reply);
    };
    for _ in 0..50 {
        while queue.lock().running > 0 {
            std::thread::yield_now();
        }
        push();
        wide.next_batch();
        // Two more, while that one runs: one session of the others takes each, and the fourth waits.
        push();
        push();
        one.next_batch();
        other.next_batch();
        push();
        assert!(wide.is_idle() && one.is_idle() && other.is_idle());
        // The wide one leaves it: three are at work.
        wide.resume.send(()).unwrap();
        one.resume.send(()).unwrap();
        one.next_batch();
        assert!(wide.is_idle());
        one.resume.send(()).unwrap();
        other.resume.send(()).unwrap();
    }
    queue.close();
}

#[test]
fn a_request_of_another_shape_is_taken_by_another_group_while_the_first_runs() {
    let (_, clock) = queue(1, 1);
    let rule = Rule {
        max_rows: 8,
        preferred_rows: Vec::new(),
        max_delay: Duration::ZERO,
    };
    let queue = BatchQueue::new(rule, Groups(vec![1, 1]), 100, PendingRequests::new(), gauges());
    let [wide, narrow] = [0, 1].map(|group| worker(&queue, group, &clock));
    while !(0..2).all(|group| queue.lock().idle_sessions[group].asleep > 0) {
        std::thread::yield_now();
    }
    let ((first, _first_reply), (second, _second_reply)) = (alive(1, 1), alive(1, 2));
    // The call for the first is made when both are queued: they seem to need one run.
    let calls = [first, second].map(|job| queue.push([job]).unwrap());
    drop(calls);
    assert_eq!((wide.next_batch(), narrow.next_batch()), (1, 1));
    queue.close();
}

#[test]
fn no_request_is_left_lying_between_groups() {
    let (queue, workers) = groups_of_two();
    let mut replies = Vec::new();
    let mut state = 7_u64;
    let mut left = 0;
    for step in 0..3000_u32 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        for _ in 0..state >> 62 {
            let (job, reply) = alive(1, 1);
            // Every fifth client has gone away again.
            if !step.is_multiple_of(5) {
                replies.push(reply);
                left += 1;
            }
            drop(queue.push([job]).unwrap());
        }
        // Whatever runs is done, until nothing is left.
        let began = Instant::now();
        while left > 0 {
            for worker in &workers {
                while let Ok(jobs) = worker.batches.try_recv() {
                    left -= jobs.min(left);
                    worker.resume.send(()).unwrap();
                }
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{left} requests were left lying"
            );
            std::thread::yield_now();
        }
    }
    queue.close();
}
