//! A path that is served, and what the OpenAPI document says of it.

use crate::front::state::SharedState;
use axum::routing::MethodRouter;

/// Body of a reply.
#[derive(Clone, Copy)]
pub(super) enum ReplyBody {
    /// JSON of a schema, by its name.
    Json(&'static str),
    /// Text of a media type.
    Text(&'static str),
}

/// OpenAPI description of one method of a path.
pub(super) struct Operation {
    /// `get` or `post`.
    pub(super) method: &'static str,
    pub(super) summary: &'static str,
    /// The group of the protocol that it belongs to.
    pub(super) tag: &'static str,
    /// The schema of the request's body, by name; none where there is no JSON body.
    pub(super) request: Option<&'static str>,
    pub(super) reply: ReplyBody,
}

/// One path.
pub(super) struct Route {
    pub(super) path: String,
    pub(super) serve: MethodRouter<SharedState>,
    pub(super) operations: Vec<Operation>,
}
