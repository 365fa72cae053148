//! Stand-in for the span exporter in a build without the feature `otlp`: no span is ever started.

use super::{RequestContext, TraceParent};
use crate::error::ConfigError;
use crate::telemetry::config::TelemetryConfig;
use http::Method;
use prometheus::IntCounterVec;
use std::sync::Arc;

/// Span exporter; never constructed.
#[derive(Debug)]
pub(crate) enum Telemetry {}

impl Telemetry {
    /// Does nothing: the configuration rejects an endpoint.
    ///
    /// # Errors
    /// Never fails.
    pub(crate) fn start(_: &TelemetryConfig, _: IntCounterVec) -> Result<Option<Arc<Self>>, ConfigError> {
        Ok(None)
    }

    pub(super) fn open(self: Arc<Self>, _: &Method, _: &str, _: Option<&TraceParent>) -> Option<RequestSpan> {
        match *self {}
    }

    pub(crate) async fn finish(&self) {
        match *self {}
    }
}

/// Span that never exists.
#[derive(Debug)]
pub(super) enum RequestSpan {}

impl RequestSpan {
    pub(super) fn trace_id(&self) -> u128 {
        match *self {}
    }

    pub(super) fn attach(&mut self, _: &Arc<RequestContext>) {
        match *self {}
    }

    pub(super) fn set_status(&mut self, _: u16) {
        match *self {}
    }
}
