//! Served version of a model: what it accepts, the path to a session, and the documents that describe it.
//!
//! Every holder may send it requests: when the last holder drops it, its queue closes and its sessions end. So a
//! replaced version finishes its requests, and no request can arrive too late.

pub(crate) mod accept;
mod classify;
mod config_document;
pub(crate) mod submit;

use crate::batch::BatchQueue;
use crate::batch::clock::PendingRequests;
use crate::features::Join;
use crate::inference::runtime::DiskSpace;
use crate::inference::session::layout::SessionGroup;
use crate::models::repository::Labels;
use crate::request::ModelShare;
use crate::telemetry::ModelMetrics;
use crate::telemetry::model_stats::Stats;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tierlab_formats::model::{ModelConfig, Reshapes, Signature};
use tierlab_protocol::grpc::messages::ModelStatistics;
use tierlab_protocol::metadata::{ModelMetadata, PLATFORM};

pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Signature shown to clients.
    pub(crate) signature: Signature,
    /// Reshapes between the signature and the graph.
    pub(in crate::models) reshapes: Reshapes,
    pub(crate) join: Option<Join>,
    /// Requests in flight.
    pub(crate) share: Arc<ModelShare>,
    /// Requests on their way to the sessions.
    pub(crate) pending: Arc<PendingRequests>,
    pub(crate) metrics: ModelMetrics,
    pub(crate) stats: Stats,
    /// Maximum rows of a request, if batched.
    pub(in crate::models) max_request_rows: usize,
    /// `cpu`, `cuda` or `tensorrt`.
    pub(crate) provider: &'static str,
    pub(in crate::models) config: ModelConfig,
    pub(in crate::models) labels: Labels,
    /// Sessions; groups with the most threads first.
    pub(in crate::models) layout: Vec<SessionGroup>,
    pub(crate) queue: Arc<BatchQueue>,
    pub(in crate::models) threads: Mutex<Vec<JoinHandle<()>>>,
    /// Disk space of weights that its sessions map.
    pub(in crate::models) _disk_space: Option<Arc<DiskSpace>>,
}

impl Model {
    /// Gives the sessions' threads away. The future ends when every thread has ended and its session is freed. They end
    /// once the queue is closed, or when the model is dropped.
    pub(crate) fn threads_ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let (model, threads) = (self.name.clone(), std::mem::take(&mut *self.threads.lock()));
        async move {
            for thread in threads {
                let mut pause = THREAD_POLL;
                while !thread.is_finished() {
                    tokio::time::sleep(pause).await;
                    pause = THREAD_POLL_MAX.min(pause * 2);
                }
                if thread.join().is_err() {
                    tracing::error!(%model, "a session's thread panicked");
                }
            }
        }
    }

    /// `GET /v2/models/M`; `versions` are all served versions of the model.
    pub(crate) fn metadata(&self, versions: Vec<String>) -> ModelMetadata {
        ModelMetadata {
            name: self.name.clone(),
            versions,
            platform: PLATFORM.to_owned(),
            inputs: self.signature.inputs.clone(),
            outputs: self.signature.outputs.clone(),
            batched: Some(self.signature.batched),
            max_batch_size: Some(self.config.max_batch_size),
            joined: self.join.as_ref().map(Join::metadata),
        }
    }

    /// Entry of `GET /v2/models/M/stats`.
    pub(crate) fn stats_entry(&self) -> ModelStatistics {
        self.stats.entry(&self.name, &self.version)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// First pause between two checks of ending threads; it doubles each time.
const THREAD_POLL: Duration = Duration::from_millis(5);
/// Maximum of these pauses.
const THREAD_POLL_MAX: Duration = Duration::from_millis(320);
