//! What the fronts share between requests: the pipeline, the models with their management, and the phase.

use crate::models::management::manager::Management;
use crate::models::served::Phase;
use crate::pipeline::Pipeline;
use crate::telemetry::metrics::Metrics;
use prometheus::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The state, as every front holds it.
pub(crate) type SharedState = Arc<State>;

/// The shared state of a server.
pub(crate) struct State {
    pub(crate) pipeline: Pipeline,
    pub(crate) registry: Registry,
    /// The models; every call that finds, lists, loads or unloads them.
    pub(crate) management: Arc<Management>,
    draining: AtomicBool,
}

impl State {
    pub(crate) fn new(pipeline: Pipeline, registry: Registry, management: Arc<Management>) -> Self {
        Self {
            pipeline,
            registry,
            management,
            draining: AtomicBool::new(false),
        }
    }

    /// Turns readiness off.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.draining.load(Relaxed) {
            Phase::Draining
        } else if self.management.started() {
            Phase::Ready
        } else {
            Phase::Loading
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.pipeline.metrics
    }
}
