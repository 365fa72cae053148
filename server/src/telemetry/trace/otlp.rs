//! Spans over OTLP: sampling of requests, the conversion of a finished request to its spans, the bounded queue of
//! finished spans, and the task that sends them.
//!
//! In: requests, and the configuration of a collector. Out: `ExportTraceServiceRequest`s over HTTP, and counts of the
//! spans sent, failed and dropped: one span for a request, and below it one for the body's arrival and for each stage.
//! A request never waits here: if the queue is full, a span is dropped and counted. Names and attributes follow
//! OpenTelemetry's semantic conventions for HTTP and RPC servers if those define any,
//! <https://opentelemetry.io/docs/specs/semconv/>; the server's own begin with `tierlab.`.

use super::{RequestContext, RequestOutcome, TraceParent};
use crate::error::ConfigError;
use crate::telemetry::Front;
use crate::telemetry::config::TelemetryConfig;
use http::Method;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample, SpanData, SpanEvents, SpanExporter as _,
    SpanLinks,
};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tierlab_protocol::timing::{Stage, StageTimings};
use tokio::sync::mpsc::{self, Receiver};

/// Number of waiting spans at which they are sent; otherwise they are sent after [`LINGER`].
const BATCH_SPANS: usize = 512;
/// Maximum time that a span waits for its export batch.
const LINGER: Duration = Duration::from_millis(500);
/// Time limit of the last export.
const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Span exporter.
#[derive(Debug)]
pub(crate) struct Telemetry {
    sampler: Sampler,
    /// `None` after the end, so that the task stops once it has sent the queued spans.
    queue: Mutex<Option<mpsc::Sender<Vec<SpanData>>>>,
    /// Counters by outcome.
    counts: IntCounterVec,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Telemetry {
    /// Starts the sending task; `None` if no collector is configured. Does not check that the collector answers.
    ///
    /// # Errors
    /// Fails if the endpoint is not an HTTP URL.
    pub(crate) fn start(config: &TelemetryConfig, counts: IntCounterVec) -> Result<Option<Arc<Self>>, ConfigError> {
        let Some(endpoint) = &config.traces_url else {
            return Ok(None);
        };
        let invalid = |e: &dyn std::fmt::Display| ConfigError::at("telemetry.otlp_endpoint", e);
        let client = reqwest::Client::builder().timeout(config.timeout);
        let client = client.no_proxy().build().map_err(|e| invalid(&e))?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(endpoint)
            .with_timeout(config.timeout)
            // Disabled because the queue behind it is bounded: during retries, newer spans would be dropped.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|e| invalid(&e))?;
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let mut resource = Resource::builder().with_attribute(version);
        // Overridden by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which the detectors of the default builder read.
        let detected = Resource::builder().build().get(&Key::from_static_str("service.name"));
        if detected.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
            resource = resource.with_service_name("tierlab-server");
        }
        exporter.set_resource(&resource.build());
        let (queue, queued) = mpsc::channel(config.queue_requests);
        let task = tokio::spawn(send(exporter, queued, counts.clone(), config.timeout));
        Ok(Some(Arc::new(Self {
            sampler: Sampler::TraceIdRatioBased(config.sampling_ratio),
            queue: Mutex::new(Some(queue)),
            counts,
            task: Mutex::new(Some(task)),
        })))
    }

    /// Opens the span of a request if it gets one: the client's `sampled` flag takes precedence over the ratio.
    pub(super) fn open(
        self: Arc<Self>,
        method: &Method,
        path: &str,
        parent: Option<&TraceParent>,
    ) -> Option<RequestSpan> {
        if !has_span(method, path) {
            return None;
        }
        let ids = RandomIdGenerator::default();
        let (trace_id, sampled) = match parent {
            Some(parent) => (TraceId::from_bytes(parent.trace_id.to_be_bytes()), parent.sampled),
            None => {
                let (id, kind) = (ids.new_trace_id(), SpanKind::Server);
                let by_ratio = self.sampler.should_sample(None, id, "", &kind, &[], &[]);
                (id, by_ratio.decision == SamplingDecision::RecordAndSample)
            }
        };
        sampled.then(|| RequestSpan {
            telemetry: self,
            trace_id,
            span_id: ids.new_span_id(),
            parent_id: parent.map(|parent| SpanId::from_bytes(parent.parent_id.to_be_bytes())),
            method: method.clone(),
            path: path.to_owned(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            context: None,
            status: None,
        })
    }

    fn push(&self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        let queue = self.queue.lock();
        let sent = queue.as_ref().map(|queue| queue.try_send(spans));
        if !matches!(sent, Some(Ok(()))) {
            self.counts.with_label_values(&["dropped"]).inc_by(count);
        }
    }

    /// Accepts no more spans, and waits for the queued ones, within a limit.
    pub(crate) async fn finish(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(FINAL_EXPORT_TIMEOUT, &mut task).await.is_err()
        {
            task.abort();
            tracing::warn!("could not send the last spans in time");
        }
    }
}

/// Sends spans until the queue is closed and empty.
async fn send(exporter: SpanExporter, mut queued: Receiver<Vec<SpanData>>, counts: IntCounterVec, limit: Duration) {
    let mut failing = false;
    while let Some(mut spans) = queued.recv().await {
        let fill = async {
            while spans.len() < BATCH_SPANS
                && let Some(more) = queued.recv().await
            {
                spans.extend(more);
            }
        };
        let _ = tokio::time::timeout(LINGER, fill).await;
        let count = spans.len() as u64;
        // The exporter has this limit as well; this one is guaranteed.
        let sent = tokio::time::timeout(limit, exporter.export(spans)).await;
        let failure = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} ms", limit.as_millis())),
        };
        match failure {
            None => {
                counts.with_label_values(&["sent"]).inc_by(count);
                if std::mem::take(&mut failing) {
                    tracing::info!("sending spans again");
                }
            }
            Some(error) => {
                counts.with_label_values(&["failed"]).inc_by(count);
                // Logged once per outage: an unreachable collector must not fill the log.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(error, "cannot send spans; check `telemetry.otlp_endpoint`");
                }
            }
        }
    }
}

