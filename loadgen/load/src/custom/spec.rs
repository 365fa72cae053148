//! Plan of requests to any HTTP endpoint. Plain data, sent to load processes unchanged.

use super::replies::{StreamSpec, Success};
use crate::inputs::Lengths;
use crate::recording::RecordingSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Requests to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomSpec {
    /// HTTP method.
    pub method: String,
    /// Path and query, behind the prefix of the server's address.
    pub path: String,
    /// Value of `Content-Type` for the body; empty omits the header.
    pub content_type: String,
    /// Source of bodies.
    pub body: BodySource,
    /// Inferences of one request.
    pub rows_per_request: u32,
    /// Entities for `{entity_id}`.
    pub entities: Option<EntityRange>,
    /// Values drawn for each request, by the names of their placeholders in the template.
    pub values: BTreeMap<String, Drawn>,
    /// Rule for a successful reply.
    pub success: Success,
    /// Set if replies stream.
    pub stream: Option<StreamSpec>,
}

/// Value drawn for each request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drawn {
    /// Whole number.
    Number(Lengths),
    /// Text with this number of random words.
    Words(Lengths),
    /// Text with a recorded number of words.
    Recorded {
        /// Name of the recorded number.
        words: String,
        /// Name of the recorded ids of its blocks of 512 words; equal ids have equal words.
        blocks: Option<String>,
    },
}

impl Drawn {
    /// Names of the recorded values that it takes.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Number(_) | Self::Words(_) => [None, None],
            Self::Recorded { words, blocks } => [Some(words), blocks.as_ref()],
        };
        names.into_iter().flatten().map(String::as_str)
    }
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
    /// Recorded requests with their own times. A template, if given, replaces their bodies.
    Replay {
        /// Recorded requests.
        recording: RecordingSpec,
        /// Template text.
        template: Option<String>,
    },
    /// Template filled with the columns of a CSV file.
    Rows {
        /// Template text.
        template: String,
        /// CSV file with a header.
        rows: PathBuf,
    },
}

impl BodySource {
    /// File that bodies are built from.
    pub const fn file_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Empty | Self::Text(_) => None,
            Self::File(file) | Self::Recorded(file) | Self::Rows { rows: file, .. } => Some(file),
            Self::Replay { recording, .. } => Some(&mut recording.file),
        }
    }
}

/// Entities `first_id .. first_id + count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityRange {
    /// First id.
    pub first_id: i64,
    /// Number of ids.
    pub count: u64,
}
