//! The documents of the protocol over HTTP: health, metadata, configuration, statistics, the index, settings, metrics.
//!
//! In: requests without a body that matters. Out: JSON, and Prometheus text. What the documents say is decided elsewhere.

use super::{JSON, Server, body, error, json};
use crate::manage::Target;
use crate::served::Phase;
use crate::settings;
use axum::extract::{Path, Request, State as Shared};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use prometheus::TextEncoder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tierlab_protocol::metadata::{Live, ModelReady, Ready};

/// Bytes of a small JSON body at most: options of the index, settings.
const MAX_OPTIONS_BYTES: usize = 64 << 10;

fn answer<T: Serialize, E: IntoResponse>(document: Result<T, E>) -> Response {
    document.map_or_else(E::into_response, |document| json(StatusCode::OK, &document))
}

fn ok_or_unavailable(ready: bool) -> StatusCode {
    if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

pub(super) async fn live() -> Response {
    json(StatusCode::OK, &Live { live: true })
}

pub(super) async fn ready(Shared(state): Shared<Server>) -> Response {
    let ready = state.phase() == Phase::Ready;
    json(ok_or_unavailable(ready), &Ready { ready })
}

pub(super) async fn server_metadata(Shared(state): Shared<Server>) -> Response {
    json(StatusCode::OK, &state.server_metadata())
}

pub(super) async fn model_metadata(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    answer(state.model_metadata(&target))
}

pub(super) async fn model_ready(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    state
        .model_ready(&target)
        .map_or_else(IntoResponse::into_response, |ready| {
            let name = target.model;
            json(ok_or_unavailable(ready), &ModelReady { name, ready })
        })
}

pub(super) async fn model_config(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    answer(state.model_config(&target))
}

pub(super) async fn model_stats(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    answer(state.statistics(Some(&target)))
}

pub(super) async fn all_stats(Shared(state): Shared<Server>) -> Response {
    answer(state.statistics(None))
}

/// The small JSON body of a management call; an empty one is all defaults.
async fn options<T: for<'de> Deserialize<'de> + Default>(request: Request) -> Result<T, Response> {
    let body = http_body_util::Limited::new(request.into_body(), MAX_OPTIONS_BYTES);
    let bytes = tokio::time::timeout(body::DISCARD_TIME, body.collect()).await;
    let bytes = match bytes {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(e)) => return Err(error(StatusCode::BAD_REQUEST, format!("the body: {e}"))),
        Err(_) => {
            return Err(error(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not arrive in time".into(),
            ));
        }
    };
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&bytes).map_err(|e| error(StatusCode::BAD_REQUEST, format!("malformed body: {e}")))
}

#[derive(Deserialize, Default)]
struct IndexOptions {
    #[serde(default)]
    ready: bool,
}

pub(super) async fn index(Shared(state): Shared<Server>, request: Request) -> Response {
    match options::<IndexOptions>(request).await {
        Ok(wanted) => json(StatusCode::OK, &state.index(wanted.ready).await),
        Err(response) => response,
    }
}

/// The body of a load or unload.
#[derive(Deserialize, Default)]
struct ChangeOptions {
    #[serde(default)]
    parameters: BTreeMap<String, IgnoredAny>,
}

/// The names of the parameters of a load or unload. Where neither is allowed, nothing of the body is taken in.
async fn parameters(state: &Server, model: &str, request: Request) -> Result<Vec<String>, Response> {
    if let Err(refusal) = state.management.allow_change(model) {
        body::discard(request.into_body()).await;
        return Err(refusal.into_response());
    }
    let wanted = options::<ChangeOptions>(request).await?;
    Ok(wanted.parameters.into_keys().collect())
}

/// Tells what was loaded and where the time went; Triton's clients read no body here.
pub(super) async fn load(Shared(state): Shared<Server>, Path(target): Path<Target>, request: Request) -> Response {
    match parameters(&state, &target.model, request).await {
        Ok(parameters) => answer(state.load_model(&target.model, &parameters).await),
        Err(response) => response,
    }
}

pub(super) async fn unload(Shared(state): Shared<Server>, Path(target): Path<Target>, request: Request) -> Response {
    match parameters(&state, &target.model, request).await {
        Ok(parameters) => {
            let unloaded = state.unload_model(&target.model, &parameters).await;
            unloaded.map_or_else(IntoResponse::into_response, |()| StatusCode::OK.into_response())
        }
        Err(response) => response,
    }
}

pub(super) async fn trace_settings() -> Response {
    json(StatusCode::OK, &settings::Trace::current())
}

pub(super) async fn model_trace_settings(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    answer(state.find(&target).map(|_| settings::Trace::current()))
}

pub(super) async fn set_trace_settings(request: Request) -> Response {
    match options::<settings::Changes>(request).await {
        Ok(wanted) => answer(settings::Trace::change(&wanted)),
        Err(response) => response,
    }
}

pub(super) async fn log_settings() -> Response {
    json(StatusCode::OK, &settings::Log::current())
}

pub(super) async fn set_log_settings(request: Request) -> Response {
    match options::<settings::Changes>(request).await {
        Ok(wanted) => answer(settings::Log::change(&wanted)),
        Err(response) => response,
    }
}

/// No region is ever registered, so there is none to tell of.
pub(super) async fn shared_memory_status() -> Response {
    (StatusCode::OK, [(CONTENT_TYPE, JSON)], "[]").into_response()
}

pub(super) async fn register_shared_memory(request: Request) -> Response {
    body::discard(request.into_body()).await;
    settings::no_shared_memory().into_response()
}

/// What is not registered need not be forgotten: done, as Triton says too.
pub(super) async fn unregister_shared_memory(request: Request) -> Response {
    body::discard(request.into_body()).await;
    (StatusCode::OK, [(CONTENT_TYPE, JSON)], "{}").into_response()
}

pub(super) async fn metrics(Shared(state): Shared<Server>) -> Response {
    state.metrics().settle();
    match TextEncoder::new().encode_to_string(&state.registry.gather()) {
        Ok(text) => (
            [(CONTENT_TYPE, HeaderValue::from_static(prometheus::TEXT_FORMAT))],
            text,
        )
            .into_response(),
        Err(e) => error(StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {e}")),
    }
}
