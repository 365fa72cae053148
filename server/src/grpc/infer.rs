//! Infer calls, one by one and as a stream: a message in, the pipeline, a message out.
//!
//! In: the bytes of a `ModelInferRequest`. Out: those of a `ModelInferResponse` with `server-timing` in the metadata, or
//! a status. A stream answers each request once, in order, several at a time.

use super::arriving::{Arrived, Arriving, Kind};
use super::codec::{Raw, Reply};
use super::{Server, wire};
use crate::admission::Account;
use crate::manage::Target;
use crate::pipeline::{Exchange, Outcome};
use crate::refusal::Refusal;
use crate::stopwatch::Stopwatch;
use crate::trace::Link;
use axum::body::Body;
use axum::extract::{Request, State as Shared};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use http::HeaderMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::grpc::messages::{InferParameter, ModelInferResponse, ModelStreamInferResponse, ParameterChoice};
use tierlab_protocol::grpc::{ReceivedRequest, SERVER_TIMING};
use tierlab_protocol::infer::{Data, InferReply, InferRequest};
use tierlab_protocol::timing::Stage;
use tonic::metadata::MetadataValue;
use tonic::{Status, Streaming};

/// Requests of one stream that are worked on at the same time.
const STREAM_WINDOW: usize = 32;

/// A request on its way into the pipeline.
struct Call {
    received: ReceivedRequest,
    bytes: usize,
    /// When the client gives up.
    deadline: Option<Instant>,
}

impl Exchange for Call {
    type Reply = ModelInferResponse;

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn timeout(&self) -> Option<Duration> {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map(left)
    }

    fn decode(self) -> Result<InferRequest, Refusal> {
        Ok(InferRequest::try_from(self.received)?)
    }

    fn encode(reply: InferReply, _: &[bool]) -> ModelInferResponse {
        reply.into()
    }
}

/// When the client gives up: `grpc-timeout` after now.
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Refusal> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(timeout);
    let timeout = parsed.ok_or_else(|| Refusal::bad(format!("`grpc-timeout` is {value:?}, no time")))?;
    Ok(Instant::now().checked_add(timeout))
}

/// A number of up to 8 digits and its unit.
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

/// A call: its messages are read here, its replies are laid on the wire by tonic.
struct Messages {
    state: Server,
    head: http::request::Parts,
    arriving: Arriving,
    arrived: Arrived,
}

impl Messages {
    fn of(state: &Server, request: Request, kind: Kind) -> Self {
        let (head, body) = request.into_parts();
        let arrived = Arrived::open(state);
        Self {
            arriving: Arriving::new(body, &head.headers, state, &arrived, kind),
            state: Arc::clone(state),
            head,
            arrived,
        }
    }

    /// Has `answered` give the replies. A compression that is not spoken is refused before.
    async fn answer<A, F, R>(self, answered: A) -> http::Response<tonic::body::Body>
    where
        A: FnOnce(Arriving, Arrived, Server) -> F + Send,
        F: Future<Output = Result<tonic::Response<R>, Status>> + Send,
        R: Stream<Item = Result<Reply, Status>> + Send + 'static,
    {
        let max_bytes = self.state.pipeline.admission.limits.max_body_bytes;
        let mut grpc = wire(Raw, &self.head.headers, max_bytes);
        // tonic calls it once, with a stream of what is no longer in the body.
        let mut once = Some((answered, self.arriving, self.arrived, self.state));
        let service = tower::service_fn(move |_: tonic::Request<Streaming<()>>| {
            let call = once.take();
            async move {
                let (answered, arriving, arrived, state) = call.ok_or_else(|| Status::internal("called twice"))?;
                answered(arriving, arrived, state).await
            }
        });
        let request = http::Request::from_parts(self.head, Body::empty());
        grpc.streaming(service, request).await
    }
}

/// `ModelInfer`.
pub(super) async fn infer(Shared(state): Shared<Server>, request: Request) -> http::Response<tonic::body::Body> {
    let deadline = match deadline(request.headers()) {
        Ok(deadline) => deadline,
        Err(refusal) => return Status::from(refusal).into_http(),
    };
    let messages = Messages::of(&state, request, Kind::Call);
    let answered = async move |arriving: Arriving, arrived: Arrived, state: Server| {
        let message = arriving.only().await?;
        let answer = answer(&state, message, arrived.take(&state), deadline).await;
        Ok(unary_reply(answer)?.map(|reply| stream::once(async { Ok(reply) })))
    };
    messages.answer(answered).await
}

