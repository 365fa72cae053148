//! Session at work: takes batches from its model's queue, runs them, and answers.
//!
//! In: batches of jobs. Out: each job's part of the outputs. A batch that fails is run again request by request, so
//! that one bad request fails alone; a panic fails its batch and not the process. A run without waiting clients is
//! interrupted.

use super::padding::filler;
use super::pinned::PinnedRun;
use super::{Fault, RunError};
use crate::batch::BatchQueue;
use crate::batch::clock::SessionClock;
use crate::batch::job::{Answer, Job, JobOutput};
use crate::batch::rule::SessionSlot;
use crate::batch::runs::ActiveRun;
use crate::inference::tensors::{self, Buffer};
use crate::request::{Admission, Part, Reason, Refusal, rows_of};
use crate::telemetry::model_stats::RunStats;
use anyhow::Context as _;
use ort::session::{RunOptions, Session, SessionInputValue};
use prometheus::{Histogram, IntCounter};
use std::iter::repeat_n;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::model::Signature;
use tierlab_protocol::infer::{Data, Tensor};
use tierlab_protocol::tensor::{DataType, TensorSpec};
use tokio::sync::{mpsc, oneshot};

/// Session with the buffers of its inputs.
pub(crate) struct Engine {
    pub(super) session: Session,
    pub(super) signature: Signature,
    pub(super) buffers: Vec<Box<dyn Buffer>>,
    /// Binding of inputs and outputs, on a GPU.
    pub(super) pinned: Option<PinnedRun>,
    /// Rows to pad batches to, if a change of their size is slow.
    pub(super) padded_rows: Option<usize>,
    /// Handle that interrupts a run.
    pub(super) control: RunControl,
    /// Counter of output bytes, once the session serves.
    pub(super) admission: Option<Arc<Admission>>,
}

/// Options of a session's runs, and its current run. ONNX Runtime checks the options' flag between two operators, also
/// inside the bodies of loops.
#[derive(Clone)]
pub(crate) struct RunControl {
    options: Arc<RunOptions>,
    pub(super) active: Arc<ActiveRun>,
}

impl RunControl {
    /// Creates the control of the session with this number in its model.
    ///
    /// # Errors
    /// Returns ONNX Runtime's error.
    pub(crate) fn new(session: u32) -> anyhow::Result<Self> {
        let options = Arc::new(RunOptions::new()?);
        let flag = Arc::clone(&options);
        let interrupt = move |end: bool| {
            let set = if end { flag.terminate() } else { flag.unterminate() };
            if let Err(error) = set {
                tracing::error!(%error, end, "cannot set the flag that interrupts a session's runs");
            }
        };
        let active = Arc::new(ActiveRun::new(session, interrupt));
        Ok(Self { options, active })
    }
}

/// Answers of a run, in the order of its jobs.
pub(super) struct Answers {
    pub(super) outputs: Vec<Vec<Tensor>>,
    started: Instant,
    ended: Instant,
}

impl Engine {
    /// Serves batches until the queue is closed and empty.
    pub(crate) fn serve(mut self, work: &Assignment) {
        let (queue, clock, group) = (&work.queue, &work.clock, work.group);
        self.admission = Some(Arc::clone(&work.admission));
        let mut last_run = Duration::ZERO;
        let mut slot = SessionSlot { group, running: false };
        queue.add_session(&slot, Arc::clone(&self.control.active));
        while let Some(jobs) = queue.take(&mut slot, clock, last_run) {
            let began = Instant::now();
            self.answer(jobs, work);
            last_run = began.elapsed();
            queue.record_run(last_run);
        }
        clock.settle();
    }

    fn answer(&mut self, mut jobs: Vec<Job>, work: &Assignment) {
        let rows: usize = jobs.iter().map(|job| job.rows).sum();
        let began = Instant::now();
        match self.control.active.begin(&mut jobs, began) {
            Ok(true) => {}
            Ok(false) => return,
            Err(refusal) => return refuse(jobs, &refusal),
        }
        work.batch_rows.observe(rows as f64);
        let run = match &jobs[..] {
            // ONNX Runtime's log lines during the run are about this request.
            [alone] => alone.scope.run(|| self.run(&jobs)),
            _ => self.run(&jobs),
        };
        let interrupted = self.control.active.end(&mut jobs);
        if interrupted {
            work.interrupted.inc();
        }
        match run {
            Ok(answers) => {
                let Answers { started, ended, .. } = answers;
                work.runs
                    .count(rows, [started - began, ended - started, ended.elapsed()]);
                let addressed = |(job, outputs): (Job, Vec<Tensor>)| {
                    let done = JobOutput {
                        outputs,
                        run_started: started,
                        run_ended: ended,
                        batch_rows: rows,
                    };
                    Some((job.reply?, Ok(done)))
                };
                let answers = jobs.into_iter().zip(answers.outputs).filter_map(addressed);
                work.delivery.send(answers.collect());
            }
            Err(_) if interrupted => {
                let seconds = began.elapsed().as_secs_f64();
                if let Some(job) = jobs.first() {
                    job.scope.run(|| tracing::warn!(rows, seconds, "run interrupted"));
                }
                // Clients that still wait are told why the server interrupted the run.
                let refusal = self.control.active.stopped();
                let refusal = refusal.unwrap_or_else(|| Refusal::new(Reason::Inference, "the run was interrupted"));
                refuse(jobs, &refusal);
            }
            Err(_) if jobs.len() > 1 => {
                for job in jobs {
                    self.answer(vec![job], work);
                }
            }
            Err(error) => {
                for job in jobs {
                    job.scope.run(|| tracing::warn!(error = %error.message, "run failed"));
                    job.refuse(error.refusal(&work.model));
                }
            }
        }
    }

