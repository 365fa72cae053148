//! Calls: reads their messages, and encodes their replies with tonic's framing.
//!
//! In: a request of a method. Out: its response. Every message of every method comes through [`IncomingMessages`], so
//! that all are bounded in size and time and counted on an account. The methods decide how they are answered; the
//! pipeline writes its replies itself, so that its stages show that cost.

use super::incoming_messages::{CallKind, IncomingMessages, Limit};
use crate::front::state::SharedState;
use crate::request::{Account, LARGE_BYTES, Refusal, offload_large};
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State as Shared};
use axum::routing::{MethodRouter, post};
use bytes::{BufMut, Bytes};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use http::{HeaderMap, Response};
use hyper::body::{Frame, SizeHint};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body as Reply;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::Grpc;
use tonic::{Status, Streaming};

/// Maximum size of a message other than an infer request.
const SMALL_LIMIT: Limit = Limit {
    bytes: 64 << 10,
    set_by: "fixed for this method",
};
/// Maximum memory per byte of a small message while it is read: an empty string is two bytes and 24 in a growing list;
/// a map entry is five bytes and a few hundred.
const SMALL_RATIO: usize = 64;

/// Answers a call with the replies of `answered`. Refuses unsupported compressions first.
pub(super) async fn answer<A, F, R>(
    state: SharedState,
    request: Request,
    kind: CallKind,
    limit: Limit,
    answered: A,
) -> Response<Reply>
where
    A: FnOnce(IncomingMessages) -> F + Send,
    F: Future<Output = Result<tonic::Response<R>, Status>> + Send,
    R: Stream<Item = Result<EncodedReply, Status>> + Send + 'static,
{
    let (head, body) = request.into_parts();
    let incoming = IncomingMessages::new(body, &head.headers, state, kind, limit);
    let mut grpc = grpc_for(&head.headers);
    // tonic calls it once, with an empty stream: the messages were taken out of the body.
    let mut pending_call = Some((answered, incoming));
    let service = tower::service_fn(move |_: tonic::Request<Streaming<()>>| {
        let call = pending_call.take();
        async move {
            let (answered, incoming) = call.ok_or_else(|| Status::internal("called twice"))?;
            answered(incoming).await
        }
    });
    let request = http::Request::from_parts(head, Body::empty());
    let response = grpc.streaming(service, request).await;
    match is_compressed(response.headers()) {
        true => response.map(|body| Reply::new(CompressedBody(body))),
        false => response,
    }
}

/// Reads the single small message of a call. Returns it with its account.
async fn read<Q: Message + Default>(incoming: IncomingMessages, state: &SharedState) -> Result<(Q, Account), Status> {
    let (message, mut account) = incoming.single_message().await?;
    let message = message.unpack(&mut account).and_then(|message| {
        account.add(message.len().saturating_mul(SMALL_RATIO))?;
        let read = Q::decode(message.into_whole());
        read.map_err(|error| Refusal::bad(format!("malformed message: {error}")))
    });
    message.map(|message| (message, account)).map_err(|refusal| {
        state.metrics().count_refusal("", None, &refusal);
        refusal.into()
    })
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

/// Method with one small message each way.
pub(super) fn unary<Q, R, F, RequestOutcome>(handler: F) -> MethodRouter<SharedState>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
    F: Fn(SharedState, Q) -> RequestOutcome + Clone + Send + Sync + 'static,
    RequestOutcome: Future<Output = Result<R, Status>> + Send + 'static,
{
    post(async move |Shared(state): Shared<SharedState>, request: Request| {
        let answered = async move |incoming: IncomingMessages| {
            let state = incoming.state();
            let (message, account) = read(incoming, &state).await?;
            let reply = EncodedReply(encoded(&handler(state, message).await?), account);
            Ok(tonic::Response::new(stream::once(async { Ok(reply) })))
        };
        answer(state, request, CallKind::Unary, SMALL_LIMIT, answered).await
    })
}

/// Method with one small message, answered by any number of messages.
pub(super) async fn watching<Q, R>(
    state: SharedState,
    request: Request,
    replies: impl FnOnce(SharedState, Q) -> BoxStream<'static, R> + Send,
) -> Response<Reply>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
{
    let answered = async move |incoming: IncomingMessages| {
        let state = incoming.state();
        let (message, _) = read(incoming, &state).await?;
        let admission = Arc::clone(&state.pipeline.admission);
        let reply = move |message: R| Ok(EncodedReply(encoded(&message), admission.open_account()));
        Ok(tonic::Response::new(replies(state, message).map(reply)))
    };
    answer(state, request, CallKind::Unary, SMALL_LIMIT, answered).await
}

/// Passes replies through.
#[derive(Debug, Clone, Copy, Default)]
struct RawCodec;

/// Encoded reply, counted on its account until it is in the body.
pub(super) struct EncodedReply(pub(super) Bytes, pub(super) Account);

impl Codec for RawCodec {
    type Encode = EncodedReply;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = EncodedReply;
    type Error = Status;

    fn encode(&mut self, reply: EncodedReply, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        let EncodedReply(bytes, _account) = reply;
        offload_large(bytes.len(), || {
            out.reserve(bytes.len());
            out.put_slice(&bytes);
        });
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(None)
    }
}

/// Wire format of a call: both compressions are supported, and used for replies if the request used one.
fn grpc_for(headers: &HeaderMap) -> Grpc<RawCodec> {
    let grpc = Grpc::new(RawCodec).accept_compressed(Gzip).accept_compressed(Deflate);
    // Most clients accept every compression, but only those that compress want to pay for it.
    match is_compressed(headers) {
        true => grpc.send_compressed(Gzip).send_compressed(Deflate),
        false => grpc,
    }
}

fn is_compressed(headers: &HeaderMap) -> bool {
    let encoding = headers.get("grpc-encoding");
    encoding.is_some_and(|encoding| encoding != "identity")
}

/// Body that tonic compresses on demand. Its frames are made off the async threads: compressing a large message takes
/// long.
struct CompressedBody(Reply);

impl HttpBody for CompressedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // The size of the message is unknown here.
        offload_large(LARGE_BYTES, || Pin::new(&mut self.0).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
