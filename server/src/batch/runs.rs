//! Runs of a queue's sessions. A run without waiting clients is interrupted. A session whose run does not end is stuck;
//! if all sessions are stuck, new requests are refused at once.
//!
//! In: the jobs of a batch when its run starts, and a check by every request that gives up. Out: an interrupt once all
//! jobs are given up: at the latest deadline among them, or when the last client has gone away. ONNX Runtime checks it
//! between two operators, so a run ends at the next operator; an endless operator is not ended. Starting and ending a
//! run costs an uncontended lock.

use super::job::{Answer, Job};
use crate::request::{Reason, Refusal};
use parking_lot::Mutex;
use prometheus::IntGauge;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Current runs of the sessions.
pub(super) struct Runs {
    active: Mutex<Vec<Arc<ActiveRun>>>,
    /// Sessions whose run was interrupted but continues.
    stuck: AtomicI64,
    stuck_gauge: IntGauge,
}

impl Runs {
    pub(super) fn new(stuck_gauge: IntGauge) -> Self {
        Self {
            active: Mutex::default(),
            stuck: AtomicI64::new(0),
            stuck_gauge,
        }
    }

    /// Adds a session.
    pub(super) fn add(&self, run: Arc<ActiveRun>) {
        self.active.lock().push(run);
    }

    /// Interrupts the runs without waiting clients. Returns each with its number.
    pub(super) fn interrupt_given_up(&self) -> Vec<(Arc<ActiveRun>, u64)> {
        let active = self.active.lock();
        let interrupted = active.iter().filter_map(|run| {
            let lingering = run.interrupt_if_given_up()?;
            Some((Arc::clone(run), lingering.number))
        });
        interrupted.collect()
    }

    /// Ends all runs, and prevents further ones. Returns those in progress.
    pub(super) fn stop(&self, refusal: &Refusal) -> Vec<LingeringRun> {
        let active = self.active.lock();
        active.iter().filter_map(|run| run.stop(refusal.clone())).collect()
    }

    /// Refuses a request if all sessions are stuck.
    pub(super) fn check_stuck(&self) -> Result<(), Refusal> {
        if self.stuck.load(Relaxed) == 0 {
            return Ok(());
        }
        let active = self.active.lock();
        let lingering: Vec<LingeringRun> = active.iter().filter_map(|run| run.lingering()).collect();
        if lingering.len() < active.len() {
            return Ok(());
        }
        let runs = lingering.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let message = format!(
            "every session of the model is stuck in an interrupted run ({runs}): an operator of the graph does not end; \
             load the model again or restart the server"
        );
        Err(Refusal::new(Reason::NotReady, message))
    }

    pub(super) fn add_stuck(&self, by: i64) {
        self.stuck.fetch_add(by, Relaxed);
        self.stuck_gauge.add(by);
    }
}

/// Divisor of a run's weight in the moving average.
const AVERAGE_WEIGHT: u64 = 8;

/// Drain rate of a queue: an estimate of waits from the durations of runs. A request that cannot be answered in time is
/// refused on arrival instead of after a wait: otherwise an overloaded queue would produce only late answers. An empty
/// queue admits every request, so that a bad estimate corrects itself.
#[derive(Debug, Default)]
pub(super) struct WaitEstimate {
    /// Moving average of the duration of a session's run.
    run_ns: AtomicU64,
    sessions: AtomicUsize,
}

impl WaitEstimate {
    pub(super) fn add_session(&self) {
        self.sessions.fetch_add(1, Relaxed);
    }

    /// Adds a run to the average. Concurrent updates may overwrite each other, because the average is an estimate only.
    pub(super) fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let average = match self.run_ns.load(Relaxed) {
            0 => ns,
            average => average - average / AVERAGE_WEIGHT + ns / AVERAGE_WEIGHT,
        };
        self.run_ns.store(average, Relaxed);
    }

    /// Refuses a request that would wait behind `runs` runs for longer than `limit`.
    pub(super) fn check_wait(&self, runs: usize, limit: Duration) -> Result<(), Refusal> {
        let sessions = self.sessions.load(Relaxed).max(1) as u64;
        let wait = Duration::from_nanos(self.run_ns.load(Relaxed).saturating_mul(runs as u64) / sessions);
        if wait <= limit {
            return Ok(());
        }
        let (wait, limit) = (wait.as_millis(), limit.as_millis());
        let message =
            format!("the model's queue has a wait of about {wait} ms, more than the request's limit of {limit} ms");
        Err(Refusal::new(Reason::Full, message))
    }
}

