//! Stages of an infer request, in order. No other file names them all.
//!
//! ```text
//! admit -> decode -> cache, tier, join (features) -> batch, infer (model) -> encode
//! ```
//! In: a body and its model. Out: the reply's bytes or a refusal, and in either case the time of each stage. Without room,
//! [`Pipeline::enter`] refuses before the body is read.

use crate::models::serving::Model;
use crate::models::serving::accept::{Accepted, SelectedOutput};
use crate::models::serving::submit::RunTerms;
use crate::request::{Account, AccountBudget, Admission, Part, Reason, Refusal, Stopwatch, Writing, offload_large};
use crate::telemetry::trace::{self, RequestOutcome};
use crate::telemetry::{Metrics, Mode, WaitPoint};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tierlab_protocol::infer::{InferReply, InferRequest, Tensor};
use tierlab_protocol::timing::{Stage, StageTimings};
use tierlab_storage::deadline;

/// Subtracted from the tier's time, at most a tenth of all, so that the tier can still report why it failed.
const TIER_RESERVE: Duration = Duration::from_millis(2);

/// A front's part of an infer request: how it is read, and how its reply is written.
pub(crate) trait Exchange {
    type Reply;
    /// Format of the reply, in addition to the request's settings for each output.
    type ReplyFormat: Copy;

    /// Bytes to decode; at most so many where the request is compressed.
    fn bytes(&self) -> usize;

    /// Remaining time of the request according to the front's own headers; `None` if they set none.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn reply_format(&self) -> Self::ReplyFormat;

    /// Reads the request. Memory is counted on the account before it is used; the rest on the account is what the
    /// request holds from then on.
    fn decode(self, account: &mut Account) -> Result<InferRequest, Refusal>;

    /// Writes a reply; `binary` is true for each output that the client wants as raw bytes. Large replies are written
    /// with [`offload_large`]. `None` if the budget has a refusal.
    fn encode(
        reply: InferReply,
        binary: &[bool],
        reply_format: Self::ReplyFormat,
        budget: &AccountBudget<'_>,
    ) -> Option<Self::Reply>;
}

/// State that every request uses, besides its model.
#[derive(Clone)]
pub(crate) struct Pipeline {
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Pipeline {
    /// Starts a request whose body has not been read, with an account for its bytes. Refuses it if there is no room for
    /// it.
    pub(crate) fn enter<'a>(&'a self, model: &'a Model) -> Result<(RequestGuard<'a>, Account), Refusal> {
        let guard = RequestGuard::begin(&self.metrics, model);
        let room = self.admission.has_room(&model.share);
        match room.and_then(|()| model.queue.check_wait(self.admission.limits.timeout)) {
            Ok(()) => Ok((guard, self.admission.open_account())),
            Err(refusal) => {
                guard.refuse(&refusal);
                Err(refusal)
            }
        }
    }

    /// Serves a request completely; its account then counts the bytes of the reply. Dropping the future before it ends
    /// cancels the request: it is counted, and the batch queue skips its job.
    pub(crate) async fn infer<E: Exchange>(
        &self,
        mut guard: RequestGuard<'_>,
        account: &mut Account,
        incoming: E,
        watch: &mut Stopwatch,
    ) -> Result<E::Reply, Refusal> {
        guard.began = watch.started;
        let reply = self.stages(&mut guard, account, incoming, watch).await;
        guard.settle(&reply, &watch.timings);
        reply
    }

    async fn stages<E: Exchange>(
        &self,
        guard: &mut RequestGuard<'_>,
        account: &mut Account,
        incoming: E,
        watch: &mut Stopwatch,
    ) -> Result<E::Reply, Refusal> {
        let model = guard.model;
        let admitted = self.admission.admit(&model.share);
        watch.mark(Stage::Admit);
        let _admitted = admitted?;

        let (limit, reply_format) = (incoming.timeout(), incoming.reply_format());
        let decoded = decode(model, incoming, account);
        watch.mark(Stage::Decode);
        let decoded = decoded?;
        let accepted = decoded.accepted;
        guard.rows = Some(accepted.rows);
        account.add(accepted.run_bytes(&model.signature.inputs))?;
        account.add(model.join.as_ref().map_or(0, |join| join.bytes(accepted.ids.len())))?;
        let limits = [Some(self.admission.limits.timeout), limit, decoded.timeout];
        let limit = limits.into_iter().flatten().min().unwrap_or_default();
        let deadline = watch.started + limit;

        let terms = RunTerms {
            deadline,
            priority: decoded.priority,
            run_began: Arc::new(OnceLock::new()),
        };
        let work = async {
            guard.wait_point = WaitPoint::Tier;
            let rows = accepted.rows;
            let joining = join_features(model, accepted, watch);
            let parts = deadline::within(deadline - TIER_RESERVE.min(limit / 10), joining).await?;
            guard.wait_point = WaitPoint::Batch;
            let done = model.infer(parts, rows, &terms).await;
            if done.is_err() {
                watch.mark(Stage::Batch);
            }
            let done = done?;
            watch.mark_at(Stage::Batch, done.run_started);
            watch.mark_at(Stage::Infer, done.run_ended);
            watch.timings.batch_rows = u32::try_from(done.batch_rows).unwrap_or(u32::MAX);
            Ok::<_, Refusal>(done)
        };
        let Ok(done) = tokio::time::timeout_at(deadline.into(), work).await else {
            let detail = timed_out_at(model, guard.wait_point, terms.run_began.get(), watch);
            let message = format!("no answer within {} ms: {detail}", limit.as_millis());
            return Err(Refusal::new(Reason::Deadline, message));
        };
        let outputs = done?.outputs;
        // The request's data are freed; the outputs were counted when they were read.
        account.set(0);
        let (reply, flags) = reply_of(model, decoded.id, &decoded.selected, outputs);
        let output_bytes = reply.outputs.iter().map(|output| output.data.len()).sum();
        let budget = account.budget(Some(Writing { deadline, output_bytes }));
        let reply = model.classify(reply, &decoded.selected, &budget);
        let outgoing = reply.and_then(|reply| E::encode(reply, &flags, reply_format, &budget));
        watch.mark(Stage::Encode);
        outgoing.ok_or_else(|| {
            let refusal = budget.into_refusal();
            refusal.unwrap_or_else(|| Refusal::new(Reason::Inference, "the reply could not be written"))
        })
    }
}

