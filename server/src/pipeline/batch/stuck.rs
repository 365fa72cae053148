//! Runs that nobody waits for: they are interrupted, and a session that does not come back from one is given up for the
//! time being, so that requests are refused at once where they would only wait behind it.

use super::active::{ActiveRun, Lingering};
use super::{BatchQueue, Job};
use crate::pipeline::refusal::{Reason, Refusal};
use crate::telemetry::trace::Link;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long an interrupted run may go on before its session counts as stuck: most graphs come to their next operator
/// within milliseconds.
const GRACE: Duration = Duration::from_secs(1);

impl BatchQueue {
    /// A request has given up: interrupts the runs for which nobody waits any more.
    pub(crate) fn look_for_given_up(self: &Arc<Self>) {
        for run in self.runs().iter() {
            let Some(lingering) = run.interrupt_if_given_up() else {
                continue;
            };
            // Without a runtime the process is ending.
            if let Ok(runtime) = Handle::try_current() {
                let watch = watch(Arc::downgrade(self), Arc::clone(run), lingering.number);
                runtime.spawn(Link::here().around(watch));
            }
        }
    }

    /// Ends every run and refuses what is queued: for a model whose time is over. Gives the runs that were under way.
    pub(crate) fn stop_runs(&self, why: &Refusal) -> Vec<Lingering> {
        self.close();
        self.refuse_queued(why);
        self.runs().iter().filter_map(|run| run.stop(why.clone())).collect()
    }

    /// Refuses a request where every session is stuck.
    pub(super) fn check_stuck(&self) -> Result<(), Refusal> {
        if self.stuck.load(Relaxed) == 0 {
            return Ok(());
        }
        let runs = self.runs();
        let lingering: Vec<Lingering> = runs.iter().filter_map(|run| run.lingering()).collect();
        if lingering.len() < runs.len() {
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

    fn refuse_queued(&self, why: &Refusal) {
        let jobs: Vec<Job> = {
            let mut state = self.lock();
            state.rows = 0;
            self.pace.set_queued(0);
            self.gauges.depth.set(0);
            if !state.jobs.is_empty() {
                self.inflow.set_queued(false, Instant::now());
            }
            state.jobs.drain(..).collect()
        };
        for job in jobs {
            job.refuse(why.clone());
        }
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Arc<ActiveRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_stuck(&self, stuck: bool) {
        if stuck {
            self.stuck.fetch_add(1, Relaxed);
            self.gauges.stuck.inc();
        } else {
            self.stuck.fetch_sub(1, Relaxed);
            self.gauges.stuck.dec();
        }
    }
}

/// Sees an interrupted run to its end.
async fn watch(queue: Weak<BatchQueue>, run: Arc<ActiveRun>, number: u64) {
    if tokio::time::timeout(GRACE, run.over(number)).await.is_ok() {
        return;
    }
    let (Some(queue), Some(lingering)) = (queue.upgrade(), run.lingering().filter(|run| run.number == number)) else {
        return;
    };
    let what = lingering.to_string();
    tracing::error!(
        run = what,
        "a run was ended and does not end: its session is stuck until it does"
    );
    queue.set_stuck(true);
    if let Err(refusal) = queue.check_stuck() {
        queue.refuse_queued(&refusal);
    }
    run.over(number).await;
    queue.set_stuck(false);
    tracing::warn!(run = what, "the run has ended: its session goes on");
}
