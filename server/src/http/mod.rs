//! The HTTP front: the Open Inference Protocol v2 as KServe and Triton speak it, and `/metrics`.
//!
//! In: HTTP requests. Out: replies; every error is `{"error": …}` with its status. Bodies are received here and handed to
//! the pipeline; nothing here knows how a request is answered.

mod body;

use crate::model::Model;
use crate::pipeline::Outcome;
use crate::refusal::{Reason, Refusal};
use crate::served::{Entry, Phase, Served};
use crate::state::State;
use crate::stopwatch::Stopwatch;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode, Version};
use prometheus::TextEncoder;
use serde::Serialize;
use std::sync::Arc;
use tierlab_protocol::infer::HEADER_LENGTH;
use tierlab_protocol::metadata::{ErrorDocument, IndexEntry, Live, ModelReady, Ready, ServerMetadata, StatsDocument};

/// Extensions named in the server's metadata.
const EXTENSIONS: [&str; 4] = [
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "statistics",
];
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

type Server = Arc<State>;

/// Every route.
pub(crate) fn router(state: Server) -> Router {
    let model = |base: &str, router: Router<Server>| {
        router
            .route(base, get(model_metadata))
            .route(&format!("{base}/ready"), get(model_ready))
            .route(&format!("{base}/config"), get(model_config))
            .route(&format!("{base}/stats"), get(model_stats))
            .route(&format!("{base}/infer"), post(infer))
    };
    let router = Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models/stats", get(all_stats))
        .route("/v2/repository/index", post(index))
        .route("/v2/repository/models/{model}/load", post(load_or_unload))
        .route("/v2/repository/models/{model}/unload", post(load_or_unload))
        .route("/metrics", get(metrics));
    let router = model("/v2/models/{model}", router);
    let router = model("/v2/models/{model}/versions/{version}", router);
    router
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(state)
}

