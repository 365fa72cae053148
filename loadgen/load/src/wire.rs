//! Protocol of requests and encoding of their tensors. In: TOML. Out: protocol and encoding.

use serde::Deserialize;
use std::fmt;

/// Encoding of tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// JSON numbers.
    #[default]
    Json,
    /// Binary tensor extension, in requests and replies.
    Binary,
}

/// Protocol of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Open Inference Protocol over HTTP/1.1.
    #[default]
    Http,
    /// Open Inference Protocol over gRPC, always with binary tensors.
    Grpc,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        })
    }
}
