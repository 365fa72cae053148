//! Plan of requests to any HTTP endpoint. Plain data, sent to load processes unchanged.

use super::success::Success;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Requests to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSpec {
    /// HTTP method.
    pub method: String,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// Value of `Content-Type` for the body; empty for none.
    pub content_type: String,
    /// Source of bodies.
    pub body: BodySource,
    /// Inferences of one request.
    pub rows_per_request: u32,
    /// Entities for `{entity_id}`.
    pub entities: Option<Entities>,
    /// Rule for a successful reply.
    pub success: Success,
}

/// Source of bodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodySource {
    /// No body.
    Empty,
    /// Template text.
    Text(String),
    /// File with a template.
    File(PathBuf),
    /// File with a body on every line.
    Recorded(PathBuf),
    /// Template with the columns of a CSV file.
    Rows {
        /// Template text.
        template: String,
        /// CSV file with a header.
        rows: PathBuf,
    },
}

/// Entities `first_id .. first_id + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entities {
    /// First id.
    pub first_id: i64,
    /// Number of ids.
    pub count: u64,
}