/// What became of a call, and its stages where it came so far.
struct Answer {
    reply: Result<ModelInferResponse, Refusal>,
    /// For the bytes of the reply.
    account: Account,
    /// The request's id, for a stream's errors.
    id: String,
    timings: Option<String>,
}

async fn answer(state: &Server, message: Data, account: Account, deadline: Option<Instant>) -> Answer {
    let mut watch = Stopwatch::start();
    let bytes = message.len();
    let refused = |id: String, account: Account, refusal: Refusal| {
        state.metrics().count_refusal("", None, &refusal);
        Answer {
            reply: Err(refusal),
            account,
            id,
            timings: None,
        }
    };
    let mut received = match ReceivedRequest::decode(&message) {
        Ok(received) => received,
        Err(error) => return refused(String::new(), account, error.into()),
    };
    drop(message);
    let message = &mut received.message;
    let target = Target {
        model: std::mem::take(&mut message.model_name),
        version: Some(std::mem::take(&mut message.model_version)).filter(|version| !version.is_empty()),
    };
    let id = message.id.clone();
    let model = match state.find(&target) {
        Ok(model) => model,
        Err(refusal) => return refused(id, account, refusal),
    };
    let call = Call {
        received,
        bytes,
        deadline,
    };
    watch.mark(Stage::Decode);
    // What has arrived is counted already; the account that comes with the passage stays empty.
    let (passage, _) = match state.pipeline.enter(&model) {
        Ok(entered) => entered,
        Err(refusal) => {
            return Answer {
                reply: Err(refusal),
                account,
                id,
                timings: Some(watch.timings().to_header()),
            };
        }
    };
    let Outcome {
        reply,
        timings,
        account,
    } = state.pipeline.infer(passage, account, call, watch).await;
    Answer {
        reply,
        account,
        id,
        timings: Some(timings.to_header()),
    }
}

fn unary_reply(answer: Answer) -> Result<tonic::Response<Reply>, Status> {
    let timings = answer.timings.and_then(|text| MetadataValue::try_from(text).ok());
    match answer.reply {
        Ok(message) => {
            let mut response = tonic::Response::new(Reply::new(&message, answer.account));
            if let Some(timings) = timings {
                response.metadata_mut().insert(SERVER_TIMING, timings);
            }
            Ok(response)
        }
        Err(refusal) => {
            let mut status = Status::from(refusal);
            if let Some(timings) = timings {
                status.metadata_mut().insert(SERVER_TIMING, timings);
            }
            Err(status)
        }
    }
}

/// `ModelStreamInfer`.
pub(super) async fn stream(Shared(state): Shared<Server>, request: Request) -> http::Response<tonic::body::Body> {
    let messages = Messages::of(&state, request, Kind::Stream);
    let answered = async |arriving, arrived, state| Ok(tonic::Response::new(replies(state, arrived, arriving)));
    messages.answer(answered).await
}

fn replies(state: Server, arrived: Arrived, requests: Arriving) -> BoxStream<'static, Result<Reply, Status>> {
    let link = Link::here();
    let reply = move |message: Result<Data, Status>| {
        let (state, account) = (Arc::clone(&state), arrived.take(&state));
        link.clone().around(async move {
            let answer = answer(&state, message?, account, None).await;
            let (message, account) = streamed(answer);
            Ok(Reply::new(&message, account))
        })
    };
    requests.map(reply).buffered(STREAM_WINDOW).boxed()
}

/// A stream's errors are messages, so that the stream goes on. Every reply is its request's last one.
fn streamed(answer: Answer) -> (ModelStreamInferResponse, Account) {
    let (mut message, error_message) = match answer.reply {
        Ok(message) => (message, String::new()),
        Err(refusal) => {
            let message = ModelInferResponse {
                id: answer.id,
                ..ModelInferResponse::default()
            };
            (message, refusal.message)
        }
    };
    let last = InferParameter {
        parameter_choice: Some(ParameterChoice::Bool(true)),
    };
    message.parameters.insert("triton_final_response".into(), last);
    let message = ModelStreamInferResponse {
        error_message,
        infer_response: Some(message),
    };
    (message, answer.account)
}

#[cfg(test)]
mod tests {
    use super::*;

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
