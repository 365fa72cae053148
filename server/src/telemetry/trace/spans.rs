//! Converts a finished request to its spans: one for the request, and below it one for the body's arrival and for each
//! stage.
//!
//! Pure. Names and attributes follow OpenTelemetry's semantic conventions for HTTP and RPC servers if those define any,
//! <https://opentelemetry.io/docs/specs/semconv/>; the server's own begin with `tierlab.`.

use super::{RequestContext, RequestOutcome};
use crate::telemetry::Front;
use http::Method;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanEvents, SpanLinks};
use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};
use tierlab_protocol::timing::{Stage, StageTimings};

/// Stages in the order of a request.
const ORDER: [Stage; Stage::COUNT] = [
    Stage::Admit,
    Stage::Decode,
    Stage::Cache,
    Stage::Tier,
    Stage::Join,
    Stage::Batch,
    Stage::Infer,
    Stage::Encode,
];

/// True if a request gets a span: calls that infer or change something, but no status calls.
pub(super) fn wants_span(method: &Method, path: &str) -> bool {
    let is_status = matches!(
        path.rsplit('/').next(),
        Some("ServerLive" | "ServerReady" | "ModelReady" | "ServerMetadata" | "Check" | "Watch")
    );
    *method == Method::POST && !is_status
}

/// Span of a request in progress.
#[derive(Debug)]
pub(super) struct OpenSpan {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) started: Instant,
    pub(super) started_at: SystemTime,
}

/// Finished request.
pub(super) struct Finished<'a> {
    pub(super) span: &'a OpenSpan,
    pub(super) context: &'a RequestContext,
    /// Status of the reply; `None` if the client went away before.
    pub(super) status: Option<u16>,
    pub(super) answered: Option<RequestOutcome>,
}

impl Finished<'_> {
    /// Spans; the request's is first.
    pub(super) fn spans(&self, ids: &impl IdGenerator) -> Vec<SpanData> {
        let mut spans = vec![self.request()];
        let Some(answered) = &self.answered else {
            return spans;
        };
        let began = self.at(answered.began.saturating_duration_since(self.span.started));
        let above = self.span.span_id;
        spans.push(self.new_span("receive".into(), ids.new_span_id(), above, self.span.started_at..began));
        let mut from = began;
        for stage in ORDER {
            let time = answered.timings.get(stage);
            if time.is_zero() {
                continue;
            }
            let until = from + time;
            let mut span = self.new_span(stage.as_str().into(), ids.new_span_id(), above, from..until);
            span.attributes = stage_attributes(stage, &answered.timings);
            spans.push(span);
            from = until;
        }
        spans
    }

    fn at(&self, after: Duration) -> SystemTime {
        self.span.started_at + after
    }

    fn request(&self) -> SpanData {
        let route = route(&self.span.path);
        let name = match self.context.front {
            Front::Http => format!("{} {route}", self.span.method),
            Front::Grpc => self.span.path.trim_start_matches('/').to_owned(),
        };
        let end = self.at(self.span.started.elapsed());
        let parent = self.span.parent_id;
        let above = parent.unwrap_or(SpanId::INVALID);
        let mut span = self.new_span(name.into(), self.span.span_id, above, self.span.started_at..end);
        span.span_kind = SpanKind::Server;
        span.parent_span_is_remote = parent.is_some();
        span.attributes = self.attributes(route);
        let reason = self.answered.as_ref().and_then(|answered| answered.refusal);
        span.status = match (self.status, reason) {
            (None, _) => Status::error("the client went away"),
            (Some(status), reason) if status >= 500 || reason.is_some_and(|reason| reason.status() >= 500) => {
                Status::error(reason.map_or("", |reason| reason.as_str()))
            }
            _ => Status::Unset,
        };
        span
    }

    fn attributes(&self, route: String) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new("tierlab.request_id", self.context.id.to_string())];
        match self.context.front {
            Front::Http => attributes.extend([
                KeyValue::new("http.request.method", self.span.method.to_string()),
                KeyValue::new("http.route", route),
                KeyValue::new("url.path", self.span.path.clone()),
            ]),
            Front::Grpc => {
                let path = self.span.path.trim_start_matches('/');
                let (service, method) = path.split_once('/').unwrap_or_default();
                attributes.extend([
                    KeyValue::new("rpc.system", "grpc"),
                    KeyValue::new("rpc.service", service.to_owned()),
                    KeyValue::new("rpc.method", method.to_owned()),
                ]);
            }
        }
        if let Some(status) = self.status {
            attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        let Some(answered) = &self.answered else {
            return attributes;
        };
        attributes.push(KeyValue::new("tierlab.model", answered.model.clone()));
        attributes.push(KeyValue::new("tierlab.version", answered.version.clone()));
        if let Some(rows) = answered.rows {
            attributes.push(KeyValue::new("tierlab.rows", i64::try_from(rows).unwrap_or(i64::MAX)));
        }
        if let Some(reason) = answered.refusal {
            attributes.push(KeyValue::new("error.type", reason.as_str()));
        }
        attributes
    }

    fn new_span(&self, name: Cow<'static, str>, id: SpanId, parent: SpanId, time: Range<SystemTime>) -> SpanData {
        let scope = InstrumentationScope::builder("tierlab-server").with_version(env!("CARGO_PKG_VERSION"));
        SpanData {
            span_context: SpanContext::new(self.span.trace_id, id, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: time.start,
            end_time: time.end,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: scope.build(),
        }
    }
}

