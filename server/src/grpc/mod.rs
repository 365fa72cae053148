//! The gRPC front: `inference.GRPCInferenceService` as Triton and KServe speak it, and gRPC's health service.
//!
//! In: gRPC calls, routed by their paths. Out: messages, or a status with what the client can do about it. Infer calls go
//! through the same pipeline as over HTTP; nothing here knows how a request is answered.

mod arriving;
mod codec;
mod cutter;
mod documents;
mod health;
mod infer;
mod status;

use crate::state::State;
use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use http::HeaderMap;
use prost::Message;
use std::sync::Arc;
use tierlab_protocol::grpc::{SERVICE, health as health_messages};
use tonic::Status;
use tonic::codec::{Codec, CompressionEncoding};
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

/// Bytes of a message that is no infer request at most.
const MAX_SMALL_BYTES: usize = 64 << 10;

type Server = Arc<State>;

/// Every method.
pub(crate) fn router(state: Server) -> Router {
    let mut router = Router::new()
        .route(&path(SERVICE, "ModelInfer"), post(infer::infer))
        .route(&path(SERVICE, "ModelStreamInfer"), post(infer::stream))
        .route(&path(health_messages::SERVICE, "Check"), unary(health::check))
        .route(&path(health_messages::SERVICE, "Watch"), post(health::watch));
    for (method, serve) in documents::methods() {
        router = router.route(&path(SERVICE, method), serve);
    }
    router.fallback(no_method).with_state(state)
}

fn path(service: &str, method: &str) -> String {
    format!("/{service}/{method}")
}

async fn no_method(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(128).collect();
    Status::unimplemented(format!("no method `{path}`")).into_http()
}

/// A call's wire format: both compressions are read, and used for replies where the request used one.
fn wire<C: Codec>(codec: C, headers: &HeaderMap, max_bytes: usize) -> Grpc<C> {
    let grpc = Grpc::new(codec)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .max_decoding_message_size(max_bytes);
    // Most clients say that they accept every compression; only those that compress want to pay for it.
    if is_compressed(headers) {
        grpc.send_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Deflate)
    } else {
        grpc
    }
}

fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// A method with one small message each way.
fn unary<Q, R, F, Reply>(handler: F) -> MethodRouter<Server>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
    F: Fn(Server, Q) -> Reply + Clone + Send + Sync + 'static,
    Reply: Future<Output = Result<R, Status>> + Send + 'static,
{
    post(async move |Shared(state): Shared<Server>, request: Request| {
        let service = tower::service_fn(move |message: tonic::Request<Q>| {
            let reply = handler(Arc::clone(&state), message.into_inner());
            async move { reply.await.map(tonic::Response::new) }
        });
        let codec = ProstCodec::<R, Q>::default();
        let mut grpc = wire(codec, request.headers(), MAX_SMALL_BYTES);
        grpc.unary(service, request).await
    })
}