/// What a path names.
#[derive(serde::Deserialize)]
struct Target {
    model: String,
    version: Option<String>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.reason.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = error(status, self.message);
        if let Some(seconds) = self.reason.retry_after_s() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn json<T: Serialize>(status: StatusCode, document: &T) -> Response {
    // Documents of strings and numbers serialise without fail.
    let body = serde_json::to_vec(document).unwrap_or_default();
    (status, [(CONTENT_TYPE, JSON)], body).into_response()
}

fn error(status: StatusCode, message: String) -> Response {
    json(status, &ErrorDocument { error: message })
}

async fn no_route(request: Request) -> Response {
    let (request, body) = request.into_parts();
    body::discard(body).await;
    error(
        StatusCode::NOT_FOUND,
        format!("no route `{}`", shown(request.uri.path())),
    )
}

async fn wrong_method(request: Request) -> Response {
    let (request, body) = request.into_parts();
    body::discard(body).await;
    let path = request.uri.path();
    let post = path.ends_with("/infer") || path.starts_with("/v2/repository/");
    let allowed = if post { "POST" } else { "GET, HEAD" };
    let what = format!("{} is not allowed on `{}`: use {allowed}", request.method, shown(path));
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, what);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

async fn live() -> Response {
    json(StatusCode::OK, &Live { live: true })
}

async fn ready(Shared(state): Shared<Server>) -> Response {
    let ready = state.phase() == Phase::Ready;
    json(
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        &Ready { ready },
    )
}

async fn server_metadata() -> Response {
    let document = ServerMetadata {
        name: "tierlab".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    };
    json(StatusCode::OK, &document)
}

/// The model of a path, or why there is none.
fn find(state: &State, target: &Target) -> Result<Arc<Model>, Refusal> {
    let Some(served) = state.served() else {
        return Err(Refusal::new(Reason::NotReady, "the models are still being loaded"));
    };
    let unknown = |what: String| Refusal::new(Reason::UnknownModel, what);
    match served.find(&target.model) {
        Some(Entry::Ready(model)) => match &target.version {
            Some(version) if *version != model.version => Err(unknown(format!(
                "model `{}` has no version `{version}`: {} is served",
                model.name, model.version
            ))),
            _ => Ok(Arc::clone(model)),
        },
        Some(Entry::Refused(why)) => Err(Refusal::new(
            Reason::NotReady,
            format!("model `{}` is not served: {why}", target.model),
        )),
        None => Err(unknown(format!("no model `{}`", shown(&target.model)))),
    }
}

/// A name from a client, shortened for a message.
fn shown(name: &str) -> String {
    name.chars().take(128).collect()
}

async fn model_metadata(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    find(&state, &target).map_or_else(IntoResponse::into_response, |model| {
        json(StatusCode::OK, &model.metadata())
    })
}

async fn model_ready(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    match find(&state, &target) {
        Ok(model) => {
            let ready = state.phase() == Phase::Ready;
            let status = if ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            json(
                status,
                &ModelReady {
                    name: model.name.clone(),
                    ready,
                },
            )
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn model_config(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    find(&state, &target).map_or_else(IntoResponse::into_response, |model| {
        json(StatusCode::OK, &model.config_document())
    })
}

async fn model_stats(Shared(state): Shared<Server>, Path(target): Path<Target>) -> Response {
    find(&state, &target).map_or_else(IntoResponse::into_response, |model| {
        json(
            StatusCode::OK,
            &StatsDocument {
                model_stats: vec![model.stats_entry()],
            },
        )
    })
}

async fn all_stats(Shared(state): Shared<Server>) -> Response {
    let models = state.served().into_iter().flat_map(Served::models);
    json(
        StatusCode::OK,
        &StatsDocument {
            model_stats: models.map(|model| model.stats_entry()).collect(),
        },
    )
}

async fn index(Shared(state): Shared<Server>, request: Request) -> Response {
    body::discard(request.into_body()).await;
    let entries = state.served().into_iter().flat_map(Served::entries);
    let index: Vec<IndexEntry> = entries
        .map(|(name, entry)| {
            let (version, state, reason) = match entry {
                Entry::Ready(model) => (model.version.clone(), "READY", String::new()),
                Entry::Refused(why) => (String::new(), "UNAVAILABLE", why.clone()),
            };
            IndexEntry {
                name: name.to_owned(),
                version,
                state: state.to_owned(),
                reason,
            }
        })
        .collect();
    json(StatusCode::OK, &index)
}

async fn load_or_unload(Path(target): Path<Target>, request: Request) -> Response {
    body::discard(request.into_body()).await;
    let what = format!(
        "model `{}` cannot be loaded or unloaded by request: the models are chosen at the start, by `models` in \
         server.toml",
        shown(&target.model)
    );
    error(StatusCode::BAD_REQUEST, what)
}

async fn metrics(Shared(state): Shared<Server>) -> Response {
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

async fn infer(Shared(state): Shared<Server>, Path(target): Path<Target>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let received = body::receive(&head.headers, body, &state.pipeline.admission).await;
    let unread = received.is_err();
    let found = find(&state, &target);
    let known = found.as_ref().ok().map(Arc::clone);
    // What is wrong with the target goes before what is wrong with the body.
    let (model, (incoming, _account)) = match found.and_then(|model| Ok((model, received?))) {
        Ok(taken) => taken,
        Err(refusal) => {
            let model = known.as_ref().map_or("", |model| model.name.as_str());
            state.metrics().count_refusal(model, None, &refusal);
            let mut response = refusal.into_response();
            if unread && head.version < Version::HTTP_2 {
                // The rest of the body would be taken for the next request: the client is told not to send one here.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
    };
    let Outcome { reply, timings } = state.pipeline.infer(&model, incoming, Stopwatch::start()).await;
    let mut response = match reply {
        Ok(outgoing) => {
            let content_type = if outgoing.json_len.is_some() { BINARY } else { JSON };
            let mut response = Response::new(Body::from(outgoing.body));
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            if let Some(len) = outgoing.json_len {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(HEADER_LENGTH), HeaderValue::from(len));
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Ok(header) = HeaderValue::from_str(&timings.to_header()) {
        response.headers_mut().insert(SERVER_TIMING, header);
    }
    response
}
