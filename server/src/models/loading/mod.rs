//! Loading a version of a model: its sessions, the match of graph, manifest and config, the feature table.
//!
//! In: files found by the repository. Out: a [`Model`] that is warm and waits for requests, with the time of each
//! stage; or the first mismatch, by object.

pub(crate) mod fitting;

use crate::batch::BatchQueue;
use crate::batch::clock::{PendingRequests, SessionClock};
use crate::batch::rule::{Groups, Rule};
use crate::error::LoadError;
use crate::features::Join;
use crate::features::live::LiveTables;
use crate::features::tier::FeatureTier;
use crate::inference::runtime::{
    Graph, GraphSource, MappedWeights, OptimizedCache, Provider, Runtime, Threads, Weights,
};
use crate::inference::session::engine::{Assignment, Delivery};
use crate::inference::session::layout::SessionGroup;
use crate::inference::session::open::{SessionReport, SessionSpec, Warmup};
use crate::models::loading::fitting::{Fitting, LoadLimits, LoadSlot, Opener, WarmGroup, WarmSession};
use crate::models::repository::{ModelDescription, VersionFiles, external};
use crate::models::serving::Model;
use crate::request::Admission;
use crate::telemetry::model_stats::Stats;
use crate::telemetry::{AbandonedSession, Metrics, ModelMetrics};
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_formats::model::{ModelConfig, Signature};
use tierlab_protocol::metadata::{LoadSeconds, VersionLoad};
use tierlab_storage::{ObjectPath, Tier};
use tokio::time::timeout;

/// Time in which abandoned sessions may end before a load is refused: an interrupted warm-up ends within milliseconds.
const ABANDONED_GRACE: Duration = Duration::from_secs(1);

/// Sources and parameters of loads.
pub(crate) struct Loader {
    /// Tier of the models.
    pub(crate) tier: Arc<dyn Tier>,
    pub(crate) runtime: Runtime,
    pub(crate) features: FeatureTier,
    /// Tables read from it.
    pub(crate) tables: Arc<LiveTables>,
    pub(crate) metrics: Arc<Metrics>,
    /// Counter of output bytes.
    pub(crate) admission: Arc<Admission>,
    /// Maximum requests in a model's queue.
    pub(crate) queue_capacity: usize,
    /// Optimised graphs on disk; `None` if disabled.
    pub(crate) optimized: Option<Arc<OptimizedCache>>,
    /// Weights that ONNX Runtime maps from a local disk.
    pub(crate) mapped: MappedWeights,
    pub(crate) limits: LoadLimits,
    /// Sessions of models whose configs state none.
    pub(crate) fitting: Fitting,
}

/// Source of a version's graph, with its entry in the cache of optimised graphs if that is used.
#[derive(Default)]
struct CachedGraph {
    source: GraphSource,
    entry: Option<(Arc<OptimizedCache>, String)>,
}

impl CachedGraph {
    /// Stores the graph that a session has written, or removes one from which no session could be built, in the
    /// background. `opened` is empty if no session was built.
    fn store_or_forget(self, opened: &[WarmGroup]) {
        let Some((cache, key)) = self.entry else { return };
        match self.source {
            GraphSource::Saving(partial) if opened.is_empty() => {
                // Missing if the session failed before writing it.
                let _ = std::fs::remove_file(partial);
            }
            GraphSource::Optimized(_) if !reports(opened).all(|report| report.optimized) => {
                tokio::task::spawn_blocking(move || cache.forget(&key));
            }
            GraphSource::Saving(partial) => {
                tokio::task::spawn_blocking(move || {
                    let complete = |onnx: Bytes| external(onnx).is_ok_and(|external| external.files.is_empty());
                    match cache.store(&key, &partial, complete) {
                        Ok(true) => tracing::debug!(key, "stored the optimised graph"),
                        Ok(false) => tracing::debug!(key, "not storing the optimised graph: it refers to other files"),
                        Err(error) => tracing::warn!(%error, "cannot store the optimised graph"),
                    }
                });
            }
            GraphSource::Original | GraphSource::Optimized(_) => {}
        }
    }
}

/// Reports of the sessions of all groups.
fn reports(opened: &[WarmGroup]) -> impl Iterator<Item = &SessionReport> {
    opened.iter().flat_map(|group| &group.sessions).map(|warm| &warm.report)
}

