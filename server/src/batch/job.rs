//! A request in the queue, and what comes back for it.

use crate::request::parts::Part;
use crate::request::refusal::Refusal;
use crate::telemetry::trace::context::RequestScope;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tierlab_protocol::infer::Tensor;
use tokio::sync::oneshot;

/// Result of a session.
#[derive(Debug)]
pub(crate) struct JobOutput {
    /// Every output of the model, in the graph's order.
    pub(crate) outputs: Vec<Tensor>,
    /// When the batch was closed and laid out, and ONNX Runtime began.
    pub(crate) run_started: Instant,
    /// When ONNX Runtime was done.
    pub(crate) run_ended: Instant,
    /// Rows of the whole batch.
    pub(crate) batch_rows: usize,
}

/// Answer to a request.
pub(crate) type Answer = Result<JobOutput, Refusal>;

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Job {
    /// One part per input of the graph, in its order.
    pub(crate) parts: Vec<Part>,
    /// Rows of the request; 1 where the model has no batch dimension.
    pub(crate) rows: usize,
    pub(crate) enqueued: Instant,
    /// Its order in the queue: when it was queued, plus the delay of its priority.
    pub(crate) rank: Instant,
    pub(crate) deadline: Instant,
    pub(crate) scope: RequestScope,
    /// When a session began to run it; shared with its request, which says so if it gives up.
    pub(crate) run_began: Arc<OnceLock<Instant>>,
    /// None while it runs: then the session's active run has it.
    pub(crate) reply: Option<oneshot::Sender<Answer>>,
}

impl Job {
    /// True if no client waits for the answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Refuses it. Where the client has gone away, nothing is sent.
    pub(crate) fn refuse(self, refusal: Refusal) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(refusal));
        }
    }

    /// True if both can run in one batch: their shapes are equal behind the batch dimension.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len()
            && self
                .parts
                .iter()
                .zip(&other.parts)
                .all(|(a, b)| a.shape.get(1..) == b.shape.get(1..))
    }
}
