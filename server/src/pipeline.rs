//! The way of an infer request: every stage, in order, and the only file that names them all.
//!
//! ```text
//! decode -> admit -> cache, tier, join (features) -> batch, infer (model) -> encode
//! ```
//! In: a body and the model that it is for. Out: the reply's bytes, or a refusal; and either way the time of each stage.

use crate::admission::Admission;
use crate::batch::Part;
use crate::metrics::{Metrics, Mode};
use crate::model::Model;
use crate::model::accept::Accepted;
use crate::model::submit::{Urgency, Work};
use crate::refusal::{Reason, Refusal};
use crate::stopwatch::Stopwatch;
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::infer::{InferReply, InferRequest, Tensor};
use tierlab_protocol::timing::{Stage, StageTimings};

/// Bodies of this many bytes are decoded off the async threads' path.
const HEAVY_BYTES: usize = 1 << 20;

/// A front's side of one infer request: how it is read, and how its reply is written.
pub(crate) trait Exchange {
    type Reply;

    /// Bytes to decode.
    fn bytes(&self) -> usize;

    fn decode(self) -> Result<InferRequest, Refusal>;

    /// Writes a reply; `binary` says of each output whether the client wants it as raw bytes.
    fn encode(reply: InferReply, binary: &[bool]) -> Self::Reply;
}

/// What became of a request, and where its time went.
pub(crate) struct Outcome<R> {
    pub(crate) reply: Result<R, Refusal>,
    pub(crate) timings: StageTimings,
}

/// What every request passes through, besides its model.
#[derive(Clone)]
pub(crate) struct Pipeline {
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Pipeline {
    /// Takes a request all the way. Dropping the future before it ends cancels the request: it is counted, and its job
    /// is passed over by the batch queue.
    pub(crate) async fn infer<E: Exchange>(
        &self,
        model: &Model,
        incoming: E,
        mut watch: Stopwatch,
    ) -> Outcome<E::Reply> {
        let mut record = Record {
            pipeline: self,
            model,
            rows: None,
            open: true,
        };
        let reply = self.stages(model, incoming, &mut watch, &mut record.rows).await;
        record.close(&reply, watch.timings());
        Outcome {
            reply,
            timings: *watch.timings(),
        }
    }

    async fn stages<E: Exchange>(
        &self,
        model: &Model,
        incoming: E,
        watch: &mut Stopwatch,
        rows: &mut Option<usize>,
    ) -> Result<E::Reply, Refusal> {
        let decoded = decode(model, incoming);
        watch.mark(Stage::Decode);
        let Decoded {
            id,
            selected,
            accepted,
            timeout,
            priority,
        } = decoded?;
        *rows = Some(accepted.rows);

        let admitted = self.admission.admit();
        watch.mark(Stage::Admit);
        let _admitted = admitted?;
        let limit = self.admission.limits.timeout;
        let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
        let deadline = watch.started() + limit;

        let work = async {
            let (rows, parts) = (accepted.rows, join_features(model, accepted, watch).await?);
            let urgency = Urgency { deadline, priority };
            let done = model.infer(Work { parts, rows, urgency }).await;
            if done.is_err() {
                watch.mark(Stage::Batch);
            }
            let done = done?;
            watch.mark_at(Stage::Batch, done.run_started);
            watch.mark_at(Stage::Infer, done.run_ended);
            watch.timings_mut().batch_rows = u32::try_from(done.batch_rows).unwrap_or(u32::MAX);
            Ok::<_, Refusal>(done)
        };
        let Ok(done) = tokio::time::timeout_at(deadline.into(), work).await else {
            // Cut off while waiting: for the tier, unless the rows were there already.
            let joined = model.join.is_none() || watch.timings().get(Stage::Join) > Duration::ZERO;
            watch.mark(if joined { Stage::Batch } else { Stage::Tier });
            return Err(Refusal::new(
                Reason::Deadline,
                format!("no answer within {} ms", limit.as_millis()),
            ));
        };
        let outgoing = encode::<E>(model, id, &selected, done?.outputs);
        watch.mark(Stage::Encode);
        Ok(outgoing)
    }
}

/// A request that fits its model.
struct Decoded {
    id: Option<String>,
    /// Outputs to send, and whether as binary.
    selected: Vec<(usize, bool)>,
    accepted: Accepted,
    timeout: Option<Duration>,
    priority: u64,
}

fn decode<E: Exchange>(model: &Model, incoming: E) -> Result<Decoded, Refusal> {
    let bytes = incoming.bytes();
    let decode = || -> Result<Decoded, Refusal> {
        let request = incoming.decode()?;
        let selected = model.select_outputs(&request)?;
        // Triton's clients send 0 for no timeout of their own.
        let timeout = request.timeout_us.filter(|&us| us > 0).map(Duration::from_micros);
        Ok(Decoded {
            id: request.id,
            selected,
            accepted: model.accept(request.inputs)?,
            timeout,
            priority: request.priority,
        })
    };
    if bytes < HEAVY_BYTES {
        decode()
    } else {
        tokio::task::block_in_place(decode)
    }
}

/// Fills the inputs that the feature table has.
async fn join_features(model: &Model, accepted: Accepted, watch: &mut Stopwatch) -> Result<Vec<Part>, Refusal> {
    let Accepted { mut parts, ids, .. } = accepted;
    if let Some(join) = model.join.as_ref().filter(|_| !ids.is_empty()) {
        let _in_stage = model.stage.enter();
        for (input, part) in join.rows(&ids, watch).await? {
            parts[input] = Some(part);
        }
    }
    let complete = parts.into_iter().collect::<Option<Vec<Part>>>();
    complete.ok_or_else(|| Refusal::new(Reason::Inference, "an input was neither sent nor joined"))
}

fn encode<E: Exchange>(
    model: &Model,
    id: Option<String>,
    selected: &[(usize, bool)],
    outputs: Vec<Tensor>,
) -> E::Reply {
    let mut outputs: Vec<Option<Tensor>> = outputs.into_iter().map(Some).collect();
    let mut flags = Vec::with_capacity(selected.len());
    let mut chosen = Vec::with_capacity(selected.len());
    for &(index, binary) in selected {
        let Some(tensor) = outputs.get_mut(index).and_then(Option::take) else {
            continue;
        };
        flags.push(binary);
        chosen.push(tensor);
    }
    let reply = InferReply {
        model_name: model.name.clone(),
        model_version: model.version.clone(),
        id,
        outputs: chosen,
    };
    E::encode(reply, &flags)
}

/// Counts a request exactly once: as answered or refused, or, if it is dropped before, as cancelled.
struct Record<'a> {
    pipeline: &'a Pipeline,
    model: &'a Model,
    rows: Option<usize>,
    open: bool,
}

impl Record<'_> {
    fn close<R>(&mut self, reply: &Result<R, Refusal>, timings: &StageTimings) {
        self.open = false;
        match reply {
            Ok(_) => {
                let rows = self.rows.unwrap_or(1);
                self.model.metrics.count_answer(rows, timings);
                self.model.stats.count_answer(rows, timings);
            }
            Err(refusal) => self.refuse(refusal, timings),
        }
    }

    fn refuse(&self, refusal: &Refusal, timings: &StageTimings) {
        let mode = self.rows.map(Mode::of_rows);
        self.pipeline.metrics.count_refusal(&self.model.name, mode, refusal);
        self.model.stats.count_failure(timings);
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.open {
            let gone = Refusal::new(Reason::Cancelled, "the client went away");
            self.refuse(&gone, &StageTimings::default());
        }
    }
}