/// Marks the stage in which a request was when its time was over, and describes it.
fn timed_out_at(model: &Model, point: WaitPoint, run_began: Option<&Instant>, watch: &mut Stopwatch) -> String {
    let (stage, detail) = match (&model.join, run_began) {
        (_, Some(&began)) => {
            watch.mark_at(Stage::Batch, began);
            (Stage::Infer, "its run was in progress".to_owned())
        }
        (Some(join), None) if point == WaitPoint::Tier => {
            (Stage::Tier, format!("it waited for tier `{}`", join.tier.kind))
        }
        _ => (Stage::Batch, "it waited for a session".to_owned()),
    };
    watch.mark(stage);
    detail
}

/// Request that matches its model.
struct Decoded {
    id: Option<String>,
    /// Outputs to send.
    selected: Vec<SelectedOutput>,
    accepted: Accepted,
    timeout: Option<Duration>,
    priority: u64,
}

fn decode<E: Exchange>(model: &Model, incoming: E, account: &mut Account) -> Result<Decoded, Refusal> {
    offload_large(incoming.bytes(), || {
        let request = incoming.decode(account)?;
        let selected = model.select_outputs(&request)?;
        account.add(model.ids_bytes(&request.inputs))?;
        let timeout = model.timeout_of(&request);
        Ok(Decoded {
            id: request.id,
            selected,
            accepted: model.accept(request.inputs)?,
            timeout,
            priority: request.priority,
        })
    })
}

/// Fills the inputs that the feature table provides.
async fn join_features(model: &Model, accepted: Accepted, watch: &mut Stopwatch) -> Result<Vec<Part>, Refusal> {
    let Accepted { mut parts, ids, .. } = accepted;
    if let Some(join) = model.join.as_ref().filter(|_| !ids.is_empty()) {
        let _in_stage = model.pending.enter();
        for (input, part) in join.rows(&ids, watch).await? {
            parts[input] = Some(part);
        }
    }
    let complete = parts.into_iter().collect::<Option<Vec<Part>>>();
    complete.ok_or_else(|| Refusal::new(Reason::Inference, "an input was neither sent nor joined"))
}

/// Outputs to send, and whether each is sent as binary.
fn reply_of(
    model: &Model,
    id: Option<String>,
    selected: &[SelectedOutput],
    outputs: Vec<Tensor>,
) -> (InferReply, Vec<bool>) {
    let mut outputs: Vec<Option<Tensor>> = outputs.into_iter().map(Some).collect();
    let chosen = selected
        .iter()
        .filter_map(|selected| Some((outputs.get_mut(selected.index)?.take()?, selected.binary)));
    let (outputs, flags) = chosen.unzip();
    let reply = InferReply {
        model_name: model.name.clone(),
        model_version: model.version.clone(),
        id,
        outputs,
    };
    (reply, flags)
}

/// Request in progress, counted exactly once: answered, refused or, if this is dropped early, given up by its client,
/// with the stage in which it waited.
pub(crate) struct RequestGuard<'a> {
    metrics: &'a Metrics,
    model: &'a Model,
    wait_point: WaitPoint,
    /// Number of rows, once known.
    rows: Option<usize>,
    /// Start of its stages; before its body has arrived, its arrival.
    began: Instant,
    open: bool,
}

impl<'a> RequestGuard<'a> {
    fn begin(metrics: &'a Metrics, model: &'a Model) -> Self {
        Self {
            metrics,
            model,
            wait_point: WaitPoint::Body,
            rows: None,
            began: Instant::now(),
            open: true,
        }
    }

    /// Ends a request at its body.
    pub(crate) fn refuse(mut self, refusal: &Refusal) {
        self.open = false;
        if refusal.reason == Reason::Cancelled {
            self.metrics.count_cancelled(self.wait_point);
        }
        self.count_refusal(refusal, &StageTimings::default());
    }

    /// Ends a request with its reply or its refusal.
    fn settle<R>(&mut self, reply: &Result<R, Refusal>, timings: &StageTimings) {
        self.open = false;
        match reply {
            Ok(_) => {
                let rows = self.rows.unwrap_or(1);
                self.model.metrics.count_answer(rows, timings);
                self.model.stats.count_answer(rows, timings);
                self.note(None, timings);
            }
            Err(refusal) => self.count_refusal(refusal, timings),
        }
    }

    fn note(&self, refusal: Option<Reason>, timings: &StageTimings) {
        trace::note_outcome(|| RequestOutcome {
            model: self.model.name.clone(),
            version: self.model.version.clone(),
            rows: self.rows,
            began: self.began,
            timings: *timings,
            refusal,
        });
    }

    fn count_refusal(&self, refusal: &Refusal, timings: &StageTimings) {
        self.note(Some(refusal.reason), timings);
        let mode = self.rows.map(Mode::of_rows);
        self.metrics.count_refusal(&self.model.name, mode, refusal);
        self.model.stats.count_failure(timings);
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if self.open {
            self.metrics.count_cancelled(self.wait_point);
            let refusal = Refusal::new(Reason::Cancelled, "the client went away");
            self.count_refusal(&refusal, &StageTimings::default());
        }
    }
}