    /// Runs jobs as one batch.
    fn run(&mut self, jobs: &[Job]) -> Result<Answers, RunError> {
        let run = AssertUnwindSafe(|| {
            let rows: Vec<usize> = jobs.iter().map(|job| job.rows).collect();
            let parts: Vec<&[Part]> = jobs.iter().map(|job| job.parts.as_slice()).collect();
            let answers = self.run_parts(&parts, &rows);
            self.buffers.iter_mut().for_each(|buffer| buffer.shrink());
            answers
        });
        catch_unwind(run).unwrap_or_else(|panic| {
            let what = panic.downcast_ref::<&str>().copied().unwrap_or("no message");
            tracing::error!(what, "session panicked; its batch is refused and the session continues");
            Err(RunError::new(Fault::Run, format!("the session panicked: {what}")))
        })
    }

    /// Runs requests as one batch, padded if that is faster.
    pub(super) fn run_parts(&mut self, requests: &[&[Part]], rows: &[usize]) -> Result<Answers, RunError> {
        let total: usize = rows.iter().sum();
        let missing = self.padded_rows.map_or(0, |padded| padded.saturating_sub(total));
        if missing == 0 {
            return self.run_exactly(requests, rows);
        }
        let filler = filler(&self.signature, requests[0], rows[0]);
        let padded: Vec<&[Part]> = requests.iter().copied().chain(repeat_n(&filler[..], missing)).collect();
        let padded_rows: Vec<usize> = rows.iter().copied().chain(repeat_n(1, missing)).collect();
        let mut answers = self.run_exactly(&padded, &padded_rows)?;
        answers.outputs.truncate(requests.len());
        Ok(answers)
    }

    fn run_exactly(&mut self, requests: &[&[Part]], rows: &[usize]) -> Result<Answers, RunError> {
        let total: usize = rows.iter().sum();
        let signature = &self.signature;
        let shape_of = |i: usize| {
            let mut shape = requests[0][i].shape.clone();
            if signature.batched {
                shape[0] = i64::try_from(total).unwrap_or(i64::MAX);
            }
            shape
        };
        let started;
        let values = if let Some(pinned) = &mut self.pinned {
            for (i, spec) in signature.inputs.iter().enumerate() {
                let parts = requests.iter().map(|request| &request[i]);
                pinned.bind(spec, shape_of(i), parts)?;
            }
            started = Instant::now();
            pinned.run(&mut self.session, &self.control.options)?
        } else {
            fill(&mut self.buffers, requests)?;
            let mut values: Vec<SessionInputValue<'_>> = Vec::with_capacity(self.buffers.len());
            for (i, buffer) in self.buffers.iter().enumerate() {
                values.push(buffer.value(shape_of(i))?);
            }
            started = Instant::now();
            self.session
                .run_with_options(values.as_slice(), &self.control.options)?
        };
        let ended = Instant::now();
        let bytes = (0..signature.outputs.len()).map(|i| tensors::output_bytes(&values[i]));
        let bytes = bytes.fold(0, usize::saturating_add);
        let job_bytes = match requests {
            [alone] => bytes_of(alone, signature),
            _ => 0,
        };
        let admission = self.admission.as_ref();
        let mut held = admission.map_or(Ok(None), |admission| admission.hold_outputs(bytes, job_bytes))?;
        let empty = |_: &&[Part]| Vec::with_capacity(signature.outputs.len());
        let mut outputs: Vec<Vec<Tensor>> = requests.iter().map(empty).collect();
        for (i, spec) in signature.outputs.iter().enumerate() {
            let (shape, data) = tensors::extract(&values[i])?;
            // The length of texts is only known now.
            let mut held_text = match admission {
                Some(admission) if spec.dtype == DataType::Bytes => admission.hold_outputs(data.len(), job_bytes)?,
                _ => None,
            };
            let data = Data::from(match held_text.as_mut().or(held.as_mut()) {
                Some(held) => held.split(data.len()).hold(data),
                None => data,
            });
            split_output(spec, signature.batched, (&shape, &data), rows, &mut outputs)?;
        }
        Ok(Answers {
            outputs,
            started,
            ended,
        })
    }
}

