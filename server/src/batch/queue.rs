//! The batch queue of one model: a bounded room between requests and the threads that own its sessions.
//!
//! In: jobs, each with its reply channel. Out: batches, closed by [`rule`](super::rule), of jobs that can be concatenated: rows behind
//! rows, without padding. Jobs go by their rank, which is when they came plus what their priority costs them: a lower
//! level waits a bounded time longer, and is never starved. Jobs whose client went away or whose time has passed are
//! dropped here, before any work is done for them; a run that nobody waits for any more is ended. Knows nothing of ONNX
//! Runtime.

use super::clock::{PendingRequests, SessionClock};
use super::groups::{Groups, IdleSessions, SessionSlot};
use super::job::Job;
use super::pace::Pace;
use super::rule::{Decision, Rule, View};
use super::runs::{ActiveRun, LingeringRun, Runs};
use super::sync::{Condvar, Mutex, MutexGuard};
use crate::request::{Reason, Refusal};
use crate::telemetry::trace::context::RequestScope;
use prometheus::IntGauge;
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Maximum wait of the first of several jobs until a session is woken, while others are queued.
const WAKE_PATIENCE: Duration = Duration::from_micros(500);

/// Time after an interrupt until a run's session counts as stuck: most graphs reach their next operator within milliseconds.
const GRACE: Duration = Duration::from_secs(1);

/// Wakes a sleeping session when it is dropped, also where its holder is cancelled.
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

/// The queue.
pub(crate) struct BatchQueue {
    state: Mutex<QueueState>,
    groups: Groups,
    /// One for each group.
    wake: Vec<Condvar>,
    rule: Rule,
    capacity: usize,
    pending: Arc<PendingRequests>,
    /// Requests that wait.
    pub(super) depth: IntGauge,
    pace: Pace,
    /// Current runs of the sessions.
    runs: Runs,
}

/// Gauges of a queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueGauges {
    /// Requests that wait.
    pub(crate) depth: IntGauge,
    /// Sessions that are stuck.
    pub(crate) stuck: IntGauge,
}

pub(super) struct QueueState {
    jobs: VecDeque<Job>,
    pub(super) rows: usize,
    /// Jobs that the gauge and the clock of pending requests know of.
    noted: usize,
    closed: bool,
    /// Sessions in a run.
    pub(super) running: usize,
    /// One for each group.
    pub(super) sleepers: Vec<IdleSessions>,
}

impl QueueState {
    /// Rows of the jobs that go before one of this rank.
    fn rows_before(&self, rank: Instant) -> usize {
        let behind = self.jobs.iter().rev().take_while(|job| job.rank >= rank);
        self.rows - behind.map(|job| job.rows).sum::<usize>()
    }
}

impl BatchQueue {
    /// A queue of at most `capacity` requests, for sessions of these groups.
    pub(crate) fn new(
        rule: Rule,
        groups: Groups,
        capacity: usize,
        pending: Arc<PendingRequests>,
        gauges: QueueGauges,
    ) -> Arc<Self> {
        let count = groups.0.len();
        Arc::new(Self {
            state: Mutex::new(QueueState {
                jobs: VecDeque::new(),
                rows: 0,
                noted: 0,
                closed: false,
                running: 0,
                sleepers: vec![IdleSessions::default(); count],
            }),
            groups,
            wake: (0..count).map(|_| Condvar::new()).collect(),
            rule,
            capacity,
            pending,
            depth: gauges.depth,
            pace: Pace::default(),
            runs: Runs::new(gauges.stuck),
        })
    }

