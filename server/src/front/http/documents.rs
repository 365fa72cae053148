//! Documents of the protocol over HTTP: health, metadata, configuration, statistics, the index, settings, metrics.
//!
//! In: requests whose body does not matter. Out: JSON, and Prometheus text. The contents are made elsewhere.

use super::Named;
use super::body;
use super::coding::{self, Coding};
use crate::front::state::{self, Phase, SharedState};
use crate::front::{DISCARD_TIME, JSON, discard, error, json};
use crate::request::{Account, LARGE_BYTES, Reason, offload_large};
use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use prometheus::{Registry, TextEncoder};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::grpc::messages::{ReadyResponse, ServerLiveResponse};
use tierlab_protocol::infer::{Encoded, Piece, Unlimited};
use tierlab_protocol::metadata::ModelReady;

/// Maximum size of a small JSON body: options of the index, settings.
const MAX_OPTIONS_BYTES: usize = 64 << 10;

fn answer<T: Serialize, E: IntoResponse>(document: Result<T, E>) -> Response {
    document.map_or_else(E::into_response, |document| json(StatusCode::OK, &document))
}

fn ok_or_unavailable(ready: bool) -> StatusCode {
    match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

pub(super) async fn live() -> Response {
    json(StatusCode::OK, &ServerLiveResponse { live: true })
}

pub(super) async fn ready(Shared(state): Shared<SharedState>) -> Response {
    let ready = state.phase() == Phase::Ready;
    json(ok_or_unavailable(ready), &ReadyResponse { ready })
}

pub(super) async fn server_metadata(Shared(state): Shared<SharedState>) -> Response {
    json(StatusCode::OK, &state.server_metadata())
}

pub(super) async fn model_metadata(Shared(state): Shared<SharedState>, Named(target): Named) -> Response {
    answer(state.manager.metadata(&target))
}

pub(super) async fn model_ready(Shared(state): Shared<SharedState>, Named(target): Named) -> Response {
    let ready = state.model_ready(&target);
    ready.map_or_else(IntoResponse::into_response, |ready| {
        let name = target.model;
        json(ok_or_unavailable(ready), &ModelReady { name, ready })
    })
}

pub(super) async fn model_config(Shared(state): Shared<SharedState>, Named(target): Named) -> Response {
    answer(state.manager.config(&target))
}

pub(super) async fn model_stats(Shared(state): Shared<SharedState>, Named(target): Named) -> Response {
    answer(state.manager.statistics(Some(&target)))
}

pub(super) async fn all_stats(Shared(state): Shared<SharedState>) -> Response {
    answer(state.manager.statistics(None))
}

/// Maximum memory per byte of such a body while it is read: a list element is two bytes, and 32 in a growing list.
const OPTIONS_RATIO: usize = 64;

/// Reads the small JSON body of a management call. Returns it with its account. An empty body means defaults.
async fn options<T>(state: &SharedState, request: Request) -> Result<(T, Account), Response>
where
    T: for<'de> Deserialize<'de> + Default,
{
    let mut account = state.pipeline.admission.open_account();
    let (head, body) = request.into_parts();
    let body = body::collect(&head.headers, body, MAX_OPTIONS_BYTES, &mut account);
    let body = match tokio::time::timeout(DISCARD_TIME, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) if refusal.reason == Reason::TooLarge => {
            let message = format!("body exceeds {MAX_OPTIONS_BYTES} bytes");
            return Err(error(StatusCode::BAD_REQUEST, message));
        }
        Ok(Err(refusal)) => return Err(refusal.into_response()),
        Err(_) => return Err(error(StatusCode::REQUEST_TIMEOUT, "body did not arrive in time".into())),
    };
    if body.is_empty() {
        return Ok((T::default(), account));
    }
    let counted = account.add(body.len() * OPTIONS_RATIO);
    counted.map_err(IntoResponse::into_response)?;
    let read = serde_json::from_slice(&body.whole());
    let read = read.map_err(|e| error(StatusCode::BAD_REQUEST, format!("malformed body: {e}")))?;
    Ok((read, account))
}

#[derive(Deserialize, Default)]
struct IndexOptions {
    #[serde(default)]
    ready: bool,
}

pub(super) async fn index(Shared(state): Shared<SharedState>, request: Request) -> Result<Response, Response> {
    let (wanted, _) = options::<IndexOptions>(&state, request).await?;
    Ok(json(StatusCode::OK, &state.manager.index(wanted.ready).await))
}

/// Body of a load or unload.
#[derive(Deserialize, Default)]
struct ChangeOptions {
    #[serde(default)]
    parameters: BTreeMap<String, IgnoredAny>,
}

/// Names of the parameters of a load or unload. If neither is allowed, the body is not read.
async fn parameters(state: &SharedState, model: &str, request: Request) -> Result<(Vec<String>, Account), Response> {
    if let Err(refusal) = state.manager.allow_change(model) {
        discard(request.into_body()).await;
        return Err(refusal.into_response());
    }
    let (wanted, account) = options::<ChangeOptions>(state, request).await?;
    Ok((wanted.parameters.into_keys().collect(), account))
}

