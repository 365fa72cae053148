//! What the HTTP front shares between requests: the pipeline, the models once they are loaded, and the phase.

use crate::metrics::Metrics;
use crate::pipeline::Pipeline;
use crate::served::{Phase, Served};
use prometheus::Registry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The shared state of a server.
pub(crate) struct State {
    pub(crate) pipeline: Pipeline,
    pub(crate) registry: Registry,
    served: OnceLock<Served>,
    draining: AtomicBool,
}

impl State {
    pub(crate) fn new(pipeline: Pipeline, registry: Registry) -> Self {
        Self {
            pipeline,
            registry,
            served: OnceLock::new(),
            draining: AtomicBool::new(false),
        }
    }

    /// Takes the loaded models; from now on they are served. Called once.
    pub(crate) fn serve(&self, served: Served) {
        assert!(self.served.set(served).is_ok(), "the models are loaded once");
    }

    /// The models, once they are loaded.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.served.get()
    }

    /// Turns readiness off.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.draining.load(Relaxed) {
            Phase::Draining
        } else if self.served.get().is_some() {
            Phase::Ready
        } else {
            Phase::Loading
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.pipeline.metrics
    }
}