    /// Queues the pieces of a request, all of one rank, or refuses it. Where sessions sleep, the calls that wake them come
    /// back: others who are about to queue can do so before they are made.
    pub(crate) fn push(
        self: &Arc<Self>,
        pieces: impl IntoIterator<Item = Job, IntoIter: ExactSizeIterator>,
    ) -> Result<Vec<WakeUp>, Refusal> {
        let mut pieces = pieces.into_iter().peekable();
        let mut state = self.lock();
        if state.closed {
            return Err(Refusal::new(Reason::Draining, "the server is shutting down"));
        }
        if state.jobs.len() + pieces.len() > self.capacity {
            let what = format!("the model's queue holds {} requests", self.capacity);
            return Err(Refusal::new(Reason::Full, what));
        }
        self.runs.check_stuck()?;
        if let Some(first) = pieces.peek() {
            let limit = first.deadline.saturating_duration_since(first.enqueued);
            self.check_runs_before(&state, first.rank, limit)?;
        }
        let mut wake_ups = Vec::new();
        for job in pieces {
            state.rows += job.rows;
            // Most jobs go to the end, where the search begins.
            let before = state.jobs.iter().rposition(|other| other.rank <= job.rank);
            state.jobs.insert(before.map_or(0, |at| at + 1), job);
            let group = self.group_for_next(&state);
            if state.sleepers[group].wake_up() {
                let queue = Arc::clone(self);
                wake_ups.push(WakeUp { queue, group });
            }
        }
        self.note_queued(&mut state);
        let oldest = state.jobs.front().map(|job| job.enqueued);
        let overdue = oldest.is_some_and(|oldest| oldest.elapsed() > WAKE_PATIENCE);
        let group = self.group_for_next(&state);
        let hurry = state.sleepers[group].any() && (overdue || state.rows >= self.rule.largest());
        drop(state);
        if hurry {
            self.wake[group].notify_one();
        }
        Ok(wake_ups)
    }

    /// The group that takes the next batch.
    fn group_for_next(&self, state: &QueueState) -> usize {
        let queued = state.rows.div_ceil(self.rule.largest().max(1)).min(state.jobs.len());
        self.groups.taking(state.running + queued)
    }

    /// Wakes a session for the jobs that another one leaves.
    fn wake_next(&self, state: &mut QueueState) {
        let group = self.group_for_next(state);
        if !state.jobs.is_empty() && state.sleepers[group].wake_up() {
            self.wake[group].notify_one();
        }
    }

    /// Waits for the next batch; `None` once the queue is closed and empty. Turns the clock to waiting while there is
    /// nothing to do and to computing with the batch.
    pub(crate) fn take(&self, slot: &mut SessionSlot, clock: &SessionClock, last_run: Duration) -> Option<Vec<Job>> {
        let mut session_was_idle = false;
        let mut state = self.lock();
        clock.turn(false);
        state.running -= usize::from(std::mem::take(&mut slot.running));
        loop {
            if state.jobs.is_empty() && state.closed {
                return None;
            }
            let another = self.group_for_next(&state) != slot.group && !state.closed;
            let Some(first) = state.jobs.front().filter(|_| !another) else {
                // The jobs that woke this group may be another group's by now.
                self.wake_next(&mut state);
                session_was_idle = true;
                state = self.sleep(slot, state, None);
                continue;
            };
            let view = View {
                rows: state.rows,
                oldest_age: first.enqueued.elapsed(),
                session_was_idle: session_was_idle || state.closed,
                upcoming: self.pending.reading(),
                last_run,
            };
            match self.rule.decide(&view) {
                Decision::Wait(time) => state = self.sleep(slot, state, Some(time)),
                Decision::Close(rows) => {
                    let batch = close(&mut state, rows);
                    self.note_queued(&mut state);
                    if !batch.is_empty() {
                        clock.turn(true);
                        slot.running = true;
                        state.running += 1;
                        self.wake_next(&mut state);
                        return Some(batch);
                    }
                }
            }
        }
    }

    /// Refuses a request that would not be answered within `limit` if it came now with the highest priority.
    pub(crate) fn check_wait(&self, limit: Duration) -> Result<(), Refusal> {
        self.runs.check_stuck()?;
        self.check_runs_before(&self.lock(), Instant::now(), limit)
    }

    fn check_runs_before(&self, state: &QueueState, rank: Instant, limit: Duration) -> Result<(), Refusal> {
        let runs = state.rows_before(rank).div_ceil(self.rule.largest().max(1));
        self.pace.check_wait(runs, limit)
    }

    /// Notes the time of a run, for the estimate of a wait.
    pub(crate) fn note_run(&self, time: Duration) {
        self.pace.note(time);
    }

    /// One more session takes from the queue.
    pub(crate) fn add_session(&self, slot: &SessionSlot, run: Arc<ActiveRun>) {
        self.runs.add(run);
        if self.groups.is_last(slot.group) {
            self.pace.add_session();
        }
    }

