//! The HTTP front: the Open Inference Protocol v2 as KServe and Triton speak it, `/metrics`, and a page for people at `/`.
//!
//! In: HTTP requests. Out: replies; every error is `{"error": …}` with its status. Bodies are received here and passed
//! to the pipeline; nothing here knows how a request is answered.

pub(crate) mod body;
pub(crate) mod coding;
mod documents;
mod infer;
mod openapi;
mod page;
mod shortcut;

use crate::front::access::PAGE;
use crate::front::state::SharedState;
use crate::front::{discard, error};
use crate::models::served_models::{Target, shorten};
use crate::telemetry::Front;
use axum::Router;
use axum::extract::{FromRequestParts, Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use documents::*;
use http::request::Parts;
use http::{Method, StatusCode};
use std::sync::Arc;

/// All routes, and the shortcut for infer requests.
pub(crate) struct HttpRoutes {
    state: SharedState,
    router: Router,
}

impl HttpRoutes {
    pub(crate) fn new(state: SharedState) -> Self {
        let mut router = Router::new();
        for (path, serve) in routes() {
            router = router.route(&path, serve);
        }
        let router = router.fallback(no_route).method_not_allowed_fallback(other_method);
        Self {
            router: router.with_state(Arc::clone(&state)),
            state,
        }
    }
}

impl crate::front::Routes for HttpRoutes {
    const FRONT: Front = Front::Http;

    /// Most requests are inferences: they bypass the router's tables, boxes and maps. Both futures are boxed, because
    /// the future that contains them is copied when a connection starts a request.
    async fn answer(&self, request: Request) -> Response {
        match shortcut::target(request.method(), request.uri().path()) {
            Some(target) => Box::pin(infer::answer(&self.state, &target, request)).await,
            None => Box::pin(self.router.answer(request)).await,
        }
    }
}

/// Model named in a path, unescaped. Extraction errors have the usual form.
struct Named(Target);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let found = Path::<Target>::from_request_parts(parts, state).await;
        found
            .map(|Path(target)| Self(target))
            .map_err(|refused| error(refused.status(), refused.body_text()))
    }
}

async fn no_route(request: Request) -> Response {
    let (request, body) = request.into_parts();
    discard(body).await;
    let path = shorten(request.uri.path());
    let message = format!("unknown route `{path}`: see /openapi.json for the list");
    error(StatusCode::NOT_FOUND, message)
}

/// Answers a known path with an unsupported method. The router adds `Allow`, since it knows the supported ones.
async fn other_method(request: Request) -> Response {
    let (request, body) = request.into_parts();
    discard(body).await;
    if request.method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let (method, path) = (request.method, shorten(request.uri.path()));
    let message = format!("{method} is not allowed on `{path}`: use a method of the header Allow");
    error(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// All handlers, by path. The OpenAPI document describes them in `operations.json`; a test compares the two.
fn routes() -> Vec<(String, MethodRouter<SharedState>)> {
    let mut routes = vec![
        (PAGE.to_owned(), page::serve()),
        ("/v2".to_owned(), get(server_metadata)),
        ("/v2/".to_owned(), get(server_metadata)),
        ("/v2/health/live".to_owned(), get(live)),
        ("/v2/health/ready".to_owned(), get(ready)),
        ("/openapi.json".to_owned(), openapi::serve()),
        ("/metrics".to_owned(), get(metrics)),
        ("/v2/models/stats".to_owned(), get(all_stats)),
        ("/v2/repository/index".to_owned(), post(index)),
        ("/v2/repository/models/{model}/load".to_owned(), post(load)),
        ("/v2/repository/models/{model}/unload".to_owned(), post(unload)),
    ];
    for base in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        routes.extend([
            (base.to_owned(), get(model_metadata)),
            (format!("{base}/ready"), get(model_ready)),
            (format!("{base}/config"), get(model_config)),
            (format!("{base}/stats"), get(model_stats)),
            (format!("{base}/infer"), post(infer::infer)),
        ]);
    }
    // Triton's extensions that its clients request but that are not offered here: answered, but changes are refused.
    let trace = get(trace_settings).post(set_trace);
    let model_trace = get(model_trace_settings).post(set_model_trace);
    routes.extend([
        ("/v2/logging".to_owned(), get(log_settings).post(set_log)),
        ("/v2/trace/setting".to_owned(), trace),
        ("/v2/models/{model}/trace/setting".to_owned(), model_trace),
    ]);
    for kind in ["/v2/systemsharedmemory", "/v2/cudasharedmemory"] {
        for base in [kind.to_owned(), format!("{kind}/region/{{region}}")] {
            routes.push((format!("{base}/status"), get(shared_memory_status)));
            routes.push((format!("{base}/unregister"), post(unregister_shared_memory)));
        }
        let register = format!("{kind}/region/{{region}}/register");
        routes.push((register, post(register_shared_memory)));
    }
    routes
}
