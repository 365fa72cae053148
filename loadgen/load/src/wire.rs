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
    /// With the binary tensor extension, both ways.
    Binary,
}

/// Protocol of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The Open Inference Protocol over HTTP/1.1.
    #[default]
    Http,
    /// The same over gRPC, tensors always binary.
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
