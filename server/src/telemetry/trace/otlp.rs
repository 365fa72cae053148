//! Spans over OTLP: sampling of requests, the bounded queue of finished spans, and the task that sends them.
//!
//! In: requests, and the configuration of a collector. Out: `ExportTraceServiceRequest`s over HTTP, and counts of the
//! spans sent, failed and dropped. A request never waits here: if the queue is full, a span is dropped and counted.

use super::RequestContext;
use super::TraceParent;
use super::spans::{self, Finished, OpenSpan};
use crate::error::ConfigError;
use crate::telemetry::config::TelemetryConfig;
use http::Method;
use opentelemetry::trace::{SpanId, SpanKind, TraceId};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    IdGenerator, RandomIdGenerator, Sampler, SamplingDecision, ShouldSample, SpanData, SpanExporter as _,
};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Number of waiting spans at which they are sent; otherwise they are sent after [`LINGER`].
const BATCH_SPANS: usize = 512;
/// Maximum time that a span waits for its export batch.
const LINGER: Duration = Duration::from_millis(500);
/// Time limit of the last export.
const LAST_EXPORT: Duration = Duration::from_secs(2);

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
        let bad = |e: &dyn std::fmt::Display| ConfigError::at("telemetry.otlp_endpoint", e);
        let client = reqwest::Client::builder().timeout(config.timeout);
        let client = client.no_proxy().build().map_err(|e| bad(&e))?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(endpoint)
            .with_timeout(config.timeout)
            // Disabled because the queue behind it is bounded: during retries, newer spans would be dropped.
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|e| bad(&e))?;
        let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder()
            .with_service_name("tierlab-server")
            .with_attribute(version);
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
        if !spans::wants_span(method, path) {
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
            span: OpenSpan {
                trace_id,
                span_id: ids.new_span_id(),
                parent_id: parent.map(|parent| SpanId::from_bytes(parent.parent_id.to_be_bytes())),
                method: method.clone(),
                path: path.to_owned(),
                started: Instant::now(),
                started_at: SystemTime::now(),
            },
            context: None,
            status: None,
        })
    }

    fn push(&self, spans: Vec<SpanData>) {
        let count = spans.len() as u64;
        let queue = self.queue.lock();
        let room = queue.as_ref().map(|queue| queue.try_send(spans));
        if !matches!(room, Some(Ok(()))) {
            self.counts.with_label_values(&["dropped"]).inc_by(count);
        }
    }

    /// Accepts no more spans, and waits for the queued ones, within a limit.
    pub(crate) async fn finish(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(mut task) = task
            && tokio::time::timeout(LAST_EXPORT, &mut task).await.is_err()
        {
            task.abort();
            tracing::warn!("could not send the last spans in time");
        }
    }
}

/// Sends spans until the queue is closed and empty.
async fn send(
    exporter: SpanExporter,
    mut queued: mpsc::Receiver<Vec<SpanData>>,
    counts: IntCounterVec,
    limit: Duration,
) {
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
    span: OpenSpan,
    /// `None` until the request has its id.
    context: Option<Arc<RequestContext>>,
    status: Option<u16>,
}

impl RequestSpan {
    pub(super) fn trace_id(&self) -> u128 {
        u128::from_be_bytes(self.span.trace_id.to_bytes())
    }

    /// Assigns the span to this request.
    pub(super) fn belong_to(&mut self, context: &Arc<RequestContext>) {
        self.context = Some(Arc::clone(context));
    }

    pub(super) fn answered_with(&mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let Some(context) = &self.context else { return };
        let finished = Finished {
            span: &self.span,
            context,
            status: self.status,
            answered: context.answered.lock().take(),
        };
        self.telemetry.push(finished.spans(&RandomIdGenerator::default()));
    }
}
