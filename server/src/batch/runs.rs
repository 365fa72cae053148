//! The runs of a queue's sessions. Those that nobody waits for are interrupted, and a session that does not come back from
//! one is given up for the time being, so that requests are refused at once where they would only wait behind it.
//!
//! In: the jobs of a batch when its run begins, and a check by every request that gives up. Out: an interrupt once all of them
//! have given up: at the latest deadline among them, or when their last client has gone away. ONNX Runtime looks at it between
//! two operators, so that a run ends at the next one; an operator that never ends is not ended by this. To begin and to end a
//! run costs one lock that nobody else holds.

use super::job::{Answer, Job};
use crate::request::{Reason, Refusal};
use parking_lot::Mutex;
use prometheus::IntGauge;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Current runs of the sessions.
pub(super) struct Runs {
    active: Mutex<Vec<Arc<ActiveRun>>>,
    /// Sessions whose run was ended, and goes on all the same.
    stuck: AtomicUsize,
    stuck_gauge: IntGauge,
}

impl Runs {
    pub(super) fn new(stuck_gauge: IntGauge) -> Self {
        Self {
            active: Mutex::default(),
            stuck: AtomicUsize::new(0),
            stuck_gauge,
        }
    }

    /// One more session.
    pub(super) fn add(&self, run: Arc<ActiveRun>) {
        self.active.lock().push(run);
    }

    /// Interrupts the runs for which nobody waits any more; gives each with its number.
    pub(super) fn interrupt_given_up(&self) -> Vec<(Arc<ActiveRun>, u64)> {
        let active = self.active.lock();
        let interrupted = active.iter().filter_map(|run| {
            let lingering = run.interrupt_if_given_up()?;
            Some((Arc::clone(run), lingering.number))
        });
        interrupted.collect()
    }

    /// Ends every run, and lets none begin. Gives those that were under way.
    pub(super) fn stop(&self, why: &Refusal) -> Vec<LingeringRun> {
        self.active
            .lock()
            .iter()
            .filter_map(|run| run.stop(why.clone()))
            .collect()
    }

    /// Refuses a request where every session is stuck.
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
        let what = format!(
            "every session of the model is stuck in a run that was ended and does not end ({runs}): one operator of the graph \
             takes all this time; load the model again or restart the server"
        );
        Err(Refusal::new(Reason::NotReady, what))
    }

    pub(super) fn set_stuck(&self, stuck: bool) {
        if stuck {
            self.stuck.fetch_add(1, Relaxed);
            self.stuck_gauge.inc();
        } else {
            self.stuck.fetch_sub(1, Relaxed);
            self.stuck_gauge.dec();
        }
    }
}

/// The run of one session.
pub(crate) struct ActiveRun {
    /// The session's number among those of its model.
    session: u32,
    state: Mutex<RunState>,
    /// Asks ONNX Runtime to end the run as soon as it can (true), or takes that back for the next run.
    interrupt: Box<dyn Fn(bool) + Send + Sync>,
    /// Woken when a run that was interrupted has ended.
    over: Notify,
}

#[derive(Default)]
struct RunState {
    /// Runs that have begun.
    number: u64,
    began: Option<Instant>,
    rows: usize,
    interrupted: bool,
    /// Receivers of the current run's answers.
    replies: Vec<oneshot::Sender<Answer>>,
    /// Why no run begins any more.
    stopped: Option<Refusal>,
}

/// A run that was interrupted and goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LingeringRun {
    pub(crate) session: u32,
    /// Which of the session's runs.
    pub(crate) number: u64,
    /// Rows of its batch.
    pub(crate) rows: usize,
    /// Since it began.
    pub(crate) ran: Duration,
}

impl fmt::Display for LingeringRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            number,
            rows,
            ran,
        } = self;
        let seconds = ran.as_secs_f64();
        write!(f, "session {session}, run {number}, {rows} rows, for {seconds:.1} s")
    }
}

impl ActiveRun {
    pub(crate) fn new(session: u32, interrupt: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self {
            session,
            state: Mutex::default(),
            interrupt: Box::new(interrupt),
            over: Notify::new(),
        }
    }

