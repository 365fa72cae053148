//! Identity of a request: its id in the log, its front in the metrics, its span over OTLP.

pub(crate) mod id;
pub(crate) mod observe;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "no_otlp.rs"]
pub(crate) mod otlp;
#[cfg(feature = "otlp")]
mod spans;

use crate::request::Reason;
use crate::telemetry::Front;
use id::RequestId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tierlab_protocol::timing::StageTimings;

tokio::task_local! {
    static CURRENT: Arc<RequestContext>;
}

/// Context of a request in progress.
#[derive(Debug)]
pub(crate) struct RequestContext {
    id: RequestId,
    front: Front,
    /// True if a span is sent, so that the outcome of the request is recorded.
    traced: bool,
    answered: Mutex<Option<RequestOutcome>>,
}

/// Outcome of an infer request, for its span.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone)]
pub(crate) struct RequestOutcome {
    pub(crate) model: String,
    pub(crate) version: String,
    /// Rows of the request, once decoded.
    pub(crate) rows: Option<usize>,
    /// Time at which the last byte of the body arrived: the stages start here.
    pub(crate) began: Instant,
    pub(crate) timings: StageTimings,
    pub(crate) refusal: Option<Reason>,
}

/// Handle of a request's context, for work outside its task.
#[derive(Debug, Clone)]
pub(crate) struct RequestScope(Option<Arc<RequestContext>>);

impl RequestScope {
    /// Handle of the calling task's request; empty outside of a request.
    pub(crate) fn current() -> Self {
        Self(CURRENT.try_with(Arc::clone).ok())
    }

    /// Continues the request in a future that outlives its handler: a stream of replies.
    pub(crate) async fn run_async<F: Future>(self, work: F) -> F::Output {
        match self.0 {
            Some(context) => CURRENT.scope(context, work).await,
            None => work.await,
        }
    }

    /// Runs `work` as part of the request: its log lines carry the request's id.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(context) => CURRENT.sync_scope(Arc::clone(context), work),
            None => work(),
        }
    }
}

/// Calls `look` with the id of the current request, if any.
pub(crate) fn with_current_id<T>(look: impl FnOnce(&RequestId) -> T) -> Option<T> {
    CURRENT.try_with(|context| look(&context.id)).ok()
}

/// Front of the current request.
pub(crate) fn front() -> Front {
    CURRENT.try_with(|context| context.front).unwrap_or(Front::Http)
}

/// Records the outcome of the current request; `answered` is only called if a span is sent.
pub(crate) fn note_outcome(answered: impl FnOnce() -> RequestOutcome) {
    let _ = CURRENT.try_with(|context| {
        if context.traced {
            *context.answered.lock() = Some(answered());
        }
    });
}

/// Runs `work` with this request as the current one.
async fn scope<F: Future>(context: &Arc<RequestContext>, work: F) -> F::Output {
    CURRENT.scope(Arc::clone(context), work).await
}
