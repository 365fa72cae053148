//! The bounded batch queue of one model, between requests and the threads that own its sessions.
//!
//! In: jobs, each with its reply channel. Out: batches, closed by [`rule`](super::rule), of jobs whose rows can be
//! concatenated without padding. Jobs are ordered by rank: arrival time plus the delay of their priority. A low
//! priority adds a bounded wait and never starves. Jobs whose client went away or whose deadline passed are dropped
//! before any work is done for them; a run whose clients have all gone is interrupted. Knows nothing of ONNX Runtime.

use super::clock::{PendingRequests, SessionClock};
use super::job::Job;
use super::rule::{Decision, Groups, IdleSessions, Rule, SessionSlot, View};
use super::runs::{ActiveRun, LingeringRun, Runs, WaitEstimate};
use super::sync::{Condvar, Mutex, MutexGuard};
use crate::request::{Reason, Refusal};
use crate::telemetry::trace::RequestScope;
use prometheus::IntGauge;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Maximum wait of the first of several jobs until a session is woken, while others are queued.
const MAX_WAKE_DELAY: Duration = Duration::from_micros(500);

/// Time after an interrupt until a run's session counts as stuck: most graphs reach their next operator within
/// milliseconds.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);

/// Wakes a sleeping session when dropped, even if its holder is cancelled.
#[must_use]
pub(crate) struct WakeUp {
    queue: Arc<BatchQueue>,
    group: usize,
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        self.queue.wake[self.group].notify_one();
    }
}

pub(crate) struct BatchQueue {
    state: Mutex<QueueState>,
    groups: Groups,
    /// One per session group.
    wake: Vec<Condvar>,
    rule: Rule,
    capacity: usize,
    pending: Arc<PendingRequests>,
    /// Number of queued requests.
    pub(super) depth: IntGauge,
    wait_estimate: WaitEstimate,
    /// Current runs of the sessions.
    runs: Runs,
}

#[derive(Default)]
pub(super) struct QueueState {
    jobs: VecDeque<Job>,
    pub(super) rows: usize,
    /// Number of jobs last reported to the gauge and to the clock of pending requests.
    reported_depth: usize,
    /// Reason why no job is taken any more; `None` while the queue is open.
    closed: Option<Refusal>,
    /// Number of sessions in a run.
    pub(super) running: usize,
    /// One entry per session group.
    pub(super) idle_sessions: Vec<IdleSessions>,
}

impl QueueState {
    /// Number of rows queued ahead of a job with this rank.
    fn rows_before(&self, rank: Instant) -> usize {
        let behind = self.jobs.iter().rev().take_while(|job| job.rank >= rank);
        self.rows - behind.map(|job| job.rows).sum::<usize>()
    }
}

impl BatchQueue {
    /// Creates a queue of at most `capacity` requests, for sessions of these groups. The gauges count queued requests
    /// and stuck sessions.
    pub(crate) fn new(
        rule: Rule,
        groups: Groups,
        capacity: usize,
        pending: Arc<PendingRequests>,
        [depth, stuck]: [IntGauge; 2],
    ) -> Arc<Self> {
        let count = groups.0.len();
        Arc::new(Self {
            state: Mutex::new(QueueState {
                idle_sessions: vec![IdleSessions::default(); count],
                ..QueueState::default()
            }),
            groups,
            wake: (0..count).map(|_| Condvar::new()).collect(),
            rule,
            capacity,
            pending,
            depth,
            wait_estimate: WaitEstimate::default(),
            runs: Runs::new(stuck),
        })
    }

    /// Queues the pieces of a request, all of one rank, or refuses it. Returns the wake-ups of sleeping sessions, so
    /// that other requests can still be queued before the sessions wake.
    pub(crate) fn push(
        self: &Arc<Self>,
        pieces: impl IntoIterator<Item = Job, IntoIter: ExactSizeIterator>,
    ) -> Result<Vec<WakeUp>, Refusal> {
        let mut pieces = pieces.into_iter().peekable();
        let mut state = self.lock();
        if let Some(refusal) = &state.closed {
            return Err(refusal.clone());
        }
        if state.jobs.len() + pieces.len() > self.capacity {
            let message = format!("the model's queue is full: {} requests", self.capacity);
            return Err(Refusal::new(Reason::Full, message));
        }
        self.runs.check_stuck()?;
        if let Some(first) = pieces.peek() {
            let limit = first.deadline.saturating_duration_since(first.enqueued);
            self.check_runs_before(&state, first.rank, limit)?;
        }
        let mut wake_ups = Vec::new();
        for job in pieces {
            state.rows += job.rows;
            // Searched from the end, because most jobs go there.
            let before = state.jobs.iter().rposition(|other| other.rank <= job.rank);
            state.jobs.insert(before.map_or(0, |at| at + 1), job);
            let group = self.group_for_next(&state);
            if state.idle_sessions[group].needs_wake_up() {
                let queue = Arc::clone(self);
                wake_ups.push(WakeUp { queue, group });
            }
        }
        self.report_depth(&mut state);
        let oldest = state.jobs.front().map(|job| job.enqueued);
        let overdue = oldest.is_some_and(|oldest| oldest.elapsed() > MAX_WAKE_DELAY);
        let group = self.group_for_next(&state);
        let wake_now = state.idle_sessions[group].asleep > 0 && (overdue || state.rows >= self.rule.largest());
        drop(state);
        if wake_now {
            self.wake[group].notify_one();
        }
        Ok(wake_ups)
    }

