//! Step over gRPC. In: the step's request as JSON, as sent over HTTP. Out: the equivalent message, and the reply as
//! JSON for the pointers of `take`. So a step has one form for both protocols. Knows no clock and no user.

use crate::grpc::{Connections, GrpcReply};
use bytes::Bytes;
use prost::Message as _;
use serde_json::Value as Json;
use std::sync::Arc;
use tierlab_protocol::grpc::client::framed;
use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelInferResponse};
use tierlab_protocol::infer::InferReply;
use tierlab_protocol::infer::{Data, InferRequest};

/// Connections and model of a step's calls.
#[derive(Debug, Clone)]
pub struct GrpcCall {
    /// Connections to the server, shared by all users and steps of a journey.
    pub connections: Arc<Connections>,
    /// Model name.
    pub model: String,
    /// Model version; default: the server's choice.
    pub version: Option<String>,
}

impl GrpcCall {
    /// Framed message of a request.
    ///
    /// # Errors
    /// Text that is not an infer request.
    pub(super) fn message(&self, json: String) -> Result<Bytes, String> {
        let request = InferRequest::decode(&Data::from(Bytes::from(json)), None);
        let request = request.map_err(|error| format!("the request is no message: {error}"))?;
        let mut message = ModelInferRequest::of(&self.model, request);
        if let Some(version) = &self.version {
            message.model_version.clone_from(version);
        }
        Ok(framed(&message))
    }
}

/// Returns the reply in its HTTP form.
///
/// # Errors
/// A message that is not a reply of a model, or that cannot be written as JSON.
pub(super) fn json(reply: &GrpcReply) -> Result<Json, String> {
    let message = reply.message().ok_or("the reply is not one whole message")?;
    let message = ModelInferResponse::decode(message).map_err(|error| error.to_string())?;
    let reply = InferReply::try_from(message).map_err(|error| error.to_string())?;
    if let Some(output) = reply.outputs.iter().find(|output| !output.has_json_form()) {
        return Err(format!(
            "output `{}` of {} has no form as JSON, which values are handed on as",
            output.name, output.dtype
        ));
    }
    let (body, _) = reply.encode(&[]);
    serde_json::from_slice(&body).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Access, Endpoint};
    use serde_json::json;
    use tierlab_protocol::grpc::client::unframed;
    use tierlab_protocol::infer::Tensor;
    use tierlab_protocol::tensor::DataType;

    fn call(version: Option<&str>) -> GrpcCall {
        let endpoint = Endpoint::new("http://127.0.0.1:9", &Access::default()).unwrap();
        GrpcCall {
            connections: Arc::new(Connections::new(Arc::new(endpoint), 1).unwrap()),
            model: "m".into(),
            version: version.map(str::to_owned),
        }
    }

    #[test]
    fn a_message_says_what_the_json_says() {
        let body = json!({"id": "7", "inputs": [
            {"name": "t", "datatype": "BYTES", "shape": [1], "data": ["about u 7"]},
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.5]},
        ]});
        let framed = call(Some("3")).message(body.to_string()).unwrap();
        let message = ModelInferRequest::decode(unframed(&framed).unwrap()).unwrap();
        assert_eq!(
            (&*message.model_name, &*message.model_version, &*message.id),
            ("m", "3", "7")
        );
        let told = InferRequest::try_from(message).unwrap();
        let same = InferRequest::decode(&Data::from(Bytes::from(body.to_string())), None).unwrap();
        assert_eq!(told.inputs, same.inputs);
        let refused = call(None).message("{\"inputs\":[]".into()).unwrap_err();
        assert!(refused.contains("no message"), "{refused}");
    }

    fn reply(outputs: Vec<Tensor>) -> GrpcReply {
        let message = ModelInferResponse::from(InferReply {
            model_name: "m".into(),
            model_version: "1".into(),
            id: None,
            outputs,
        });
        GrpcReply::whole(framed(&message))
    }

    #[test]
    fn values_stand_where_they_stand_over_http() {
        let tensor = |dtype, data: Vec<u8>| Tensor {
            name: "y".into(),
            dtype,
            shape: vec![1, 2],
            data: data.into(),
        };
        let floats: Vec<u8> = [0.25_f32, 0.5].iter().flat_map(|value| value.to_le_bytes()).collect();
        let told = json(&reply(vec![tensor(DataType::Fp32, floats)])).unwrap();
        assert_eq!(told.pointer("/outputs/0/data"), Some(&json!([0.25, 0.5])));
        assert_eq!(told.pointer("/model_version"), Some(&json!("1")));
        let half = json(&reply(vec![tensor(DataType::Fp16, vec![0; 4])])).unwrap_err();
        assert!(half.contains("`y` of FP16"), "{half}");
    }
}