impl Loader {
    /// Builds the sessions, matches the graph with manifest and config, opens the feature table, and starts serving.
    ///
    /// # Errors
    /// The first mismatch, by object, or the exceeded limit; all threads have ended or will end by themselves.
    pub(crate) async fn load(
        &self,
        described: &ModelDescription,
        mut found: VersionFiles,
        slot: LoadSlot<'_>,
    ) -> Result<(Model, VersionLoad), LoadError> {
        let ModelDescription { name, config, .. } = described;
        let (version, object, seconds) = (found.version.to_string(), found.object, &mut found.seconds);
        let bad = |error: anyhow::Error| LoadError::at(&object, error);
        let disk_space = match &found.graph.weights {
            Weights::Mapped(folder) => Some(Arc::clone(&folder.disk_space)),
            Weights::InMemory(_) => None,
        };
        let files = (found.graph, found.warmup);
        let opened = self.open_sessions(name, config, files, slot, seconds).await;
        let opened = opened.map_err(bad)?;
        let report = reports(&opened).next();
        let report = report.ok_or_else(|| bad(anyhow!("no session was opened")))?;
        let (mut signature, provider, optimized) = (report.signature.clone(), report.provider, report.optimized);
        self.check_device(config, report.binds_device, provider).map_err(bad)?;
        if let Some(manifest) = described.manifest.as_ref().filter(|_| found.verified) {
            signature.check_manifest(manifest).map_err(bad)?;
        }
        let reshapes = signature.declare(config).map_err(bad)?;
        let began = Instant::now();
        let join = self.open_join(config, &signature, &object).await?;
        seconds.features = began.elapsed().as_secs_f64();
        self.report_seconds(name, seconds);
        let pending = PendingRequests::new();
        let metrics = self.metrics.for_model(name, self.features.kind);
        let layout: Vec<SessionGroup> = opened.iter().map(|opened| opened.group).collect();
        let mut model = Model {
            version: version.clone(),
            signature,
            reshapes,
            join,
            share: Arc::default(),
            queue: self.queue(config, &layout, &pending, &metrics),
            pending,
            metrics,
            stats: Stats::default(),
            max_request_rows: config.batching.max_request_rows.max(config.max_batch_size) as usize,
            provider,
            config: config.clone(),
            labels: found.labels,
            layout,
            threads: Mutex::default(),
            _disk_space: disk_space,
            name: name.clone(),
        };
        model.threads = Mutex::new(self.assign(opened, &model));
        let loaded = VersionLoad {
            version,
            state: "READY".to_owned(),
            seconds: found.seconds,
            optimized,
        };
        Ok((model, loaded))
    }