    /// A request has given up: drops what is queued for it, and interrupts the runs for which nobody waits any more. Where
    /// that leaves every session stuck, what is queued is refused.
    pub(crate) fn interrupt_given_up(self: &Arc<Self>) {
        self.drop_given_up();
        for (run, number) in self.runs.interrupt_given_up() {
            // Without a runtime the process is ending.
            if let Ok(runtime) = Handle::try_current() {
                let watch = watch(Arc::downgrade(self), run, number);
                runtime.spawn(RequestScope::current().run_async(watch));
            }
        }
    }

    /// Ends every run and refuses what is queued: for a model whose time is over. Gives the runs that were under way.
    pub(crate) fn stop_runs(&self, why: &Refusal) -> Vec<LingeringRun> {
        self.close();
        self.refuse_queued(why);
        self.runs.stop(why)
    }

    /// Drops the jobs whose clients have gone away: nobody is charged for their tensors any more, and they would keep others
    /// out for as long as every session is in a run.
    fn drop_given_up(&self) {
        let given_up: VecDeque<Job> = {
            let mut state = self.lock();
            if !state.jobs.iter().any(Job::is_given_up) {
                return;
            }
            let (given_up, waiting) = std::mem::take(&mut state.jobs).into_iter().partition(Job::is_given_up);
            state.jobs = waiting;
            state.rows = state.jobs.iter().map(|job| job.rows).sum();
            self.note_queued(&mut state);
            given_up
        };
        drop(given_up);
    }

    fn refuse_queued(&self, why: &Refusal) {
        let jobs: Vec<Job> = {
            let mut state = self.lock();
            state.rows = 0;
            let jobs = state.jobs.drain(..).collect();
            self.note_queued(&mut state);
            jobs
        };
        for job in jobs {
            job.refuse(why.clone());
        }
    }

    /// Tells the gauge and the clock of pending requests how many jobs are queued. Versions of a model share the gauge.
    fn note_queued(&self, state: &mut QueueState) {
        let queued = state.jobs.len();
        let before = std::mem::replace(&mut state.noted, queued);
        self.depth.add(queued as i64 - before as i64);
        if (before == 0) != (queued == 0) {
            self.pending.set_queued(queued > 0, Instant::now());
        }
    }

    /// Refuses new jobs; what is queued is still taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.iter().for_each(Condvar::notify_all);
    }

    /// Waits until its group is called, for so long at most.
    fn sleep<'a>(
        &self,
        slot: &SessionSlot,
        mut state: MutexGuard<'a, QueueState>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, QueueState> {
        let wake = &self.wake[slot.group];
        state.sleepers[slot.group].sleep();
        let mut state = match limit {
            None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = wake.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.sleepers[slot.group].awake();
        state
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BatchQueue {
    fn drop(&mut self) {
        self.depth.sub(self.lock().noted as i64);
    }
}

/// Takes the first living job and, in their order, those that go with it and fit.
fn close(state: &mut QueueState, max_rows: usize) -> Vec<Job> {
    let now = Instant::now();
    let mut batch: Vec<Job> = Vec::new();
    let mut rows = 0;
    let mut at = 0;
    while let Some(job) = state.jobs.get(at) {
        let dead = job.is_given_up() || job.is_late(now);
        let fits = batch
            .first()
            .is_none_or(|first| rows + job.rows <= max_rows && first.goes_with(job));
        if !dead && !fits {
            at += 1;
            continue;
        }
        let Some(job) = state.jobs.remove(at) else { break };
        state.rows -= job.rows;
        if !dead {
            rows += job.rows;
            batch.push(job);
        } else {
            job.refuse(Refusal::new(Reason::Deadline, "its time was over in the model's queue"));
        }
        if rows >= max_rows {
            break;
        }
    }
    batch
}

/// Sees an interrupted run to its end.
async fn watch(queue: Weak<BatchQueue>, run: Arc<ActiveRun>, number: u64) {
    if tokio::time::timeout(GRACE, run.over(number)).await.is_ok() {
        return;
    }
    let (Some(queue), Some(lingering)) = (queue.upgrade(), run.lingering().filter(|run| run.number == number)) else {
        return;
    };
    let run_name = lingering.to_string();
    tracing::error!(
        run = run_name,
        "a run was ended and does not end: its session is stuck until it does"
    );
    queue.runs.set_stuck(true);
    if let Err(refusal) = queue.runs.check_stuck() {
        queue.refuse_queued(&refusal);
    }
    run.over(number).await;
    queue.runs.set_stuck(false);
    tracing::warn!(run = run_name, "the run has ended: its session goes on");
}
