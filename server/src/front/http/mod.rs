//! The HTTP front: the Open Inference Protocol v2 as KServe and Triton speak it, `/metrics`, and a page for people at `/`.
//!
//! In: HTTP requests. Out: replies; every error is `{"error": …}` with its status. Bodies are received here and handed to
//! the pipeline; nothing here knows how a request is answered.

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

/// Every route, and the short way to one of them.
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

    /// Most requests are inferences: they are spared the router's tables, boxes and maps. Both futures are boxed: the one
    /// that they stand in is copied where a connection begins a request.
    async fn answer(&self, request: Request) -> Response {
        match shortcut::target(request.method(), request.uri().path()) {
            Some(target) => Box::pin(infer::answer(&self.state, &target, request)).await,
            None => Box::pin(self.router.answer(request)).await,
        }
    }
}

/// The model that a path names, with its escapes taken out. An error in them is said as every error is.
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
        format!("no route `{}`: /openapi.json lists them", shown(request.uri.path())),
    )
}

/// A path that is served, but not with this method. `Allow` is added by the router, which knows what would do.
async fn other_method(request: Request) -> Response {
    let (request, body) = request.into_parts();
    body::discard(body).await;
    if request.method == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let path = shown(request.uri.path());
    let what = format!(
        "{} is not allowed on `{path}`: the header Allow says what is",
        request.method
    );
    error(StatusCode::METHOD_NOT_ALLOWED, what)
}
