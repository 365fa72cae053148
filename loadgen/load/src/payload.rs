//! Protocol and encoding of requests, and the bodies of a step, built before its start so that nothing is encoded while
//! the clock runs.
//!
//! In: the model's inputs and the entities. Out: prepared bodies. Knows no HTTP client.

use crate::recording::Line;
use crate::reply::{Expected, WantedReply};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;
use tierlab_protocol::grpc::client::framed;
use tierlab_protocol::grpc::messages::ModelInferRequest;
use tierlab_protocol::infer::{InferRequest, Tensor};
use tierlab_protocol::metadata::ENTITY_ID;
use tierlab_protocol::tensor::DataType;

/// Encoding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// Body over HTTP.
    Http(Encoding),
    /// Framed message over gRPC.
    Grpc {
        /// Model name.
        model: &'a str,
        /// Model version; default: the server's choice.
        version: Option<&'a str>,
    },
}

/// Body of one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Body {
    /// Encoded body.
    pub bytes: Bytes,
    /// Length of the JSON part if binary tensors follow it.
    pub json_len: Option<usize>,
    /// Expectation for its own reply, if it differs from the step's.
    pub wanted: Option<Arc<WantedReply>>,
    /// Its own request line, in place of the route's.
    pub line: Option<Arc<Line>>,
}

impl Body {
    /// Creates a body that is sent unchanged, all of it JSON or a message.
    pub fn new(bytes: Bytes) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Returns the expectation for the reply to the step's request number `index`: its own, else `of_step`.
    pub(crate) fn expected<'a>(&'a self, index: usize, of_step: &'a Arc<Expected>) -> &'a Arc<Expected> {
        self.wanted.as_ref().map_or(of_step, |wanted| wanted.at(index))
    }

    /// Encodes a request.
    pub fn encode(request: InferRequest, form: Form<'_>) -> Self {
        match form {
            Form::Grpc { model, version } => Self::new(framed(&ModelInferRequest {
                model_version: version.unwrap_or_default().to_owned(),
                ..ModelInferRequest::of(model, request)
            })),
            Form::Http(Encoding::Json) => Self::new(request.encode_json().into()),
            Form::Http(Encoding::Binary) => {
                let (bytes, json_len) = request.encode_binary();
                Self {
                    json_len: Some(json_len),
                    ..Self::new(bytes)
                }
            }
        }
    }
}

/// Compresses a body, at the level of most clients.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    let mut out = Vec::new();
    let mut encoder = GzEncoder::new(bytes, Compression::default());
    // Writing to memory cannot fail.
    let _ = encoder.read_to_end(&mut out);
    out.into()
}

/// Compresses the bodies of a step; bodies that share their bytes are compressed once.
pub fn compress(bodies: &mut [Body]) {
    let mut compressed: HashMap<(usize, usize), Bytes> = HashMap::new();
    let originals: Vec<Bytes> = bodies.iter().map(|body| body.bytes.clone()).collect();
    for (body, original) in bodies.iter_mut().zip(&originals).filter(|(_, bytes)| !bytes.is_empty()) {
        let key = (original.as_ptr().addr(), original.len());
        body.bytes = compressed.entry(key).or_insert_with(|| gzip(original)).clone();
    }
}

/// Creates the tensor of entities whose rows the server joins.
pub fn entity_ids(ids: &[i64]) -> Tensor {
    Tensor {
        name: ENTITY_ID.into(),
        dtype: DataType::Int64,
        shape: vec![ids.len() as i64],
        data: ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>().into(),
    }
}

/// Builds the body of a joined request: the server reads the rows of `ids` itself.
pub fn joined(ids: &[i64], form: Form<'_>) -> Body {
    of_entities(entity_ids(ids), form)
}

/// Builds the body of a request whose only tensor names the entities.
pub(crate) fn of_entities(entities: Tensor, form: Form<'_>) -> Body {
    let request = InferRequest {
        inputs: vec![entities],
        binary_output: form == Form::Http(Encoding::Binary),
        ..InferRequest::default()
    };
    Body::encode(request, form)
}

/// Encoding of tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// JSON numbers.
    #[default]
    Json,
    /// Binary tensor extension, in requests and replies.
    Binary,
}

/// Protocol of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::Display, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Protocol {
    /// Open Inference Protocol over HTTP/1.1.
    #[default]
    Http,
    /// Open Inference Protocol over gRPC, always with binary tensors.
    Grpc,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message as _;
    use tierlab_protocol::grpc::client::unframed;

    #[test]
    fn a_version_is_asked_for_in_the_message() {
        for version in [None, Some("3")] {
            let body = joined(&[1], Form::Grpc { model: "m", version });
            let read = ModelInferRequest::decode(unframed(&body.bytes).unwrap()).unwrap();
            assert_eq!(read.model_name, "m");
            assert_eq!(read.model_version, version.unwrap_or_default());
        }
    }

    proptest! {
        #[test]
        fn joined_bodies_carry_the_ids(ids in prop::collection::vec(any::<i64>(), 1..50), binary: bool) {
            let encoding = if binary { Encoding::Binary } else { Encoding::Json };
            let body = joined(&ids, Form::Http(encoding));
            let request = InferRequest::decode(&body.bytes.into(), body.json_len).unwrap();
            prop_assert_eq!(&request.inputs[0].name, ENTITY_ID);
            prop_assert_eq!(&request.inputs[0].shape, &vec![ids.len() as i64]);
            let read: Vec<i64> = request.inputs[0]
                .data
                .whole()
                .chunks_exact(8)
                .map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap()))
                .collect();
            prop_assert_eq!(read, ids);
            prop_assert_eq!(request.binary_output, binary);
        }
    }
}