/// Run of a session.
pub(crate) struct ActiveRun {
    /// Number of the session in its model.
    session: u32,
    state: Mutex<RunState>,
    /// Tells ONNX Runtime to end the run as soon as possible (true), or clears that for the next run (false).
    interrupt: Box<dyn Fn(bool) + Send + Sync>,
    /// Notified when an interrupted run has ended.
    ended: Notify,
}

#[derive(Default)]
struct RunState {
    /// Number of runs started.
    number: u64,
    began: Option<Instant>,
    rows: usize,
    interrupted: bool,
    /// Receivers of the current run's answers.
    replies: Vec<oneshot::Sender<Answer>>,
    /// Reason why no further run may start.
    stopped: Option<Refusal>,
}

/// Interrupted run that continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LingeringRun {
    pub(crate) session: u32,
    /// Number of the run in its session.
    pub(crate) number: u64,
    /// Rows of its batch.
    pub(crate) rows: usize,
    /// Time since its start.
    pub(crate) elapsed: Duration,
}

impl fmt::Display for LingeringRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, number, rows, seconds) = (self.session, self.number, self.rows, self.elapsed.as_secs_f64());
        write!(f, "session {session}, run {number}, {rows} rows, for {seconds:.1} s")
    }
}

impl ActiveRun {
    pub(crate) fn new(session: u32, interrupt: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self {
            session,
            state: Mutex::default(),
            interrupt: Box::new(interrupt),
            ended: Notify::new(),
        }
    }

    /// Starts a run for jobs; a warm-up has none. Returns false, without a run, if all jobs were given up by their
    /// clients.
    ///
    /// # Errors
    /// Returns why the session was stopped.
    pub(crate) fn begin(&self, jobs: &mut [Job], began: Instant) -> Result<bool, Refusal> {
        let mut state = self.state.lock();
        if let Some(refusal) = &state.stopped {
            return Err(refusal.clone());
        }
        // Checked under the lock: a request that gives up later finds the run here.
        if !jobs.is_empty() && jobs.iter().all(Job::is_given_up) {
            return Ok(false);
        }
        state.number += 1;
        state.began = Some(began);
        state.rows = jobs.iter().map(|job| job.rows).sum();
        for job in jobs {
            let _ = job.run_began.set(began);
            state.replies.extend(job.reply.take());
        }
        Ok(true)
    }

    /// Ends the run and returns the replies to its jobs. Returns true if it was interrupted.
    pub(crate) fn end(&self, jobs: &mut [Job]) -> bool {
        let mut state = self.state.lock();
        for (job, reply) in jobs.iter_mut().zip(state.replies.drain(..)) {
            job.reply = Some(reply);
        }
        state.began = None;
        let interrupted = std::mem::take(&mut state.interrupted);
        if interrupted {
            (self.interrupt)(false);
            self.ended.notify_one();
        }
        interrupted
    }

    /// Interrupts the current run if no client waits for it any more.
    fn interrupt_if_given_up(&self) -> Option<LingeringRun> {
        let mut state = self.state.lock();
        let given_up = !state.replies.is_empty() && state.replies.iter().all(oneshot::Sender::is_closed);
        if !given_up || state.interrupted {
            return None;
        }
        self.interrupt_now(&mut state)
    }

    /// Interrupts the current run even if clients wait, and prevents further ones.
    pub(crate) fn stop(&self, refusal: Refusal) -> Option<LingeringRun> {
        let mut state = self.state.lock();
        state.stopped.get_or_insert(refusal);
        self.interrupt_now(&mut state)
    }

    /// Reason why no further run may start.
    pub(crate) fn stopped(&self) -> Option<Refusal> {
        self.state.lock().stopped.clone()
    }

    /// Interrupted run that continues, if any.
    pub(super) fn lingering(&self) -> Option<LingeringRun> {
        let state = self.state.lock();
        state.interrupted.then(|| self.describe(&state))?
    }

    /// Waits until an interrupted run has ended.
    pub(super) async fn ended(&self, number: u64) {
        while self.lingering().is_some_and(|run| run.number == number) {
            self.ended.notified().await;
        }
    }

    fn interrupt_now(&self, state: &mut RunState) -> Option<LingeringRun> {
        state.began?;
        // Under the lock, so that it does not hit the next run.
        (self.interrupt)(true);
        state.interrupted = true;
        self.describe(state)
    }