fn stage_attributes(stage: Stage, timings: &StageTimings) -> Vec<KeyValue> {
    let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    match stage {
        Stage::Cache => vec![
            KeyValue::new("tierlab.cache.hits", i64::from(timings.cache_hits)),
            KeyValue::new("tierlab.cache.misses", i64::from(timings.cache_misses)),
        ],
        Stage::Tier => vec![
            KeyValue::new("tierlab.tier.requests", i64::from(timings.tier_requests)),
            KeyValue::new("tierlab.tier.via", timings.via.to_string()),
            KeyValue::new("tierlab.tier.queue_us", micros(timings.tier_split.queue)),
            KeyValue::new("tierlab.tier.device_us", micros(timings.tier_split.device)),
            KeyValue::new("tierlab.tier.copy_us", micros(timings.tier_split.copy)),
        ],
        Stage::Infer => vec![KeyValue::new("tierlab.batch.rows", i64::from(timings.batch_rows))],
        _ => Vec::new(),
    }
}

/// Path with its names removed, so that spans of all models have one name.
fn route(path: &str) -> String {
    let mut before = "";
    let mut route = String::with_capacity(path.len() + 8);
    for segment in path.trim_start_matches('/').split('/') {
        route.push('/');
        let name = match before {
            "models" if segment != "stats" => Some("{model}"),
            "versions" => Some("{version}"),
            _ => None,
        };
        route += name.unwrap_or(segment);
        // A model may be called `models`.
        before = if name.is_some() { "" } else { segment };
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_no_names_in_them() {
        for (path, expected) in [
            ("/v2/models/ctr/infer", "/v2/models/{model}/infer"),
            (
                "/v2/models/models/versions/3/infer",
                "/v2/models/{model}/versions/{version}/infer",
            ),
            ("/v2/repository/models/x/load", "/v2/repository/models/{model}/load"),
            ("/v2/models/stats", "/v2/models/stats"),
            ("/", "/"),
        ] {
            assert_eq!(route(path), expected);
        }
    }

    #[test]
    fn health_and_metrics_have_no_spans() {
        assert!(wants_span(&Method::POST, "/v2/models/ctr/infer"));
        assert!(wants_span(&Method::POST, "/inference.GRPCInferenceService/ModelInfer"));
        assert!(!wants_span(&Method::GET, "/metrics"));
        assert!(!wants_span(
            &Method::POST,
            "/inference.GRPCInferenceService/ServerReady"
        ));
    }
}
