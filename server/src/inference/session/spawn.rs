//! The thread of a session: it builds the session, reports, waits for its queue, and serves.
//!
//! One named thread owns one ONNX Runtime session, so there is no lock around it.

use super::engine::{Assignment, Engine};
use super::interrupt::RunControl;
use super::open::SessionReport;
use crate::batch::active::ActiveRun;
use crate::request::refusal::{Reason, Refusal};
use crate::telemetry::counters::AbandonedSession;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Starts the named thread of one session: it builds the session, reports, waits for its queue, and serves. `session` is
/// its number among those of the model.
///
/// # Errors
/// The operating system's, when it refuses the thread; ONNX Runtime's.
pub(crate) fn spawn(
    name: &str,
    session: u32,
    open: impl FnOnce(RunControl, oneshot::Sender<()>) -> Result<(Engine, SessionReport), String> + Send + 'static,
) -> Result<SpawnedSession, String> {
    let control = RunControl::new(session)?;
    let opening = Arc::<OnceLock<AbandonedSession>>::default();
    let stop = StopUnlessServing(Some((Arc::clone(&control.active), Arc::clone(&opening))));
    let (report, opened) = oneshot::channel();
    let (built_by_now, built) = oneshot::channel();
    let (assign, assigned) = std::sync::mpsc::sync_channel::<Assignment>(1);
    let thread = std::thread::Builder::new().name(format!("{name}-{session}"));
    let thread = thread.spawn(move || {
        let opened = catch_unwind(AssertUnwindSafe(|| open(control, built_by_now)))
            .unwrap_or_else(|_| Err("loading it panicked".into()));
        drop(opening);
        let engine = match opened {
            Ok((engine, ready)) => {
                let _ = report.send(Ok(ready));
                engine
            }
            Err(error) => {
                let _ = report.send(Err(error));
                return;
            }
        };
        // Dropped without an assignment when the model was refused after all.
        if let Ok(work) = assigned.recv() {
            engine.serve(&work);
        }
    });
    Ok(SpawnedSession {
        number: session,
        built,
        opened,
        assign,
        thread: thread.map_err(|e| format!("no thread for a session: {e}"))?,
        stop,
    })
}

/// A thread that builds its session. Dropped before it serves, it ends at its next operator.
pub(crate) struct SpawnedSession {
    /// Among those of its model; there may be gaps where one was opened to be measured only.
    pub(crate) number: u32,
    /// Tells that the session is built; its sender is dropped where it never is.
    pub(crate) built: oneshot::Receiver<()>,
    /// The session's report, or why there is none.
    pub(crate) opened: oneshot::Receiver<Result<SessionReport, String>>,
    assign: std::sync::mpsc::SyncSender<Assignment>,
    thread: JoinHandle<()>,
    stop: StopUnlessServing,
}

impl SpawnedSession {
    /// Sends the thread to its queue. It has reported: this neither blocks nor fails.
    pub(crate) fn serve(mut self, assignment: Assignment) -> JoinHandle<()> {
        self.stop.0 = None;
        let _ = self.assign.send(assignment);
        self.thread
    }
}

/// Ends the warm-up of a session that nobody waits for, and counts the session as abandoned until its thread, which shares
/// the second value, has opened it.
struct StopUnlessServing(Option<(Arc<ActiveRun>, Arc<OnceLock<AbandonedSession>>)>);

impl Drop for StopUnlessServing {
    fn drop(&mut self) {
        if let Some((active, opening)) = self.0.take() {
            opening.get_or_init(AbandonedSession::new);
            active.stop(Refusal::new(Reason::NotReady, "the load was given up"));
        }
    }
}
