//! The end of a server: admitted requests are finished, within a limit; what is left then is ended, and named.
//!
//! In: the task of the fronts, which was told to end, and the models. Out: nothing once all is done, or what was still under
//! way. A run that ONNX Runtime does not end is not waited for.

use crate::error::ServerError;
use crate::front::state::ServerState;
use crate::models::serving::model::Model;
use crate::request::admission::Tally;
use crate::request::refusal::{Reason, Refusal};
use futures::future::join_all;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

/// Beyond the limit: for runs that were ended to end, and their refusals to be sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// Waits for the connections, then for the sessions.
///
/// # Errors
/// Requests or runs still in progress at the end of the limit.
pub(crate) async fn finish(
    mut front: JoinHandle<()>,
    state: &Arc<ServerState>,
    limit: Duration,
) -> Result<(), ServerError> {
    let until = Instant::now() + limit;
    let last = until + FAREWELL;
    let mut left = Vec::new();
    let models: Vec<Arc<Model>> = state.manager.snapshot().models().cloned().collect();
    let in_time = timeout_at(until.into(), &mut front).await.is_ok();
    if !in_time {
        left.extend(stop_runs(&models));
        if timeout_at(last.into(), front).await.is_err() {
            left.push("connections whose clients have not sent their request or not taken their reply".to_owned());
        }
    }
    // Queues are closed, and the threads end after their last run.
    models.iter().for_each(|model| model.close());
    let mut threads = join_all(models.iter().map(|model| model.take_threads().ended()));
    let patience = if in_time { until } else { last };
    if timeout_at(patience.into(), &mut threads).await.is_err() && in_time {
        left.extend(stop_runs(&models));
        let _ = timeout_at(last.into(), threads).await;
    }
    let Tally { admitted, settled } = state.pipeline.admission.tally();
    if admitted > settled {
        left.push(format!("{} admitted requests", admitted - settled));
    }
    if left.is_empty() {
        tracing::info!(admitted, settled, "drained");
        return Ok(());
    }
    let left = left.join("; ");
    tracing::error!(admitted, settled, left, "not drained");
    Err(ServerError::Drain { limit, left })
}

/// Ends what runs; gives it in words.
fn stop_runs(models: &[Arc<Model>]) -> Vec<String> {
    let why = Refusal::new(Reason::Draining, "the server is shutting down");
    let stop = |model: &Arc<Model>| {
        let (name, version) = (model.name.clone(), model.version.clone());
        let runs = model.queue().stop_runs(&why);
        runs.into_iter()
            .map(move |run| format!("a run of model `{name}`, version {version}: {run}"))
    };
    models.iter().flat_map(stop).collect()
}

/// Ends the process at once with an exit code, without destructors of libraries.
///
/// A session that is being built, or a run inside one operator, cannot be interrupted. `exit` would run the destructors of
/// ONNX Runtime's libraries under it, which ends in a crash behind a log that says `drained`. Nothing is left to destroy
/// when the server has drained: files are in their places, spans are sent, the log is not buffered.
#[allow(unsafe_code)]
pub(crate) fn leave(code: i32) -> ! {
    // Nobody may be reading.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` only ends the process; it takes no pointers and runs no code of ours.
    unsafe { libc::_exit(code) }
}
