//! Plan of requests to any HTTP endpoint. Plain data, sent to load processes unchanged.

use super::success::Success;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Requests to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSpec {
    /// The method.
    pub method: String,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// The body's `Content-Type`; none where it is empty.
    pub content_type: String,
    /// Source of bodies.
    pub body: BodySource,
    /// Inferences of one request.
    pub rows_per_request: u32,
    /// The ids that stand for `{entity_id}`.
    pub entities: Option<Entities>,
    /// When a reply is a success.
    pub success: Success,
}

/// Source of bodies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodySource {
    /// There are none.
    Empty,
    /// A template.
    Text(String),
    /// The file of a template.
    File(PathBuf),
    /// A file whose every line is a body.
    Recorded(PathBuf),
    /// A template, and a CSV file whose columns stand in it.
    Rows {
        /// The template.
        template: String,
        /// The file, with a header.
        rows: PathBuf,
    },
}

/// Entities `first_id .. first_id + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entities {
    /// The first.
    pub first_id: i64,
    /// Number of ids.
    pub count: u64,
}