    /// Begins a run for jobs; a warm-up has none. `false`, and no run, where every job was given up by its client.
    ///
    /// # Errors
    /// Why the session was stopped.
    pub(crate) fn begin(&self, jobs: &mut [Job], began: Instant) -> Result<bool, Refusal> {
        let mut state = self.state.lock();
        if let Some(why) = &state.stopped {
            return Err(why.clone());
        }
        // Checked under the lock: a request that gives up from now on finds the run here.
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

    /// Ends the run and gives its jobs their replies back; says whether it was interrupted.
    pub(crate) fn end(&self, jobs: &mut [Job]) -> bool {
        let mut state = self.state.lock();
        for (job, reply) in jobs.iter_mut().zip(state.replies.drain(..)) {
            job.reply = Some(reply);
        }
        state.began = None;
        let interrupted = std::mem::take(&mut state.interrupted);
        if interrupted {
            (self.interrupt)(false);
            self.over.notify_one();
        }
        interrupted
    }

    /// Interrupts the run under way where nobody waits for it any more.
    fn interrupt_if_given_up(&self) -> Option<LingeringRun> {
        let mut state = self.state.lock();
        let given_up = !state.replies.is_empty() && state.replies.iter().all(oneshot::Sender::is_closed);
        if !given_up || state.interrupted {
            return None;
        }
        self.interrupt_now(&mut state)
    }

    /// Interrupts the run under way, whoever waits for it, and lets none begin.
    pub(crate) fn stop(&self, why: Refusal) -> Option<LingeringRun> {
        let mut state = self.state.lock();
        state.stopped.get_or_insert(why);
        self.interrupt_now(&mut state)
    }

    /// Why no run begins any more.
    pub(crate) fn stopped(&self) -> Option<Refusal> {
        self.state.lock().stopped.clone()
    }

    /// The run that was interrupted and goes on.
    pub(super) fn lingering(&self) -> Option<LingeringRun> {
        let state = self.state.lock();
        if !state.interrupted {
            return None;
        }
        self.describe(&state)
    }

    /// Waits until a run that was interrupted is over.
    pub(super) async fn over(&self, number: u64) {
        while self.lingering().is_some_and(|run| run.number == number) {
            self.over.notified().await;
        }
    }

    fn interrupt_now(&self, state: &mut RunState) -> Option<LingeringRun> {
        state.began?;
        // Under the lock, so that it does not hit the run after this one.
        (self.interrupt)(true);
        state.interrupted = true;
        self.describe(state)
    }

    fn describe(&self, state: &RunState) -> Option<LingeringRun> {
        Some(LingeringRun {
            session: self.session,
            number: state.number,
            rows: state.rows,
            ran: state.began?.elapsed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Part;
    use crate::telemetry::trace::context::RequestScope;
    use std::sync::atomic::AtomicI32;

    /// A run, and how many times more it was asked to end than to go on.
    fn active() -> (ActiveRun, Arc<AtomicI32>) {
        let asked = Arc::<AtomicI32>::default();
        let flag = Arc::clone(&asked);
        let interrupt = move |end| {
            flag.fetch_add(if end { 1 } else { -1 }, Relaxed);
        };
        (ActiveRun::new(0, interrupt), asked)
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
        let (active, asked) = active();
        let ((first, first_answer), (second, second_answer)) = (job(), job());
        let mut jobs = [first, second];
        assert_eq!(active.begin(&mut jobs, Instant::now()), Ok(true));
        drop(first_answer);
        assert_eq!(active.interrupt_if_given_up(), None);
        assert_eq!(asked.load(Relaxed), 0, "one still waits");
        drop(second_answer);
        assert_eq!(active.interrupt_if_given_up().unwrap().rows, 2);
        assert_eq!(active.interrupt_if_given_up(), None, "once is enough");
        assert_eq!(asked.load(Relaxed), 1);
        let over = active.over(1);
        assert!(active.end(&mut jobs));
        over.await;
        assert_eq!(asked.load(Relaxed), 0, "the next run is not asked to end");
        assert!(jobs.iter().all(Job::is_given_up));
    }

    #[test]
    fn between_runs_nothing_is_ended_and_nobody_is_run_for() {
        let (active, asked) = active();
        let (gone, answer) = job();
        drop(answer);
        assert_eq!(active.begin(&mut [gone], Instant::now()), Ok(false));
        let (waiting, mut answer) = job();
        let mut jobs = [waiting];
        assert_eq!(active.begin(&mut jobs, Instant::now()), Ok(true));
        assert!(!active.end(&mut jobs));
        assert_eq!(active.interrupt_if_given_up(), None);
        assert_eq!(active.lingering(), None);
        let [job] = jobs;
        job.refuse(Refusal::new(Reason::Inference, "told"));
        assert_eq!(answer.try_recv().unwrap().unwrap_err().message, "told");
        assert_eq!(asked.load(Relaxed), 0);
    }

    #[test]
    fn who_is_stopped_begins_no_more() {
        let (active, asked) = active();
        active.begin(&mut [], Instant::now()).unwrap();
        assert_eq!(
            active.interrupt_if_given_up(),
            None,
            "a warm-up has nobody who could give up"
        );
        let why = Refusal::new(Reason::Draining, "over");
        assert!(active.stop(why.clone()).is_some());
        assert_eq!(asked.load(Relaxed), 1);
        assert!(active.end(&mut []));
        assert_eq!(active.begin(&mut [], Instant::now()), Err(why));
        assert_eq!(active.stop(Refusal::new(Reason::Draining, "again")), None);
    }
}
