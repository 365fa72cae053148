//! One request of a journey. In: the values so far. Out: the request, and the result of its reply: an outcome, and
//! values values. Knows no clock and no user.

use super::template::{Template, Value};
use crate::driver::{HttpReply, Reply};
use crate::grpc::{Connections, GrpcReply};
use crate::payload::{Body, Form};
use crate::reply::{CheckedReply, Expected, Limit, decode_message};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Method, Request, Url};
use serde_json::Value as Json;
use std::sync::Arc;
use tierlab_analysis::record::{Failure, Outcome};
use tierlab_protocol::infer::{Data, InferRequest};

/// Prepared step.
#[derive(Debug, Clone)]
pub struct JourneyStep {
    /// Name of the step.
    pub name: String,
    /// Transport of its requests.
    pub transport: StepTransport,
    /// Body in its HTTP form, also over gRPC; absent without one.
    pub body: Option<Template>,
    /// Requirement on the reply.
    pub check: Check,
    /// Maximum length of the reply.
    pub limit: Limit,
    /// Values passed to later steps.
    pub extractions: Vec<Extraction>,
}

/// Transport of a step's requests.
#[derive(Debug, Clone)]
pub enum StepTransport {
    /// goose's own client.
    Http {
        /// HTTP method.
        method: Method,
        /// Path after the server's prefix, with its query.
        path: Template,
        /// Headers of every request.
        headers: HeaderMap,
    },
    /// The load generator's connections, because goose's client does not speak gRPC.
    Grpc(GrpcCall),
}

/// Request of a step, built from the values so far.
pub(super) enum StepRequest<'a> {
    Http(Box<Request>),
    /// A framed message.
    Grpc(&'a GrpcCall, Bytes),
}

/// Requirement on a reply.
#[derive(Debug, Clone)]
pub enum Check {
    /// Reply of the model.
    Model(Arc<Expected>),
    /// Reply with this status, or with any status of success.
    Status(Option<u16>),
}

/// Value passed to later steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extraction {
    /// Index among the journey's values.
    pub slot: usize,
    /// Position in the reply: a JSON pointer (RFC 6901).
    pub pointer: String,
}

/// Verdict on a reply.
pub(super) struct CheckedStep {
    pub(super) reply: CheckedReply,
    /// Extracted values with their indices.
    pub(super) values: Vec<(usize, Value)>,
}

impl From<CheckedReply> for CheckedStep {
    fn from(reply: CheckedReply) -> Self {
        let values = Vec::new();
        Self { reply, values }
    }
}

impl JourneyStep {
    /// Builds the request; `url` returns the whole address of a path.
    ///
    /// # Errors
    /// Values of an unsuitable form for their placeholder.
    pub(super) fn request(
        &self,
        url: impl FnOnce(&str) -> Result<Url>,
        values: &[Option<Value>],
    ) -> Result<StepRequest<'_>> {
        let body = self.body.as_ref().map(|body| body.fill(values)).transpose()?;
        match &self.transport {
            StepTransport::Http { method, path, headers } => {
                let mut request = Request::new(method.clone(), url(&path.fill(values)?)?);
                request.headers_mut().clone_from(headers);
                *request.body_mut() = body.map(Into::into);
                Ok(StepRequest::Http(Box::new(request)))
            }
            StepTransport::Grpc(call) => Ok(StepRequest::Grpc(call, call.message(body.unwrap_or_default())?)),
        }
    }

    /// Returns the connections of the step; `None` if goose's client sends it.
    pub(super) const fn grpc(&self) -> Option<&GrpcCall> {
        match &self.transport {
            StepTransport::Http { .. } => None,
            StepTransport::Grpc(call) => Some(call),
        }
    }

    /// Checks a reply and extracts values from it.
    pub(super) fn check(&self, reply: &Reply) -> CheckedStep {
        let checked = match (&self.check, reply) {
            (Check::Model(expected), reply) => reply.check(expected),
            (Check::Status(wanted), Reply::Http(reply)) => by_status(reply, *wanted),
            (Check::Status(_), Reply::Grpc(_)) => {
                CheckedReply::invalid(&"gRPC replies have no HTTP status to check", None)
            }
        };
        if checked.outcome != Outcome::Ok || self.extractions.is_empty() {
            return checked.into();
        }
        match self.extract(reply) {
            Ok(values) => CheckedStep { reply: checked, values },
            Err(what) => CheckedReply::invalid(&what, checked.timings).into(),
        }
    }

    fn extract(&self, reply: &Reply) -> Result<Vec<(usize, Value)>> {
        let reply: Json = match reply {
            Reply::Http(reply) => serde_json::from_slice(&reply.body.bytes)
                .map_err(|error| anyhow!("`take`: the reply is not JSON: {error}"))?,
            Reply::Grpc(reply) => {
                in_http_form(reply).map_err(|error| anyhow!("`take`: cannot read the reply: {error}"))?
            }
        };
        let extract = |extraction: &Extraction| {
            let found = reply.pointer(&extraction.pointer);
            let found = found.with_context(|| format!("`take`: `{}` is missing in the reply", extraction.pointer))?;
            Ok((extraction.slot, Value::of(found)))
        };
        self.extractions.iter().map(extract).collect()
    }
}

fn by_status(reply: &HttpReply, wanted: Option<u16>) -> CheckedReply {
    // Parsed like a model's reply, for the server's stage times.
    let timings = reply.timings();
    let status = reply.status;
    if wanted.map_or(status.is_success(), |wanted| wanted == status.as_u16()) {
        CheckedReply::ok(timings)
    } else {
        CheckedReply::failed(Failure::Status(status.as_u16()), timings)
    }
}

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
    pub(super) fn message(&self, json: String) -> Result<Bytes> {
        let request = InferRequest::decode(&Data::from(Bytes::from(json)), None);
        let request = request.map_err(|error| anyhow!("the request is not an infer request: {error}"))?;
        let form = Form::Grpc {
            model: &self.model,
            version: self.version.as_deref(),
        };
        Ok(Body::encode(request, form).bytes)
    }
}

