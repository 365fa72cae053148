//! Infer calls, one by one and as a stream: a message in, the pipeline, a message out.
//!
//! In: the bytes of a `ModelInferRequest`. Out: the bytes of a `ModelInferResponse` with `server-timing` in the
//! metadata, or a status. A stream processes several requests concurrently and answers each once, in order.

use super::calls::{self, EncodedReply};
use super::incoming_messages::{CallKind, IncomingMessages, Limit, ReceivedMessage};
use crate::front::connections::{OpenRequest, WaitGuard};
use crate::front::state::SharedState;
use crate::models::served_models::Target;
use crate::models::serving::Model;
use crate::pipeline::Exchange;
use crate::request::{Account, AccountBudget, Refusal, Stopwatch, offload_large};
use crate::telemetry::trace::RequestScope;
use axum::extract::{Request, State as Shared};
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use http::HeaderMap;
use prost::Message;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::grpc::messages::{InferParameter, ModelInferResponse, ModelStreamInferResponse, ParameterChoice};
use tierlab_protocol::grpc::{ReceivedRequest, SERVER_TIMING};
use tierlab_protocol::infer::{InferReply, InferRequest, MemoryBudget};
use tierlab_protocol::tensor::DataType;
use tierlab_protocol::timing::Stage;
use tonic::Status;
use tonic::metadata::MetadataValue;

/// Maximum requests of one stream in progress.
const STREAM_WINDOW: usize = 32;

/// A request on its way into the pipeline.
struct InferCall {
    received: ReceivedRequest,
    bytes: usize,
    /// Time at which the client gives up.
    deadline: Option<Instant>,
    kind: CallKind,
}

impl Exchange for InferCall {
    /// Encoded message.
    type Reply = Bytes;
    type ReplyFormat = CallKind;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn timeout(&self) -> Option<Duration> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map(left)
    }

    fn reply_format(&self) -> CallKind {
        self.kind
    }

    fn decode(mut self, account: &mut Account) -> Result<InferRequest, Refusal> {
        let is_raw = !self.received.raw.is_empty();
        gather_texts(&mut self.received, account)?;
        let request = InferRequest::try_from(self.received)?;
        if !is_raw {
            // The tensors hold no memory of the compressed message.
            account.set(request.inputs.iter().map(|input| input.data.len()).sum());
        }
        Ok(request)
    }

    fn encode(reply: InferReply, _: &[bool], kind: CallKind, budget: &AccountBudget<'_>) -> Option<Bytes> {
        let bytes: usize = reply.outputs.iter().map(|output| output.data.len()).sum();
        // One copy here, one in tonic's frame, and one more if the data has to be made contiguous.
        let copies = 2 + usize::from(reply.outputs.iter().any(|output| !output.data.is_whole()));
        let fixed = FIXED_REPLY_BYTES * (1 + reply.outputs.len());
        let reserved = budget.take(bytes.saturating_add(fixed).saturating_mul(copies));
        let encoded = || match kind {
            CallKind::Unary => Bytes::from(ModelInferResponse::from(reply).encode_to_vec()),
            CallKind::Stream => stream_message(String::new(), reply.into()),
        };
        reserved.then(|| offload_large(bytes, encoded))
    }
}

/// Makes raw texts contiguous: their elements are read one by one, more than once.
fn gather_texts(received: &mut ReceivedRequest, account: &mut Account) -> Result<(), Refusal> {
    for (input, raw) in received.message.inputs.iter().zip(&mut received.raw) {
        if input.datatype == DataType::Bytes.as_str() && !raw.is_whole() {
            account.add(raw.len())?;
            *raw = std::mem::take(raw).into_whole().into();
        }
    }
    Ok(())
}

/// Bytes counted for a reply's names, and for the names of each output.
const FIXED_REPLY_BYTES: usize = 256;

/// Encodes a message of a stream. Each message is marked as the last of its request.
fn stream_message(error_message: String, mut response: ModelInferResponse) -> Bytes {
    let last = InferParameter {
        parameter_choice: Some(ParameterChoice::BoolParam(true)),
    };
    response.parameters.insert("triton_final_response".into(), last);
    let message = ModelStreamInferResponse {
        error_message,
        infer_response: Some(response),
    };
    message.encode_to_vec().into()
}