    /// Returns the group that takes the next batch.
    fn group_for_next(&self, state: &QueueState) -> usize {
        let queued = state.rows.div_ceil(self.rule.largest().max(1)).min(state.jobs.len());
        self.groups.group_for(state.running + queued)
    }

    /// Wakes a session for the jobs left in the queue.
    fn wake_next(&self, state: &mut QueueState) {
        let group = self.group_for_next(state);
        if !state.jobs.is_empty() && state.idle_sessions[group].needs_wake_up() {
            self.wake[group].notify_one();
        }
    }

    /// Waits for the next batch; `None` once the queue is closed and empty. Sets the clock to waiting while idle, and
    /// to computing when it returns a batch.
    pub(crate) fn take(&self, slot: &mut SessionSlot, clock: &SessionClock, last_run: Duration) -> Option<Vec<Job>> {
        let mut session_was_idle = false;
        let mut state = self.lock();
        clock.set_computing(false);
        state.running -= usize::from(std::mem::take(&mut slot.running));
        loop {
            if state.jobs.is_empty() && state.closed.is_some() {
                return None;
            }
            let other_group = self.group_for_next(&state) != slot.group && state.closed.is_none();
            let Some(first) = state.jobs.front().filter(|_| !other_group) else {
                // Another group may have become responsible for the jobs that woke this group.
                self.wake_next(&mut state);
                session_was_idle = true;
                state = self.sleep(slot, state, None);
                continue;
            };
            let view = View {
                rows: state.rows,
                oldest_age: first.enqueued.elapsed(),
                session_was_idle: session_was_idle || state.closed.is_some(),
                upcoming: self.pending.reading(),
                last_run,
            };
            match self.rule.decide(&view) {
                Decision::Wait(time) => state = self.sleep(slot, state, Some(time)),
                Decision::Close(rows) => {
                    let batch = take_batch(&mut state, rows);
                    self.report_depth(&mut state);
                    if !batch.is_empty() {
                        clock.set_computing(true);
                        slot.running = true;
                        state.running += 1;
                        self.wake_next(&mut state);
                        return Some(batch);
                    }
                }
            }
        }
    }

    /// Refuses a request that could not be answered within `limit` even with the highest priority.
    pub(crate) fn check_wait(&self, limit: Duration) -> Result<(), Refusal> {
        self.runs.check_stuck()?;
        self.check_runs_before(&self.lock(), Instant::now(), limit)
    }

    fn check_runs_before(&self, state: &QueueState, rank: Instant, limit: Duration) -> Result<(), Refusal> {
        let runs = state.rows_before(rank).div_ceil(self.rule.largest().max(1));
        self.wait_estimate.check_wait(runs, limit)
    }

    /// Records the duration of a run, for wait estimates.
    pub(crate) fn record_run(&self, time: Duration) {
        self.wait_estimate.record(time);
    }

    /// Adds a session that takes from the queue.
    pub(crate) fn add_session(&self, slot: &SessionSlot, run: Arc<ActiveRun>) {
        self.runs.add(run);
        if self.groups.is_last(slot.group) {
            self.wait_estimate.add_session();
        }
    }

    /// Handles a request that has given up: drops its queued jobs, and interrupts runs without waiting clients. If
    /// every session is then stuck, refuses all queued jobs.
    pub(crate) fn interrupt_given_up(self: &Arc<Self>) {
        self.drop_given_up();
        for (run, number) in self.runs.interrupt_given_up() {
            // No runtime: the process is ending.
            if let Ok(runtime) = Handle::try_current() {
                let watch = watch_interrupted(Arc::downgrade(self), run, number);
                runtime.spawn(RequestScope::current().run_async(watch));
            }
        }
    }

