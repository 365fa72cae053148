//! Request's path through the queue: cut if it is larger than a run, queued by its priority, joined again.
//!
//! In: the parts of a request, and its priority. Out: the sessions' answer. Dropping the future takes the request out
//! of the queue, and interrupts a run that no other client waits for.

use crate::batch::job::{Answer, Job, JobOutput};
use crate::batch::{BatchQueue, job};
use crate::models::serving::Model;
use crate::request::{Part, Reason, Refusal};
use crate::telemetry::trace::RequestScope;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tierlab_formats::model::BatchingConfig;
use tierlab_protocol::infer::{InferRequest, Tensor};
use tokio::sync::oneshot;

/// Terms of a request that is ready to run.
pub(crate) struct RunTerms {
    pub(crate) deadline: Instant,
    /// The request's `priority`; 0 for the model's default.
    pub(crate) priority: u64,
    /// Time at which a session started the run of the request, or of its first piece.
    pub(crate) run_began: Arc<OnceLock<Instant>>,
}

/// Position in the queue, and then in a run. Given up if dropped before the answer.
struct QueuedRequest<'a> {
    answer: oneshot::Receiver<Answer>,
    answered: bool,
    queue: &'a Arc<BatchQueue>,
}

impl QueuedRequest<'_> {
    async fn wait(mut self) -> Answer {
        let done = (&mut self.answer).await;
        self.answered = true;
        done.unwrap_or_else(|_| Err(Refusal::new(Reason::Inference, "the session's thread ended")))
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.answer.close();
            self.queue.interrupt_given_up();
        }
    }
}

impl Model {
    /// Time limit set by a request, if the model's config allows it.
    pub(crate) fn timeout_of(&self, request: &InferRequest) -> Option<Duration> {
        let is_allowed = self.config.batching.allow_timeout_override;
        // Triton's clients send 0 for no timeout.
        let timeout = request.timeout_us.filter(|&us| us > 0 && is_allowed);
        timeout.map(Duration::from_micros)
    }

    /// Sends a request, with one part per input of the graph, through the queue and a session. If the model's config
    /// allows it, a request larger than a run is split. `rows` is ignored if the model is not batched.
    pub(crate) async fn infer(&self, parts: Vec<Part>, rows: usize, terms: &RunTerms) -> Result<JobOutput, Refusal> {
        let mut job_output = self.run_with_limit(parts, rows, terms).await?;
        for (output, reshape) in job_output.outputs.iter_mut().zip(&self.reshapes.outputs) {
            let Some(reshape) = reshape else { continue };
            let Tensor { name, shape, .. } = output;
            *shape = reshape.apply(shape).ok_or_else(|| {
                let message = format!(
                    "output `{name}` has shape {shape:?}, which does not match `reshape` in the model's config"
                );
                Refusal::new(Reason::Inference, message)
            })?;
        }
        Ok(job_output)
    }

    /// Refuses a request whose run has not begun when the model's queue time limit is over. Sessions that take from the
    /// queue refuse late requests as well, and more exactly; but all of them may be busy for longer.
    async fn run_with_limit(&self, parts: Vec<Part>, rows: usize, terms: &RunTerms) -> Result<JobOutput, Refusal> {
        let mut running = std::pin::pin!(self.run(parts, rows, terms));
        if let Some(limit) = self.queue_timeout() {
            match tokio::time::timeout(limit, &mut running).await {
                Ok(output) => return output,
                Err(_) if terms.run_began.get().is_none() => {
                    let text = format!("no session was free within {limit:?}, the model's `batching.queue_timeout_us`");
                    return Err(Refusal::new(Reason::Deadline, text));
                }
                Err(_) => {}
            }
        }
        running.await
    }

    fn queue_timeout(&self) -> Option<Duration> {
        Some(Duration::from_micros(self.config.batching.queue_timeout_us)).filter(|limit| !limit.is_zero())
    }

    async fn run(&self, parts: Vec<Part>, rows: usize, terms: &RunTerms) -> Result<JobOutput, Refusal> {
        let max_rows = self.config.max_batch_size as usize;
        let rows = if max_rows == 0 { 1 } else { rows };
        let enqueued = Instant::now();
        if rows <= max_rows.max(1) {
            let (job, answer) = self.job(parts, rows, terms, enqueued);
            let wake_ups = self.queue.push([job])?;
            if !wake_ups.is_empty() {
                // Requests that this thread has already read are queued first, and share the run: on one core, waking
                // the session now would have it run for this request alone. A separate task, because a connection's
                // task is polled for many reasons, and any would end the wait; an idle thread takes it and calls at
                // once.
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(wake_ups);
                });
            }
            return self.queued(answer).wait().await;
        }
        let pieces = job::cut(&parts, &self.signature.inputs, rows, max_rows).into_iter();
        let pieces = pieces.map(|(parts, rows)| self.job(parts, rows, terms, enqueued));
        let (jobs, answers): (Vec<Job>, Vec<_>) = pieces.unzip();
        drop(self.queue.push(jobs)?);
        let pieces = answers.into_iter().map(|answer| self.queued(answer).wait());
        let pieces = futures::future::try_join_all(pieces).await?;
        job::join(pieces).map_err(|error| Refusal::new(Reason::Inference, error.to_string()))
    }

    fn job(&self, parts: Vec<Part>, rows: usize, terms: &RunTerms, now: Instant) -> (Job, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let deadline = terms.deadline;
        let job = Job {
            parts,
            rows,
            enqueued: now,
            rank: now + priority_delay(&self.config.batching, terms.priority),
            deadline,
            start_by: self.queue_timeout().map_or(deadline, |limit| deadline.min(now + limit)),
            scope: RequestScope::current(),
            run_began: Arc::clone(&terms.run_began),
            reply: Some(reply),
        };
        (job, answer)
    }

    fn queued(&self, answer: oneshot::Receiver<Answer>) -> QueuedRequest<'_> {
        QueuedRequest {
            answer,
            answered: false,
            queue: &self.queue,
        }
    }
}

/// Delay by which a request of the highest level may arrive later and still run before one of this priority. A level
/// that the model lacks is treated as the default, as in Triton.
fn priority_delay(batching: &BatchingConfig, priority: u64) -> Duration {
    let levels = batching.priority_levels;
    let default = match batching.default_priority_level {
        0 => levels.div_ceil(2),
        level => level,
    };
    let level = u32::try_from(priority).ok();
    let level = level.filter(|level| (1..=levels).contains(level));
    Duration::from_micros(batching.priority_step_us) * level.unwrap_or(default).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_do_not_exist_are_the_default() {
        let three = BatchingConfig {
            priority_levels: 3,
            priority_step_us: 10,
            ..BatchingConfig::default()
        };
        let last = BatchingConfig {
            default_priority_level: 3,
            ..three.clone()
        };
        for (config, priority, us) in [
            (&BatchingConfig::default(), 7, 0),
            (&three, 1, 0),
            (&three, 2, 10),
            (&three, 3, 20),
            (&three, 0, 10),
            (&three, 4, 10),
            (&three, u64::MAX, 10),
            (&last, 0, 20),
        ] {
            assert_eq!(
                priority_delay(config, priority),
                Duration::from_micros(us),
                "{config:?} {priority}"
            );
        }
    }
}