/// Maximum size of an infer message.
fn limit(state: &SharedState) -> Limit {
    Limit {
        bytes: state.pipeline.admission.limits.max_body_bytes,
        set_by: "`admission.max_body_bytes`",
    }
}

/// Time at which the client gives up, from `grpc-timeout`.
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Refusal> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(timeout);
    let timeout = parsed.ok_or_else(|| Refusal::bad(format!("invalid `grpc-timeout`: {value:?}")))?;
    Ok(Instant::now().checked_add(timeout))
}

/// Parses a number of up to 8 digits and its unit.
fn timeout(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().next_back()?;
    let digits = &text[..unit_at];
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// `ModelInfer`.
pub(super) async fn infer(Shared(state): Shared<SharedState>, request: Request) -> http::Response<tonic::body::Body> {
    let (deadline, limit) = (deadline(request.headers()), limit(&state));
    let answered = async move |incoming: IncomingMessages| {
        let state = incoming.state();
        let deadline = deadline.map_err(|refusal| incoming.refuse(refusal))?;
        let (message, account) = incoming.single_message().await?;
        let answer = answer(&state, message, account, deadline, CallKind::Unary).await;
        Ok(unary_reply(answer)?.map(|reply| stream::once(async { Ok(reply) })))
    };
    calls::answer(state, request, CallKind::Unary, limit, answered).await
}

/// Outcome of a call, with the stages that it reached.
struct CallAnswer {
    reply: Result<Bytes, Refusal>,
    /// Account of the reply's bytes.
    account: Account,
    /// Request id, for the error messages of a stream.
    id: String,
    timings: Option<String>,
}

async fn answer(
    state: &SharedState,
    message: ReceivedMessage,
    mut account: Account,
    deadline: Option<Instant>,
    kind: CallKind,
) -> CallAnswer {
    let mut watch = Stopwatch::start();
    let mut id = String::new();
    let (model, received, bytes) = match receive(state, message, &mut account, &mut id) {
        Ok(received) => received,
        Err(refusal) => {
            state.metrics().count_refusal("", None, &refusal);
            return CallAnswer {
                reply: Err(refusal),
                account,
                id,
                timings: None,
            };
        }
    };
    let call = InferCall {
        received,
        bytes,
        deadline,
        kind,
    };
    watch.mark(Stage::Decode);
    // The message is already counted; the guard's account stays empty.
    let reply = match state.pipeline.enter(&model) {
        Ok((guard, _)) => state.pipeline.infer(guard, &mut account, call, &mut watch).await,
        Err(refusal) => Err(refusal),
    };
    CallAnswer {
        reply,
        account,
        id,
        timings: Some(watch.timings.to_header()),
    }
}

/// Decodes a message, and finds its model. Returns both with the message's size, and sets `id` to the request's.
fn receive(
    state: &SharedState,
    message: ReceivedMessage,
    account: &mut Account,
    id: &mut String,
) -> Result<(Arc<Model>, ReceivedRequest, usize), Refusal> {
    let message = message.unpack(account)?;
    let bytes = message.len();
    let budget = account.budget(None);
    let received = offload_large(bytes, || ReceivedRequest::decode_within(&message, &budget));
    let no_room = budget.into_refusal();
    let mut received = received.map_err(|error| no_room.unwrap_or_else(|| error.into()))?;
    let target = Target {
        model: std::mem::take(&mut received.message.model_name),
        version: Some(std::mem::take(&mut received.message.model_version)),
    };
    id.clone_from(&received.message.id);
    Ok((state.manager.find(&target)?, received, bytes))
}

fn unary_reply(answer: CallAnswer) -> Result<tonic::Response<EncodedReply>, Status> {
    let timings = answer.timings.and_then(|text| MetadataValue::try_from(text).ok());
    let reply = answer.reply.map_err(Status::from);
    let mut reply = reply.map(|message| tonic::Response::new(EncodedReply(message, answer.account)));
    if let Some(timings) = timings {
        let metadata = match &mut reply {
            Ok(response) => response.metadata_mut(),
            Err(status) => status.metadata_mut(),
        };
        metadata.insert(SERVER_TIMING, timings);
    }
    reply
}

/// `ModelStreamInfer`.
pub(super) async fn stream(Shared(state): Shared<SharedState>, request: Request) -> http::Response<tonic::body::Body> {
    let limit = limit(&state);
    let open = request.extensions().get::<Arc<OpenRequest>>().cloned();
    let answered = async move |incoming: IncomingMessages| Ok(tonic::Response::new(replies(incoming, open)));
    calls::answer(state, request, CallKind::Stream, limit, answered).await
}

fn replies(
    mut requests: IncomingMessages,
    open: Option<Arc<OpenRequest>>,
) -> BoxStream<'static, Result<EncodedReply, Status>> {
    let (scope, state) = (RequestScope::current(), requests.state());
    let receiving = scope.clone();
    let received_bytes = requests.received_bytes.clone();
    let reply = move |message: Result<ReceivedMessage, Status>| {
        let (state, account) = (Arc::clone(&state), received_bytes.lock().split_all());
        let waiting = open.as_ref().map(OpenRequest::wait_for_answer);
        let answered = streamed_answer(state, message, account, waiting);
        // Its memory is released when it is answered, even if the client does not read the replies before it.
        scope.clone().run_async(answered).boxed()
    };
    // Refusals of a message that has not arrived belong to the call too.
    let requests = stream::poll_fn(move |cx| receiving.run(|| requests.poll_next_unpin(cx)));
    requests.map(reply).buffered(STREAM_WINDOW).boxed()
}