/// Returns the reply in its HTTP form.
///
/// # Errors
/// A message that is not a reply of a model, or that cannot be written as JSON.
fn in_http_form(reply: &GrpcReply) -> Result<Json> {
    let message = reply.message().context("the reply is not one complete message")?;
    let reply = decode_message(&message)?;
    if let Some(output) = reply.outputs.iter().find(|output| !output.has_json_form()) {
        let (name, dtype) = (&output.name, output.dtype);
        bail!("output `{name}` of type {dtype} cannot be written as JSON, so its values cannot be passed on");
    }
    let (body, _) = reply.encode(&[]);
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::super::template::Usage;
    use super::*;
    use crate::endpoint::{Access, Endpoint};
    use crate::reply::Received;
    use prost::Message as _;
    use reqwest::StatusCode;
    use serde_json::json;
    use tierlab_protocol::grpc::client::{framed, unframed};
    use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelInferResponse};
    use tierlab_protocol::infer::{InferReply, Tensor};
    use tierlab_protocol::tensor::DataType;

    fn step(check: Check, pointer: &str) -> JourneyStep {
        JourneyStep {
            name: "s".into(),
            transport: StepTransport::Http {
                method: Method::GET,
                path: Template::parse("/u/{a}", Usage::Path, &["a".to_owned()]).unwrap(),
                headers: HeaderMap::new(),
            },
            body: None,
            check,
            limit: Limit::of(1_000),
            extractions: vec![Extraction {
                slot: 1,
                pointer: pointer.into(),
            }],
        }
    }

    fn reply(status: u16, body: &'static str) -> Reply {
        let body = Received::complete(Bytes::from_static(body.as_bytes()), None);
        let status = StatusCode::from_u16(status).unwrap();
        Reply::Http(HttpReply::new(status, HeaderMap::new(), body, None))
    }

    #[test]
    fn values_are_taken_or_the_reply_is_wrong() {
        let any = step(Check::Status(None), "/a/0");
        let checked = any.check(&reply(201, r#"{"a":[[1,2]]}"#));
        assert_eq!(checked.reply.outcome, Outcome::Ok);
        assert_eq!(checked.values[0].1.elements, 2);
        for (status, body, failure, message) in [
            (200, r#"{"a":[]}"#, Failure::WrongReply, "`/a/0` is missing"),
            (200, "{", Failure::WrongReply, "not JSON"),
            (404, r#"{"a":[1]}"#, Failure::Status(404), ""),
        ] {
            let checked = any.check(&reply(status, body));
            assert_eq!(checked.reply.outcome, Outcome::Failed(failure));
            assert!(checked.values.is_empty());
            assert!(checked.reply.message.unwrap_or_default().contains(message));
        }
        let exact = step(Check::Status(Some(404)), "/a/0");
        assert_eq!(exact.check(&reply(404, r#"{"a":[1]}"#)).reply.outcome, Outcome::Ok);
        assert_ne!(exact.check(&reply(200, r#"{"a":[1]}"#)).reply.outcome, Outcome::Ok);
        let model = step(Check::Model(Arc::new(Expected::new("m", &[], None))), "/outputs/0/data");
        let good = r#"{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;
        assert_eq!(model.check(&reply(200, good)).reply.outcome, Outcome::Ok);
        let fault = model.check(&reply(200, r#"{"error":"no"}"#)).reply.outcome;
        assert_eq!(fault, Outcome::Failed(Failure::WrongReply));
    }

    #[test]
    fn the_address_is_the_hosts_with_the_path() {
        let value = Some(Value::of(&serde_json::json!("x y")));
        let url = |path: &str| Ok(format!("http://h:1{path}").parse().unwrap());
        let step = step(Check::Status(None), "");
        let Ok(StepRequest::Http(request)) = step.request(url, &[value]) else {
            panic!("a request over HTTP");
        };
        assert_eq!(request.url().as_str(), "http://h:1/u/x%20y");
        assert!(request.body().is_none() && step.request(url, &[None]).is_err());
    }

    fn call(version: Option<&str>) -> GrpcCall {
        let endpoint = Endpoint::new("http://127.0.0.1:9", &Access::default()).unwrap();
        GrpcCall {
            connections: Arc::new(Connections::new(Arc::new(endpoint), 1, None).unwrap()),
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
        let decoded = InferRequest::try_from(message).unwrap();
        let same = InferRequest::decode(&Data::from(Bytes::from(body.to_string())), None).unwrap();
        assert_eq!(decoded.inputs, same.inputs);
        let refused = call(None).message("{\"inputs\":[]".into()).unwrap_err().to_string();
        assert!(refused.contains("not an infer request"), "{refused}");
    }

    fn grpc_reply(outputs: Vec<Tensor>) -> GrpcReply {
        let message = ModelInferResponse::from(InferReply {
            model_name: "m".into(),
            model_version: "1".into(),
            id: None,
            outputs,
        });
        GrpcReply::complete(framed(&message))
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
        let decoded = in_http_form(&grpc_reply(vec![tensor(DataType::Fp32, floats)])).unwrap();
        assert_eq!(decoded.pointer("/outputs/0/data"), Some(&json!([0.25, 0.5])));
        assert_eq!(decoded.pointer("/model_version"), Some(&json!("1")));
        let half = in_http_form(&grpc_reply(vec![tensor(DataType::Fp16, vec![0; 4])])).unwrap_err();
        assert!(half.to_string().contains("`y` of type FP16"), "{half}");
    }
}
