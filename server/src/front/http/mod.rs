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
mod routes;
mod shortcut;

use crate::front::error;
use crate::front::state::SharedState;
use crate::models::served_models::{Target, shown};
use crate::telemetry::Front;
use axum::Router;
use axum::extract::{FromRequestParts, Path, Request};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Method, StatusCode};
use std::sync::Arc;

/// All routes, and the shortcut for infer requests.
pub(crate) struct Routes {
    state: SharedState,
    router: Router,
}

impl Routes {
    pub(crate) fn new(state: SharedState) -> Self {
        let mut router = Router::new();
        for (path, serve) in routes::routes() {
            router = router.route(&path, serve);
        }
        let router = router.fallback(no_route).method_not_allowed_fallback(other_method);
        Self {
            router: router.with_state(Arc::clone(&state)),
            state,
        }
    }
}

impl crate::front::Routes for Routes {
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
    body::discard(body).await;
    error(
        StatusCode::NOT_FOUND,
        format!(
            "unknown route `{}`: see /openapi.json for the list",
            shown(request.uri.path())
        ),
    )
}

/// Answers a known path with an unsupported method. The router adds `Allow`, since it knows the supported ones.
async fn other_method(request: Request) -> Response {
    let (request, body) = request.into_parts();
    body::discard(body).await;
    if request.method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let path = shown(request.uri.path());
    let what = format!(
        "{} is not allowed on `{path}`: use a method of the header Allow",
        request.method
    );
    error(StatusCode::METHOD_NOT_ALLOWED, what)
}
