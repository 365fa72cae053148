//! The gRPC front: `inference.GRPCInferenceService` as Triton and KServe speak it, and gRPC's health service.
//!
//! In: gRPC calls, routed by their paths. Out: messages, or a status with advice for the client. Infer calls use the
//! same pipeline as HTTP; nothing here knows how a request is answered.

mod calls;
mod documents;
mod incoming_messages;
mod infer;

use crate::front::state::SharedState;
use crate::request::Refusal;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::post;
use calls::unary;
use tierlab_protocol::grpc::status::retry_details;
use tierlab_protocol::grpc::{SERVICE, health as health_messages};
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};

/// Router of all methods.
pub(crate) fn router(state: SharedState) -> Router {
    let mut router = Router::new()
        .route(&path(SERVICE, "ModelInfer"), post(infer::infer))
        .route(&path(SERVICE, "ModelStreamInfer"), post(infer::stream))
        .route(&path(health_messages::SERVICE, "Check"), unary(documents::check))
        .route(&path(health_messages::SERVICE, "Watch"), post(documents::watch));
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
    Status::unimplemented(format!("unknown method `{path}`")).into_http()
}

/// Maximum bytes of a message on the wire: clients accept 8 KiB of metadata by default, and a retryable status holds
/// the message twice.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// Shortens a message that is too long for metadata, in which most punctuation takes three bytes.
fn shortened(mut message: String) -> String {
    let on_wire = |mark: char| match mark.is_ascii_alphanumeric() {
        true => 1,
        false => 3 * mark.len_utf8(),
    };
    let mut bytes = 0;
    let end = message.char_indices().find_map(|(at, mark)| {
        bytes += on_wire(mark);
        (bytes > MAX_MESSAGE_BYTES).then_some(at)
    });
    if let Some(end) = end {
        message.truncate(end);
        message.push_str(" …");
    }
    message
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.reason.code();
        let refusal = Refusal {
            message: shortened(refusal.message),
            ..refusal
        };
        let Some(seconds) = refusal.reason.retry_after_s() else {
            return Self::new(code, refusal.message);
        };
        let mut metadata = MetadataMap::new();
        let pushback = MetadataValue::from(u64::from(seconds) * 1000);
        metadata.insert("grpc-retry-pushback-ms", pushback);
        let details = retry_details(code.into(), &refusal.message, seconds);
        Self::with_details_and_metadata(code, refusal.message, details, metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Reason;
    use prost::Message;
    use tierlab_protocol::grpc::status::{RETRY_INFO, RetryInfo, RpcStatus};
    use tonic::Code;

    #[test]
    fn a_long_message_fits_what_clients_take_of_metadata() {
        for message in ["a", "é", "` ", "model `m` has `x`, "].map(|part| part.repeat(100_000)) {
            for reason in [Reason::Full, Reason::BadRequest] {
                let head = Status::from(Refusal::new(reason, message.clone())).into_http::<()>();
                let bytes: usize = head
                    .headers()
                    .iter()
                    .map(|(name, value)| name.as_str().len() + value.len() + 32)
                    .sum();
                assert!((1000..7000).contains(&bytes), "{bytes} bytes");
            }
        }
        assert_eq!(Status::from(Refusal::bad("short: `é`")).message(), "short: `é`");
    }

    #[test]
    fn what_may_be_tried_again_says_when() {
        let status = Status::from(Refusal::new(Reason::Full, "full"));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
        let details = RpcStatus::decode(status.details()).unwrap();
        assert_eq!((details.code, details.message.as_str()), (8, "full"));
        assert_eq!(details.details[0].type_url, RETRY_INFO);
        let retry = RetryInfo::decode(details.details[0].value.as_slice()).unwrap();
        assert_eq!(retry.retry_delay.unwrap().seconds, 1);
        let status = Status::from(Refusal::bad("bad"));
        assert_eq!((status.code(), status.details()), (Code::InvalidArgument, &[][..]));
    }
}