/// Reports what was loaded and the time by stage; Triton's clients read no body here.
pub(super) async fn load(
    Shared(state): Shared<SharedState>,
    Named(target): Named,
    request: Request,
) -> Result<Response, Response> {
    let (parameters, _account) = parameters(&state, &target.model, request).await?;
    Ok(answer(state.manager.load_by_request(&target.model, &parameters).await))
}

pub(super) async fn unload(
    Shared(state): Shared<SharedState>,
    Named(target): Named,
    request: Request,
) -> Result<StatusCode, Response> {
    let (parameters, _account) = parameters(&state, &target.model, request).await?;
    let unloaded = state.manager.unload_by_request(&target.model, &parameters).await;
    unloaded.map(|()| StatusCode::OK).map_err(IntoResponse::into_response)
}

pub(super) async fn model_trace_settings(Shared(state): Shared<SharedState>, Named(target): Named) -> Response {
    answer(state.manager.find(&target).map(|_| state::trace_settings()))
}

pub(super) async fn trace_settings() -> Response {
    json(StatusCode::OK, &state::trace_settings())
}

pub(super) async fn set_trace(Shared(state): Shared<SharedState>, request: Request) -> Result<Response, Response> {
    let (wanted, _) = options::<state::Settings>(&state, request).await?;
    Ok(answer(state::change_trace(&wanted)))
}

pub(super) async fn set_model_trace(
    Shared(state): Shared<SharedState>,
    Named(target): Named,
    request: Request,
) -> Result<Response, Response> {
    let (wanted, _) = options::<state::Settings>(&state, request).await?;
    let found = state.manager.find(&target);
    Ok(answer(found.and_then(|_| state::change_trace(&wanted))))
}

pub(super) async fn log_settings() -> Response {
    json(StatusCode::OK, &state::log_settings())
}

pub(super) async fn set_log(Shared(state): Shared<SharedState>, request: Request) -> Result<Response, Response> {
    let (wanted, _) = options::<state::Settings>(&state, request).await?;
    Ok(answer(state::change_log(&wanted)))
}

/// No region is ever registered, so the list is empty.
pub(super) async fn shared_memory_status() -> Response {
    (StatusCode::OK, [(CONTENT_TYPE, JSON)], "[]").into_response()
}

pub(super) async fn register_shared_memory(request: Request) -> Response {
    discard(request.into_body()).await;
    state::no_shared_memory().into_response()
}

/// No region is ever registered; succeeds as in Triton.
pub(super) async fn unregister_shared_memory(request: Request) -> Response {
    discard(request.into_body()).await;
    (StatusCode::OK, [(CONTENT_TYPE, JSON)], "{}").into_response()
}

/// Text of all metrics. With hundreds of models it takes longer than other requests may wait.
fn metrics_text(registry: &Registry) -> prometheus::Result<String> {
    offload_large(LARGE_BYTES, || TextEncoder::new().encode_to_string(&registry.gather()))
}

pub(super) async fn metrics(Shared(state): Shared<SharedState>, headers: HeaderMap) -> Response {
    state.metrics().settle();
    let text = match metrics_text(&state.registry) {
        Ok(text) => text,
        Err(e) => return error(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {e}")),
    };
    let text = vec![Piece::Own(text.into())];
    let accepted = Coding::accepted(&headers);
    let packed = offload_large(LARGE_BYTES, || coding::deflate(accepted, text, &Unlimited));
    let (pieces, encoding) = packed.unwrap_or_default();
    let body = Encoded { pieces, json_len: None }.into_data().into_whole();
    let mut response = ([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], body).into_response();
    let encoding = encoding.map(|value| (CONTENT_ENCODING, value));
    response.headers_mut().extend(encoding);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use prometheus::core::{Collector, Desc};
    use prometheus::proto::MetricFamily;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Far more than it takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Metrics that are complete once another task of the runtime has run.
    struct Slow {
        began: Sender<()>,
        served: Mutex<Receiver<()>>,
    }

    impl Collector for Slow {
        fn desc(&self) -> Vec<&Desc> {
            Vec::new()
        }

        fn collect(&self) -> Vec<MetricFamily> {
            self.began.send(()).unwrap();
            self.served.lock().recv_timeout(PATIENCE).unwrap();
            Vec::new()
        }
    }

    #[test]
    fn others_are_served_while_metrics_are_gathered_on_the_only_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let ((began, has_begun), (serve, served)) = (channel(), channel());
        let served = Mutex::new(served);
        let registry = Registry::new();
        registry.register(Box::new(Slow { began, served })).unwrap();
        let text = runtime.spawn(async move { metrics_text(&registry) });
        has_begun.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move { serve.send(()).unwrap() });
        assert_eq!(runtime.block_on(text).unwrap().unwrap(), "");
    }
}