/// Span of a request. It is sent when this is dropped, after the reply or when the client goes away.
#[derive(Debug)]
pub(super) struct RequestSpan {
    telemetry: Arc<Telemetry>,
    trace_id: TraceId,
    span_id: SpanId,
    parent_id: Option<SpanId>,
    method: Method,
    path: String,
    started: Instant,
    started_at: SystemTime,
    /// `None` until the request has its id.
    context: Option<Arc<RequestContext>>,
    /// Status of the reply; `None` if the client went away before.
    status: Option<u16>,
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            self.telemetry.push(self.spans(context));
        }
    }
}

/// True if a request gets a span: calls that infer or change something, but no status calls.
fn has_span(method: &Method, path: &str) -> bool {
    let is_status = matches!(
        path.rsplit('/').next(),
        Some("ServerLive" | "ServerReady" | "ModelReady" | "ServerMetadata" | "Check" | "Watch")
    );
    *method == Method::POST && !is_status
}

impl RequestSpan {
    pub(super) fn trace_id(&self) -> u128 {
        u128::from_be_bytes(self.trace_id.to_bytes())
    }

    /// Assigns the span to this request.
    pub(super) fn attach(&mut self, context: &Arc<RequestContext>) {
        self.context = Some(Arc::clone(context));
    }

    pub(super) fn set_status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Spans; the request's is first.
    fn spans(&self, context: &RequestContext) -> Vec<SpanData> {
        let (ids, answered) = (RandomIdGenerator::default(), context.answered.lock().take());
        let mut spans = vec![self.request(context, answered.as_ref())];
        let Some(answered) = answered else {
            return spans;
        };
        let began = self.started_at + answered.began.saturating_duration_since(self.started);
        let above = self.span_id;
        spans.push(self.new_span("receive".into(), ids.new_span_id(), above, self.started_at..began));
        let mut from = began;
        // A request is admitted before it is decoded.
        let [decode, admit, rest @ ..] = Stage::ALL;
        for stage in [admit, decode].into_iter().chain(rest) {
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

    fn request(&self, context: &RequestContext, answered: Option<&RequestOutcome>) -> SpanData {
        let route = route(&self.path);
        let name = match context.front {
            Front::Http => format!("{} {route}", self.method),
            Front::Grpc => self.path.trim_start_matches('/').to_owned(),
        };
        let end = self.started_at + self.started.elapsed();
        let parent = self.parent_id;
        let above = parent.unwrap_or(SpanId::INVALID);
        let mut span = self.new_span(name.into(), self.span_id, above, self.started_at..end);
        span.span_kind = SpanKind::Server;
        span.parent_span_is_remote = parent.is_some();
        span.attributes = self.attributes(context, answered, route);
        let reason = answered.and_then(|answered| answered.refusal);
        span.status = match (self.status, reason) {
            (None, _) => Status::error("the client went away"),
            (Some(status), reason) if status >= 500 || reason.is_some_and(|reason| reason.status() >= 500) => {
                Status::error(reason.map_or("", |reason| reason.as_str()))
            }
            _ => Status::Unset,
        };
        span
    }

    fn attributes(&self, context: &RequestContext, answered: Option<&RequestOutcome>, route: String) -> Vec<KeyValue> {
        let mut attributes = vec![KeyValue::new("tierlab.request_id", context.id.to_string())];
        match context.front {
            Front::Http => attributes.extend([
                KeyValue::new("http.request.method", self.method.to_string()),
                KeyValue::new("http.route", route),
                KeyValue::new("url.path", self.path.clone()),
            ]),
            Front::Grpc => {
                let path = self.path.trim_start_matches('/');
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
        let Some(answered) = answered else {
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
            span_context: SpanContext::new(self.trace_id, id, TraceFlags::SAMPLED, false, TraceState::NONE),
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
        assert!(has_span(&Method::POST, "/v2/models/ctr/infer"));
        assert!(has_span(&Method::POST, "/inference.GRPCInferenceService/ModelInfer"));
        assert!(!has_span(&Method::GET, "/metrics"));
        assert!(!has_span(&Method::POST, "/inference.GRPCInferenceService/ServerReady"));
    }
}