    fn describe(&self, state: &RunState) -> Option<LingeringRun> {
        Some(LingeringRun {
            session: self.session,
            number: state.number,
            rows: state.rows,
            elapsed: state.began?.elapsed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Part;
    use crate::telemetry::trace::RequestScope;
    use std::sync::atomic::AtomicI32;

    /// A run, and how many times more it was asked to end than to go on.
    fn active() -> (ActiveRun, Arc<AtomicI32>) {
        let interrupted_flag = Arc::<AtomicI32>::default();
        let flag = Arc::clone(&interrupted_flag);
        let interrupt = move |end| {
            flag.fetch_add(if end { 1 } else { -1 }, Relaxed);
        };
        (ActiveRun::new(0, interrupt), interrupted_flag)
    }

    fn job() -> (Job, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let now = Instant::now();
        let job = Job {
            parts: Vec::<Part>::new(),
            rows: 1,
            enqueued: now,
            rank: now,
            deadline: now,
            start_by: now,
            scope: RequestScope::current(),
            run_began: Arc::default(),
            reply: Some(reply),
        };
        (job, answer)
    }

    #[tokio::test]
    async fn a_run_goes_on_for_its_last_member_and_ends_with_it() {
        let (active, interrupted_flag) = active();
        let ((first, first_answer), (second, second_answer)) = (job(), job());
        let mut jobs = [first, second];
        assert_eq!(active.begin(&mut jobs, Instant::now()), Ok(true));
        drop(first_answer);
        assert_eq!(active.interrupt_if_given_up(), None);
        assert_eq!(interrupted_flag.load(Relaxed), 0, "one still waits");
        drop(second_answer);
        assert_eq!(active.interrupt_if_given_up().unwrap().rows, 2);
        assert_eq!(active.interrupt_if_given_up(), None, "once is enough");
        assert_eq!(interrupted_flag.load(Relaxed), 1);
        let ended = active.ended(1);
        assert!(active.end(&mut jobs));
        ended.await;
        assert_eq!(interrupted_flag.load(Relaxed), 0, "the next run is not asked to end");
        assert!(jobs.iter().all(Job::is_given_up));
    }

    #[test]
    fn between_runs_nothing_is_ended_and_nobody_is_run_for() {
        let (active, interrupted_flag) = active();
        let (abandoned, answer) = job();
        drop(answer);
        assert_eq!(active.begin(&mut [abandoned], Instant::now()), Ok(false));
        let (waiting, mut answer) = job();
        let mut jobs = [waiting];
        assert_eq!(active.begin(&mut jobs, Instant::now()), Ok(true));
        assert!(!active.end(&mut jobs));
        assert_eq!(active.interrupt_if_given_up(), None);
        assert_eq!(active.lingering(), None);
        let [job] = jobs;
        job.refuse(Refusal::new(Reason::Inference, "told"));
        assert_eq!(answer.try_recv().unwrap().unwrap_err().message, "told");
        assert_eq!(interrupted_flag.load(Relaxed), 0);
    }

    #[test]
    fn who_is_stopped_begins_no_more() {
        let (active, interrupted_flag) = active();
        active.begin(&mut [], Instant::now()).unwrap();
        assert_eq!(
            active.interrupt_if_given_up(),
            None,
            "a warm-up has nobody who could give up"
        );
        let refusal = Refusal::new(Reason::Draining, "over");
        assert!(active.stop(refusal.clone()).is_some());
        assert_eq!(interrupted_flag.load(Relaxed), 1);
        assert!(active.end(&mut []));
        assert_eq!(active.begin(&mut [], Instant::now()), Err(refusal));
        assert_eq!(active.stop(Refusal::new(Reason::Draining, "again")), None);
    }

    #[test]
    fn what_would_be_late_is_refused_and_an_empty_queue_refuses_nothing() {
        let estimate = WaitEstimate::default();
        let ms = Duration::from_millis;
        assert!(estimate.check_wait(1_000_000, ms(1)).is_ok(), "nothing is known yet");
        estimate.record(ms(100));
        assert!(estimate.check_wait(10, ms(1000)).is_ok());
        assert_eq!(estimate.check_wait(11, ms(1000)).unwrap_err().reason, Reason::Full);
        estimate.add_session();
        estimate.add_session();
        assert!(estimate.check_wait(20, ms(1000)).is_ok());
        assert!(estimate.check_wait(0, Duration::ZERO).is_ok());
        for _ in 0..100 {
            estimate.record(ms(1));
        }
        assert!(estimate.check_wait(1000, ms(1000)).is_ok());
    }
}
