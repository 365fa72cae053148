//! The runs of a queue's sessions. Those that nobody waits for are interrupted, and a session that does not come back from
//! one is given up for the time being, so that requests are refused at once where they would only wait behind it.

use super::active::{ActiveRun, LingeringRun};
use crate::request::refusal::{Reason, Refusal};
use crate::telemetry::trace::context::RequestScope;
use parking_lot::Mutex;
use prometheus::IntGauge;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// Time after an interrupt until a run's session counts as stuck: most graphs reach their next operator within milliseconds.
const GRACE: Duration = Duration::from_secs(1);

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

    /// Interrupts the runs for which nobody waits any more. `all_stuck` is called on what is left of the queue where a run
    /// does not end and every session is stuck.
    pub(super) fn interrupt_given_up<Q: Send + Sync + 'static>(
        self: &Arc<Self>,
        queue: &Weak<Q>,
        all_stuck: fn(&Q, &Refusal),
    ) {
        for run in self.active.lock().iter() {
            let Some(lingering) = run.interrupt_if_given_up() else {
                continue;
            };
            // Without a runtime the process is ending.
            if let Ok(runtime) = Handle::try_current() {
                let queue = Weak::clone(queue);
                let refuse = move |refusal: &Refusal| {
                    if let Some(queue) = queue.upgrade() {
                        all_stuck(&queue, refusal);
                    }
                };
                let watch = watch(Arc::downgrade(self), Arc::clone(run), lingering.number, refuse);
                runtime.spawn(RequestScope::current().run_async(watch));
            }
        }
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
        let what = lingering.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Err(Refusal::new(
            Reason::NotReady,
            format!(
                "every session of the model is stuck in a run that was ended and does not end ({what}): one operator of the \
                 graph takes all this time; load the model again or restart the server"
            ),
        ))
    }

    fn set_stuck(&self, stuck: bool) {
        if stuck {
            self.stuck.fetch_add(1, Relaxed);
            self.stuck_gauge.inc();
        } else {
            self.stuck.fetch_sub(1, Relaxed);
            self.stuck_gauge.dec();
        }
    }
}

/// Sees an interrupted run to its end.
async fn watch(runs: Weak<Runs>, run: Arc<ActiveRun>, number: u64, all_stuck: impl FnOnce(&Refusal)) {
    if tokio::time::timeout(GRACE, run.over(number)).await.is_ok() {
        return;
    }
    let (Some(runs), Some(lingering)) = (runs.upgrade(), run.lingering().filter(|run| run.number == number)) else {
        return;
    };
    let what = lingering.to_string();
    tracing::error!(
        run = what,
        "a run was ended and does not end: its session is stuck until it does"
    );
    runs.set_stuck(true);
    if let Err(refusal) = runs.check_stuck() {
        all_stuck(&refusal);
    }
    run.over(number).await;
    runs.set_stuck(false);
    tracing::warn!(run = what, "the run has ended: its session goes on");
}