    /// Refuses a load while abandoned sessions keep as many cores busy as there are.
    ///
    /// # Errors
    /// Fails if there are too many of them even after [`ABANDONED_GRACE`].
    pub(crate) async fn check_abandoned(&self) -> Result<(), LoadError> {
        let (began, cores) = (Instant::now(), self.fitting.cores.count as usize);
        let sessions = loop {
            match AbandonedSession::count() {
                sessions if sessions < cores => return Ok(()),
                sessions if began.elapsed() > ABANDONED_GRACE => break sessions,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let message = format!(
            "{sessions} sessions of loads that were given up are still being built (cores: {cores}): wait until \
             `tierlab_abandoned_sessions` falls, or restart the server without their models"
        );
        Err(LoadError::new(message).transient())
    }

    /// Checks that rows are read to the device that the sessions are bound to.
    fn check_device(&self, config: &ModelConfig, binds: Option<u32>, provider: &str) -> Result<()> {
        let device = self.features.device().filter(|_| !config.joined.is_empty());
        let Some(lands) = device.filter(|&lands| binds != Some(lands)) else {
            return Ok(());
        };
        let binds = match binds {
            Some(device) => format!("device {device} (`runtime.cuda.device_id`)"),
            None => format!("none: they run on `{provider}`, or have text inputs or outputs"),
        };
        bail!(
            "`features.rows = \"device\"` reads rows to CUDA device {lands}, but the sessions can be bound to {binds}; \
             set `features.rows = \"host\"`"
        )
    }

    fn report_seconds(&self, model: &str, seconds: &LoadSeconds) {
        for (stage, time) in [
            ("read", seconds.read),
            ("verify", seconds.verify),
            ("place", seconds.place),
            ("session", seconds.session),
            ("warmup", seconds.warmup),
            ("features", seconds.features),
        ] {
            let gauge = self.metrics.load_seconds.with_label_values(&[model, stage]);
            gauge.set(time);
        }
    }

    /// Opens the sessions of a version. Its files are needed only until all are built.
    async fn open_sessions(
        &self,
        name: &str,
        config: &ModelConfig,
        (graph, warmup): (Graph, Warmup),
        slot: LoadSlot<'_>,
        seconds: &mut LoadSeconds,
    ) -> Result<Vec<WarmGroup>> {
        let stated = config.instances.as_ref();
        let kind = stated.map(|instances| instances.kind).unwrap_or_default();
        let provider = self.runtime.provider_for(kind)?;
        let plan = self.fitting.plan(stated, graph.bytes(), provider == Provider::Cpu);
        let threads = plan.groups[0].threads;
        let began = Instant::now();
        let cached = self.find_cached(&graph, provider, threads).await;
        seconds.verify += began.elapsed().as_secs_f64();
        let spec = SessionSpec {
            runtime: self.runtime.clone(),
            graph,
            source: cached.source.clone(),
            provider,
            threads,
            max_batch_size: config.max_batch_size,
            warmup: Arc::new(warmup),
            measure: None,
        };
        let opener = Opener {
            limits: &self.limits,
            model: name,
            spec,
            cpus: stated.map_or(&[], |instances| &instances.cpus),
            slot,
            opened: 0,
        };
        let began = Instant::now();
        let opened = self.fitting.open(&plan, opener).await;
        let elapsed = began.elapsed();
        cached.store_or_forget(opened.as_deref().unwrap_or_default());
        let opened = opened?;
        let warmup = reports(&opened).map(|report| report.warmup_time).max();
        let warmup = warmup.unwrap_or_default();
        // Fitted sessions are built and measured one after the other.
        seconds.session = elapsed.saturating_sub(warmup).as_secs_f64();
        seconds.warmup = warmup.as_secs_f64();
        Ok(opened)
    }

    /// Creates the queue of a version's sessions.
    fn queue(
        &self,
        config: &ModelConfig,
        layout: &[SessionGroup],
        pending: &Arc<PendingRequests>,
        metrics: &ModelMetrics,
    ) -> Arc<BatchQueue> {
        let preferred_rows = config.batching.preferred_rows.iter();
        let mut preferred_rows: Vec<usize> = preferred_rows.map(|&rows| rows as usize).collect();
        preferred_rows.sort_unstable();
        let rule = Rule {
            // An unbatched request counts as one row.
            max_rows: config.max_batch_size.max(1) as usize,
            preferred_rows,
            max_delay: Duration::from_micros(config.batching.max_delay_us),
        };
        let gauges = [&metrics.queue_depth, &metrics.stuck_sessions].map(Clone::clone);
        let groups = Groups(layout.iter().map(|group| group.sessions as usize).collect());
        // The largest request that is let in has to fit, whatever the bound on requests in flight.
        let parts = (config.batching.max_request_rows as usize).div_ceil(rule.max_rows);
        let capacity = match config.batching.queue_limit {
            0 => self.queue_capacity.max(parts),
            limit => limit as usize,
        };
        BatchQueue::new(rule, groups, capacity, Arc::clone(pending), gauges)
    }

    /// Looks for a stored optimised graph.
    async fn find_cached(&self, graph: &Graph, provider: Provider, threads: Threads) -> CachedGraph {
        let (Some(cache), true) = (&self.optimized, provider == Provider::Cpu) else {
            return CachedGraph::default();
        };
        let (cache, graph) = (Arc::clone(cache), graph.clone());
        let version = self.runtime.version.clone();
        let found = tokio::task::spawn_blocking(move || {
            let key = OptimizedCache::key(&graph, &version, "cpu", threads)?;
            let source = match cache.find(&key) {
                Some(onnx) => GraphSource::Optimized(onnx),
                None => GraphSource::Saving(cache.partial()),
            };
            let entry = Some((cache, key));
            Some(CachedGraph { source, entry })
        });
        found.await.ok().flatten().unwrap_or_default()
    }

    /// Sends every session to the model's queue.
    fn assign(&self, opened: Vec<WarmGroup>, model: &Model) -> Vec<JoinHandle<()>> {
        let mut threads = Vec::new();
        for (group, opened) in opened.into_iter().enumerate() {
            for WarmSession { session, .. } in opened.sessions {
                let seconds = self.metrics.for_session(&model.name, session.number);
                let clock = SessionClock::new(Arc::clone(&model.pending), seconds);
                let settled = Arc::downgrade(&clock);
                self.metrics
                    .settle_before_scrapes(move || settled.upgrade().map(|clock| clock.settle()).is_some());
                threads.push(session.serve(Assignment {
                    model: model.name.clone(),
                    queue: Arc::clone(&model.queue),
                    group,
                    clock,
                    batch_rows: model.metrics.batch_rows.clone(),
                    interrupted: model.metrics.interrupted_runs.clone(),
                    runs: Arc::clone(&model.stats.runs),
                    delivery: Delivery::start(),
                    admission: Arc::clone(&self.admission),
                }));
            }
        }
        threads
    }

    /// Opens the feature table, within the limit of a load.
    async fn open_join(
        &self,
        config: &ModelConfig,
        signature: &Signature,
        object: &ObjectPath,
    ) -> Result<Option<Join>, LoadError> {
        let columns = signature.joined(config).map_err(|e| LoadError::at(object, e))?;
        let Some(first) = config.joined.values().next() else {
            return Ok(None);
        };
        let tables = Arc::clone(&self.tables);
        let joined = Join::open(self.features.clone(), tables, &first.table, &signature.inputs, &columns);
        match timeout(self.limits.load, joined).await {
            Ok(joined) => joined.map(Some),
            Err(_) => Err(self.limits.timed_out(object, "its feature table was not opened")),
        }
    }
}
