//! The model that a request's path names.
//!
//! In: a path that the router has matched. Out: the target; or what is wrong with its escapes, said as every error is.

use crate::front::reply::error;
use crate::models::served_models::Target;
use axum::extract::{FromRequestParts, Path};
use axum::response::Response;
use http::request::Parts;

/// The model of a path, with its escapes taken out.
pub(super) struct Named(pub(super) Target);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let found = Path::<Target>::from_request_parts(parts, state).await;
        let refused =
            |rejection: axum::extract::rejection::PathRejection| error(rejection.status(), rejection.body_text());
        found.map(|Path(target)| Self(target)).map_err(refused)
    }
}