/// Copies the rows of all requests into the buffers of the inputs.
fn fill(buffers: &mut [Box<dyn Buffer>], requests: &[&[Part]]) -> Result<(), RunError> {
    for (i, buffer) in buffers.iter_mut().enumerate() {
        buffer.clear();
        for request in requests {
            let data = request[i].data.host();
            let data = data.context("rows are in device memory, but the session has none")?;
            if !buffer.reserve(data.len()) {
                let message = format!("no memory for the run's copy of an input of {} bytes", data.len());
                return Err(RunError::new(Fault::NoMemory(Reason::Full), message));
            }
            buffer.push(data).map_err(RunError::misfit)?;
        }
    }
    Ok(())
}

/// Gives each request its rows of an output, or the whole of one that has no batch.
fn split_output(
    spec: &TensorSpec,
    is_batched: bool,
    (shape, data): (&[i64], &Data),
    rows: &[usize],
    outputs: &mut [Vec<Tensor>],
) -> Result<(), RunError> {
    let total: usize = rows.iter().sum();
    if is_batched && shape.first().and_then(|&rows| usize::try_from(rows).ok()) != Some(total) {
        let message = format!(
            "output `{}` has shape {shape:?} for a batch of {total} rows: its first dimension is not the batch; \
             set `max_batch_size` to 0 in the model's config",
            spec.name
        );
        return Err(RunError::new(Fault::Rows, message));
    }
    let mut from = 0;
    for (&rows, outputs) in rows.iter().zip(outputs) {
        let (mut shape, mut share) = (shape.to_vec(), data.clone());
        if is_batched {
            shape[0] = i64::try_from(rows).unwrap_or(i64::MAX);
            share = rows_of(data, spec.dtype, total, from, from + rows);
        }
        from += rows;
        outputs.push(Tensor {
            name: spec.name.clone(),
            dtype: spec.dtype,
            shape,
            data: share,
        });
    }
    Ok(())
}

/// Minimum bytes that a request holds during its run: its tensors, and the run's copy of them.
fn bytes_of(parts: &[Part], signature: &Signature) -> usize {
    let bytes = parts.iter().zip(&signature.inputs).map(|(part, spec)| {
        let len = part.data.len();
        len.saturating_add(tensors::run_bytes(spec.dtype, &part.shape, len))
    });
    bytes.fold(0, usize::saturating_add)
}

fn refuse(jobs: Vec<Job>, refusal: &Refusal) {
    for job in jobs {
        job.refuse(refusal.clone());
    }
}

/// Parameters of a session's thread.
pub(crate) struct Assignment {
    /// Name of the model, for messages.
    pub(crate) model: String,
    pub(crate) queue: Arc<BatchQueue>,
    /// Index of its group in the queue.
    pub(crate) group: usize,
    pub(crate) clock: Arc<SessionClock>,
    pub(crate) batch_rows: Histogram,
    /// Counter of interrupted runs.
    pub(crate) interrupted: IntCounter,
    pub(crate) runs: Arc<RunStats>,
    pub(crate) delivery: Delivery,
    /// Counter of output bytes.
    pub(crate) admission: Arc<Admission>,
}

/// Answer with the channel to its request. If the client has gone away, the receiver is dropped.
type AddressedAnswer = (oneshot::Sender<Answer>, Answer);

/// Delivers a batch's answers from a session's thread. Sending them one by one would wake an async thread for each
/// answer, which on a busy core displaces the session's thread every time. Instead, one message wakes one task, which
/// wakes the requests without system calls. At most as many answers are in transit as requests are admitted.
#[derive(Debug, Clone)]
pub(crate) struct Delivery(mpsc::UnboundedSender<Vec<AddressedAnswer>>);

impl Delivery {
    /// Starts the delivering task on the caller's runtime; it ends with the last sender.
    pub(crate) fn start() -> Self {
        let (send, mut batches) = mpsc::unbounded_channel::<Vec<AddressedAnswer>>();
        tokio::spawn(async move {
            while let Some(answers) = batches.recv().await {
                for (to, answer) in answers {
                    let _ = to.send(answer);
                }
            }
        });
        Self(send)
    }

    /// Sends the answers of a batch.
    fn send(&self, mut answers: Vec<AddressedAnswer>) {
        if answers.len() > 1 {
            // Without its task the runtime has ended, and with it every request.
            let _ = self.0.send(answers);
        } else if let Some((to, answer)) = answers.pop() {
            let _ = to.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Reason, Refusal};

    #[tokio::test]
    async fn every_answer_reaches_its_request_and_a_lost_one_stops_nobody() {
        let delivery = Delivery::start();
        let mut waiting = Vec::new();
        for batch in [1, 3, 2] {
            let mut addressed_answers = Vec::new();
            for _ in 0..batch {
                let (to, receiver) = oneshot::channel();
                let answer = Err(Refusal::new(Reason::Inference, waiting.len().to_string()));
                addressed_answers.push((to, answer));
                waiting.push(Some(receiver));
            }
            waiting.last_mut().unwrap().take_if(|_| batch == 3);
            delivery.send(addressed_answers);
        }
        drop(delivery);
        for (i, receiver) in waiting.into_iter().enumerate() {
            let Some(receiver) = receiver else { continue };
            assert_eq!(receiver.await.unwrap().unwrap_err().message, i.to_string());
        }
    }
}
