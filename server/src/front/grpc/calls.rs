//! Calls: their messages are read here, their replies are written by tonic.
//!
//! In: a request of a method. Out: its response. Every message of every method comes through [`IncomingMessages`], so that
//! all of them are bounded in size and time and counted on an account. The methods decide how they are answered.

use super::codec::{CompressedBody, EncodedReply, RawCodec, wire};
use super::frames::Limit;
use super::incoming_messages::{CallKind, IncomingMessages};
use crate::front::state::SharedState;
use crate::request::admission::Account;
use crate::request::refusal::Refusal;
use axum::body::Body;
use axum::extract::{Request, State as Shared};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use prost::Message;
use std::sync::Arc;
use tonic::{Status, Streaming};

/// Bytes of a message that is no infer request at most.
const SMALL: Limit = Limit {
    bytes: 64 << 10,
    set_by: "fixed for this method",
};
/// Maximum memory per byte of a small message while it is read: an empty string is two bytes and 24 in a growing list; a map
/// entry is five bytes and a few hundred.
const SMALL_RATIO: usize = 64;

/// A call before it is answered.
pub(super) struct PendingCall {
    head: http::request::Parts,
    incoming: IncomingMessages,
}

impl PendingCall {
    pub(super) fn of(state: &SharedState, request: Request, kind: CallKind, limit: Limit) -> Self {
        let (head, body) = request.into_parts();
        let incoming = IncomingMessages::new(body, &head.headers, state, kind, limit);
        Self { head, incoming }
    }

    /// Answers with the replies of `answered`. A compression that is not supported is refused before.
    pub(super) async fn answer<A, F, R>(self, answered: A) -> http::Response<tonic::body::Body>
    where
        A: FnOnce(IncomingMessages) -> F + Send,
        F: Future<Output = Result<tonic::Response<R>, Status>> + Send,
        R: Stream<Item = Result<EncodedReply, Status>> + Send + 'static,
    {
        let mut grpc = wire(RawCodec, &self.head.headers);
        // tonic calls it once, with a stream that is empty: the messages were taken out of the body.
        let mut once = Some((answered, self.incoming));
        let service = tower::service_fn(move |_: tonic::Request<Streaming<()>>| {
            let call = once.take();
            async move {
                let (answered, incoming) = call.ok_or_else(|| Status::internal("called twice"))?;
                answered(incoming).await
            }
        });
        let request = http::Request::from_parts(self.head, Body::empty());
        CompressedBody::of(grpc.streaming(service, request).await)
    }
}

/// The one small message of a call, and the account that it is on.
async fn small<Q: Message + Default>(incoming: IncomingMessages, state: &SharedState) -> Result<(Q, Account), Status> {
    let (message, mut account) = incoming.only().await?;
    let counted = account.add(message.len().saturating_mul(SMALL_RATIO));
    let message = counted.and_then(|()| {
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

/// A method with one small message each way.
pub(super) fn unary<Q, R, F, RequestOutcome>(handler: F) -> MethodRouter<SharedState>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
    F: Fn(SharedState, Q) -> RequestOutcome + Clone + Send + Sync + 'static,
    RequestOutcome: Future<Output = Result<R, Status>> + Send + 'static,
{
    post(async move |Shared(state): Shared<SharedState>, request: Request| {
        let call = PendingCall::of(&state, request, CallKind::Unary, SMALL);
        let answered = async move |incoming: IncomingMessages| {
            let (message, account) = small(incoming, &state).await?;
            let reply = EncodedReply::new(encoded(&handler(state, message).await?), account);
            Ok(tonic::Response::new(stream::once(async { Ok(reply) })))
        };
        call.answer(answered).await
    })
}

/// A method with one small message, answered by any number of them.
pub(super) async fn watching<Q, R>(
    state: SharedState,
    request: Request,
    replies: impl FnOnce(SharedState, Q) -> BoxStream<'static, R> + Send,
) -> http::Response<tonic::body::Body>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
{
    let call = PendingCall::of(&state, request, CallKind::Unary, SMALL);
    let answered = async move |incoming: IncomingMessages| {
        let (message, _) = small(incoming, &state).await?;
        let admission = Arc::clone(&state.pipeline.admission);
        let reply = move |message: R| Ok(EncodedReply::new(encoded(&message), admission.open_account()));
        Ok(tonic::Response::new(replies(state, message).map(reply)))
    };
    call.answer(answered).await
}