/// Answers one message of a stream. The answer's future is boxed when it is first polled, because up to
/// [`STREAM_WINDOW`] messages of each stream wait to be polled and no account counts them.
async fn streamed_answer(
    state: SharedState,
    message: Result<ReceivedMessage, Status>,
    account: Account,
    _waiting: Option<WaitGuard>,
) -> Result<EncodedReply, Status> {
    let answer = Box::pin(answer(&state, message?, account, None, CallKind::Stream)).await;
    // Errors in a stream are messages too, so that the stream continues.
    let bytes = answer.reply.unwrap_or_else(|refusal| {
        let response = ModelInferResponse {
            id: answer.id,
            ..ModelInferResponse::default()
        };
        stream_message(refusal.message, response)
    });
    Ok(EncodedReply(bytes, answer.account))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Admission, Limits};
    use prometheus::IntGauge;
    use tierlab_protocol::grpc::messages::{InferTensor, ModelInferRequest};
    use tierlab_protocol::infer::Data;

    #[test]
    fn a_message_of_a_stream_that_waits_for_its_turn_is_small() {
        fn future_bytes<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = future_bytes(streamed_answer);
        assert!(bytes < 1024, "{bytes}");
    }

    #[test]
    fn texts_in_pieces_are_counted_before_they_are_brought_together() {
        let limits = Limits {
            max_in_flight: 1,
            max_body_bytes: 100,
            max_buffered_bytes: 20,
            timeout: Duration::from_secs(1),
        };
        let admission = Admission::new(limits, IntGauge::new("a", "a").unwrap());
        let gathered = |datatype: &str, pieces: &[&'static [u8]]| {
            let input = InferTensor {
                datatype: datatype.into(),
                ..InferTensor::default()
            };
            let mut raw = Data::default();
            pieces.iter().for_each(|piece| raw.push(Bytes::from_static(piece)));
            let mut received = ReceivedRequest {
                message: ModelInferRequest {
                    inputs: vec![input],
                    ..ModelInferRequest::default()
                },
                raw: vec![raw],
            };
            gather_texts(&mut received, &mut admission.open_account()).map(|()| received.raw[0].is_whole())
        };
        assert!(gathered("BYTES", &[&[7; 10], &[8; 10]]).unwrap());
        assert!(gathered("BYTES", &[&[7; 10], &[8; 11]]).is_err());
        assert!(gathered("BYTES", &[&[7; 30]]).unwrap());
        assert!(!gathered("FP32", &[&[7; 30], &[8; 30]]).unwrap());
    }

    #[test]
    fn timeouts_are_read_in_every_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("6n", Some(Duration::from_nanos(6))),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("+1S", None),
            ("1.5S", None),
            ("1s", None),
            ("1µ", None),
        ] {
            assert_eq!(timeout(text), expected, "{text}");
        }
    }
}