    /// Interrupts every run and refuses all queued jobs, for a model being unloaded. Returns the runs still in
    /// progress.
    pub(crate) fn stop_runs(&self, refusal: &Refusal) -> Vec<LingeringRun> {
        self.close_for(refusal);
        self.refuse_queued(refusal);
        self.runs.stop(refusal)
    }

    /// Drops the jobs whose clients have gone away: no account counts their tensors any more, and while every session
    /// is in a run they would take the place of other requests.
    fn drop_given_up(&self) {
        let mut state = self.lock();
        if !state.jobs.iter().any(Job::is_given_up) {
            return;
        }
        let (given_up, waiting): (Vec<Job>, _) = state.jobs.drain(..).partition(Job::is_given_up);
        state.jobs = waiting.into();
        state.rows = state.jobs.iter().map(|job| job.rows).sum();
        self.report_depth(&mut state);
        drop(state);
        drop(given_up);
    }

    fn refuse_queued(&self, refusal: &Refusal) {
        let mut state = self.lock();
        state.rows = 0;
        let jobs = std::mem::take(&mut state.jobs);
        self.report_depth(&mut state);
        drop(state);
        for job in jobs {
            job.refuse(refusal.clone());
        }
    }

    /// Reports the number of queued jobs to the gauge and to the clock of pending requests. Versions of a model share
    /// the gauge.
    fn report_depth(&self, state: &mut QueueState) {
        let queued = state.jobs.len();
        let before = std::mem::replace(&mut state.reported_depth, queued);
        self.depth.add(queued as i64 - before as i64);
        if (before == 0) != (queued == 0) {
            self.pending.set_queued(queued > 0, Instant::now());
        }
    }

    /// Refuses new jobs; queued jobs are still taken.
    pub(crate) fn close(&self) {
        self.close_for(&Refusal::new(Reason::Draining, "the server is shutting down"));
    }

    fn close_for(&self, refusal: &Refusal) {
        self.lock().closed.get_or_insert_with(|| refusal.clone());
        self.wake.iter().for_each(Condvar::notify_all);
    }

    /// Waits until the session's group is woken, or for the given time.
    fn sleep<'a>(
        &self,
        slot: &SessionSlot,
        mut state: MutexGuard<'a, QueueState>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, QueueState> {
        let wake = &self.wake[slot.group];
        state.idle_sessions[slot.group].asleep += 1;
        let mut state = match limit {
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = wake.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.idle_sessions[slot.group].record_awake();
        state
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BatchQueue {
    fn drop(&mut self) {
        self.depth.sub(self.lock().reported_depth as i64);
    }
}

/// Takes the first job that is still wanted, and the jobs after it that can share its batch.
fn take_batch(state: &mut QueueState, max_rows: usize) -> Vec<Job> {
    let now = Instant::now();
    let mut batch: Vec<Job> = Vec::new();
    let mut rows = 0;
    let mut at = 0;
    while let Some(job) = state.jobs.get(at) {
        let is_expired = job.is_given_up() || job.is_late(now);
        let fits = batch
            .first()
            .is_none_or(|first| rows + job.rows <= max_rows && first.can_batch_with(job));
        if !is_expired && !fits {
            at += 1;
            continue;
        }
        let Some(job) = state.jobs.remove(at) else { break };
        state.rows -= job.rows;
        if !is_expired {
            rows += job.rows;
            batch.push(job);
        } else {
            job.refuse(Refusal::new(Reason::Deadline, "deadline passed in the model's queue"));
        }
        if rows >= max_rows {
            break;
        }
    }
    batch
}

/// Watches an interrupted run until it ends.
async fn watch_interrupted(queue: Weak<BatchQueue>, run: Arc<ActiveRun>, number: u64) {
    if tokio::time::timeout(INTERRUPT_GRACE, run.ended(number)).await.is_ok() {
        return;
    }
    let (Some(queue), Some(lingering)) = (queue.upgrade(), run.lingering().filter(|run| run.number == number)) else {
        return;
    };
    let run_name = lingering.to_string();
    tracing::error!(
        run = run_name,
        "an interrupted run does not end: its session is stuck until it does"
    );
    queue.runs.add_stuck(1);
    if let Err(refusal) = queue.runs.check_stuck() {
        queue.refuse_queued(&refusal);
    }
    run.ended(number).await;
    queue.runs.add_stuck(-1);
    tracing::warn!(run = run_name, "the interrupted run has ended: its session continues");
}
