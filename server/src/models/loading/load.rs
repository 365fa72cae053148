//! Loading a version of a model: sessions, the match of graph, manifest and config, the feature table.
//!
//! In: what the repository found. Out: a [`Model`] that is warm and waits for requests, with the time of each stage; or
//! the first thing that does not fit, by object.

use crate::error::LoadError;
use crate::features::live::LiveTables;
use crate::features::tier::FeatureTier;
use crate::features::{Join, WantedColumn};
use crate::inference::runtime::mapped::{DiskSpace, MappedWeights};
use crate::inference::runtime::optimized::OptimizedCache;
use crate::inference::runtime::provider::Provider;
use crate::inference::runtime::{Graph, GraphSource, Runtime, Weights};
use crate::inference::session::delivery::Delivery;
use crate::inference::session::engine::{Assignment, RunCounts};
use crate::inference::session::layout::SessionGroup;
use crate::inference::session::open::{SessionReport, SessionSpec};
use crate::inference::session::warmup::Warmup;
use crate::models::loading::fitting::{Fitting, GroupedSession, OpenSessions, Plan};
use crate::models::loading::opening::{LoadLimits, LoadSlot, Opener};
use crate::models::repository::{VersionFiles, external};
use crate::models::serving::model::Model;
use crate::request::admission::Admission;
use crate::batch::clock::{PendingRequests, SessionClock};
use crate::batch::groups::Groups;
use crate::batch::rule::Rule;
use crate::batch::{BatchQueue, QueueGauges};
use crate::telemetry::counters::{AbandonedSession, Settle};
use crate::telemetry::metrics::{Metrics, ModelMetrics};
use crate::telemetry::model_stats::{RunStats, Stats};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_formats::model::{JoinedColumn, ModelConfig, Signature};
use tierlab_protocol::metadata::LoadSeconds;
use tierlab_storage::ObjectPath;
use tokio::time::timeout;

/// Time in which abandoned sessions may end before a load is refused: a warm-up that was interrupted ends within milliseconds.
const ABANDONED_GRACE: Duration = Duration::from_secs(1);

/// Parameters of a load besides the model's files.
pub(crate) struct Loader {
    pub(crate) runtime: Runtime,
    pub(crate) features: FeatureTier,
    /// The tables that are read from it.
    pub(crate) tables: Arc<LiveTables>,
    pub(crate) metrics: Arc<Metrics>,
    /// Counter of output bytes.
    pub(crate) admission: Arc<Admission>,
    /// Requests in a model's queue at most.
    pub(crate) queue_capacity: usize,
    /// Optimised graphs on disk; none where they are not kept.
    pub(crate) optimized: Option<Arc<OptimizedCache>>,
    /// Weights that ONNX Runtime maps from a local disk.
    pub(crate) mapped: MappedWeights,
    pub(crate) limits: LoadLimits,
    /// Sessions of models whose configs state none.
    pub(crate) fitting: Fitting,
}

/// A model, and what loading it took.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    pub(crate) seconds: LoadSeconds,
    /// True if the sessions were built from a graph that had been optimised before.
    pub(crate) optimized: bool,
}

/// State shared by all sessions of a model.
struct SharedBySessions<'a> {
    queue: &'a Arc<BatchQueue>,
    pending: &'a Arc<PendingRequests>,
    metrics: &'a ModelMetrics,
    runs: Arc<RunStats>,
}

/// Entry of a load in the cache of optimised graphs.
enum CachedGraph {
    /// The cache is not used.
    Off,
    /// The graph is cached.
    Hit {
        cache: Arc<OptimizedCache>,
        key: String,
        onnx: Bytes,
    },
    /// The graph is not cached. A session writes it to this file.
    Miss {
        cache: Arc<OptimizedCache>,
        key: String,
        partial: PathBuf,
    },
}

impl CachedGraph {
    fn source(&self) -> GraphSource {
        match self {
            Self::Off => GraphSource::Original,
            Self::Hit { onnx, .. } => GraphSource::Optimized(onnx.clone()),
            Self::Miss { partial, .. } => GraphSource::Saving(partial.clone()),
        }
    }

    /// Stores the graph that a session has written, or removes one that no session could be built from, in the background.
    /// `reports` are empty where no session was built at all.
    fn store_or_forget(self, reports: &[SessionReport]) {
        match self {
            Self::Miss { partial, .. } if reports.is_empty() => {
                // There is none where the session failed before it wrote.
                let _ = std::fs::remove_file(partial);
            }
            Self::Hit { cache, key, .. } if !reports.iter().all(|report| report.optimized) => {
                tokio::task::spawn_blocking(move || cache.forget(&key));
            }
            Self::Miss { cache, key, partial } => {
                tokio::task::spawn_blocking(move || {
                    let complete = |onnx: Bytes| external(onnx).is_ok_and(|external| external.files.is_empty());
                    match cache.keep(&key, &partial, complete) {
                        Ok(true) => tracing::debug!(key, "the optimised graph is kept"),
                        Ok(false) => tracing::debug!(key, "the optimised graph is not kept: it is not whole by itself"),
                        Err(error) => tracing::warn!(%error, "the optimised graph cannot be kept"),
                    }
                });
            }
            Self::Off | Self::Hit { .. } => {}
        }
    }
}

impl Loader {
    /// Builds the sessions, matches the graph with manifest and config, opens the feature table, and starts serving.
    ///
    /// # Errors
    /// The first thing that does not fit, by object, or the limit that was passed; all threads have ended or will end by
    /// themselves.
    pub(crate) async fn load(&self, found: VersionFiles, slot: LoadSlot<'_>) -> Result<Loaded, LoadError> {
        let VersionFiles {
            name,
            version,
            config,
            manifest,
            graph,
            warmup,
            object,
            read_time,
            mut verify_time,
            place_time,
        } = found;
        let bad = |what: String| LoadError::at(&object, what);
        let began = Instant::now();
        let disk_space = disk_space(&graph);
        let cached = self.look_up(&graph, &config).await.map_err(bad)?;
        verify_time += began.elapsed();
        let opened = self.open_sessions(&name, &config, (graph, cached), warmup, slot).await;
        let mut opened = opened.map_err(bad)?;
        let reports = &mut opened.reports;
        let mut seconds = seconds_of([read_time, verify_time, place_time], reports);
        let SessionReport {
            mut signature,
            provider,
            binds_device,
            optimized,
            ..
        } = reports.swap_remove(0);
        self.check_device(&config, binds_device, provider).map_err(bad)?;
        if let Some(manifest) = &manifest {
            signature.check_manifest(manifest).map_err(bad)?;
        }
        let reshapes = signature.declare(&config).map_err(bad)?;
        let began = Instant::now();
        let join = self.join_in_time(&config, &signature, &object).await?;
        seconds.features = began.elapsed().as_secs_f64();
        self.report_seconds(&name, &seconds);
        let pending = PendingRequests::new();
        let metrics = self.metrics.for_model(&name, self.features.kind);
        let layout = opened.groups.clone();
        let queue = self.queue(&config, &layout, &pending, &metrics);
        let stats = Stats::default();
        let shared = SharedBySessions {
            queue: &queue,
            pending: &pending,
            metrics: &metrics,
            runs: stats.runs(),
        };
        let threads = self.assign(opened, &name, &shared);
        Ok(Loaded {
            model: Model {
                name,
                version: version.to_string(),
                signature,
                reshapes,
                join,
                share: Arc::default(),
                pending,
                metrics,
                stats,
                max_request_rows: config.batching.max_request_rows.max(config.max_batch_size) as usize,
                provider,
                config,
                layout,
                queue,
                threads: Mutex::new(threads),
                _disk_space: disk_space,
            },
            seconds,
            optimized,
        })
    }

    /// Refuses a load while as many abandoned sessions as there are cores keep them busy.
    ///
    /// # Errors
    /// Too many of them, also after [`ABANDONED_GRACE`].
    pub(crate) async fn check_abandoned(&self) -> Result<(), LoadError> {
        let (began, cores) = (Instant::now(), self.fitting.cores());
        let sessions = loop {
            match AbandonedSession::count() {
                sessions if sessions < cores => return Ok(()),
                sessions if began.elapsed() > ABANDONED_GRACE => break sessions,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let what = format!(
            "{sessions} sessions of loads that were given up are still being built (cores: {cores}): wait until \
             `tierlab_abandoned_sessions` falls, or restart the server without their models"
        );
        Err(LoadError {
            passing: true,
            ..LoadError::new(what)
        })
    }

    /// Rows that are read to a device must be read to the one that the sessions are bound to.
    fn check_device(&self, config: &ModelConfig, binds: Option<u32>, provider: &str) -> Result<(), String> {
        let device = self.features.device().filter(|_| !config.joined.is_empty());
        let Some(lands) = device.filter(|&lands| binds != Some(lands)) else {
            return Ok(());
        };
        let binds = match binds {
            Some(device) => format!("device {device} (`runtime.cuda.device_id`)"),
            None => format!("none: they run on `{provider}`, or take or give text"),
        };
        Err(format!(
            "`features.rows = \"device\"` reads its rows to CUDA device {lands}, and its sessions can be bound to {binds}; \
             `features.rows = \"host\"` serves it"
        ))
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
            self.metrics.set_load_seconds(model, stage, time);
        }
    }

    /// The provider for a model's sessions, and the sessions to open.
    fn plan(&self, graph: &Graph, config: &ModelConfig) -> Result<(Provider, Plan), String> {
        let stated = config.instances.as_ref();
        let kind = stated.map(|instances| instances.kind).unwrap_or_default();
        let provider = self.runtime.provider_for(kind)?;
        let plan = self.fitting.plan(stated, graph.bytes(), Runtime::is_cpu(provider));
        Ok((provider, plan))
    }

    /// Opens the sessions of a version. Once they are built, the graph is not needed any more.
    async fn open_sessions(
        &self,
        name: &str,
        config: &ModelConfig,
        (graph, cached): (Graph, CachedGraph),
        warmup: Warmup,
        slot: LoadSlot<'_>,
    ) -> Result<OpenSessions, String> {
        let (provider, plan) = self.plan(&graph, config)?;
        let spec = SessionSpec {
            runtime: self.runtime.clone(),
            graph,
            source: cached.source(),
            provider,
            threads: plan.first().threads,
            max_batch_size: config.max_batch_size,
            warmup: Arc::new(warmup),
            measure: None,
        };
        let opener = Opener::new(&self.limits, name, spec, config.instances.as_ref(), slot);
        let opened = self.fitting.open(&plan, opener).await;
        cached.store_or_forget(opened.as_ref().map_or(&[], |opened| &opened.reports));
        opened
    }

    /// A queue for the sessions of a version.
    fn queue(
        &self,
        config: &ModelConfig,
        layout: &[SessionGroup],
        pending: &Arc<PendingRequests>,
        metrics: &ModelMetrics,
    ) -> Arc<BatchQueue> {
        let rule = Rule {
            // An unbatched request is one row of the queue.
            max_rows: config.max_batch_size.max(1) as usize,
            preferred_rows: preferred(config),
            max_delay: Duration::from_micros(config.batching.max_delay_us),
        };
        let gauges = QueueGauges {
            depth: metrics.queue_depth.clone(),
            stuck: metrics.stuck_sessions.clone(),
        };
        let groups = Groups::new(layout.iter().map(|group| group.sessions as usize).collect());
        BatchQueue::new(rule, groups, self.queue_capacity, Arc::clone(pending), gauges)
    }

    /// Looks for what the optimiser made of a graph before.
    async fn look_up(&self, graph: &Graph, config: &ModelConfig) -> Result<CachedGraph, String> {
        let (provider, plan) = self.plan(graph, config)?;
        let threads = plan.first().threads;
        let (Some(cache), true) = (&self.optimized, Runtime::is_cpu(provider)) else {
            return Ok(CachedGraph::Off);
        };
        let (cache, graph) = (Arc::clone(cache), graph.clone());
        let version = self.runtime.version.clone();
        let found = tokio::task::spawn_blocking(move || {
            let Some(key) = OptimizedCache::key(&graph, &version, "cpu", threads) else {
                return CachedGraph::Off;
            };
            match cache.find(&key) {
                Some(onnx) => CachedGraph::Hit { cache, key, onnx },
                None => CachedGraph::Miss {
                    partial: cache.partial(),
                    cache,
                    key,
                },
            }
        });
        Ok(found.await.unwrap_or(CachedGraph::Off))
    }

    /// Sends every session to the queue.
    fn assign(&self, opened: OpenSessions, name: &str, shared: &SharedBySessions<'_>) -> Vec<JoinHandle<()>> {
        let SharedBySessions {
            queue,
            pending,
            metrics,
            runs,
        } = shared;
        let mut threads = Vec::new();
        for GroupedSession { group, session } in opened.sessions {
            let clock = SessionClock::new(Arc::clone(pending), self.metrics.for_session(name, session.number));
            let counters: Arc<dyn Settle> = Arc::clone(&clock) as _;
            self.metrics.settle_before_scrapes(&counters);
            let counts = RunCounts {
                batch_rows: metrics.batch_rows.clone(),
                interrupted: metrics.interrupted_runs.clone(),
                runs: Arc::clone(runs),
            };
            threads.push(session.serve(Assignment {
                model: name.to_owned(),
                queue: Arc::clone(queue),
                group,
                clock,
                counts,
                delivery: Delivery::start(),
                admission: Arc::clone(&self.admission),
            }));
        }
        threads
    }

    /// Opens the feature table, within the limit of a load.
    async fn join_in_time(
        &self,
        config: &ModelConfig,
        signature: &Signature,
        object: &ObjectPath,
    ) -> Result<Option<Join>, LoadError> {
        let join = timeout(self.limits.load, self.open_join(config, signature, object.as_str()));
        let late = |_| Err(self.limits.late(object, "its feature table was not open"));
        join.await.unwrap_or_else(late)
    }

    async fn open_join(
        &self,
        config: &ModelConfig,
        signature: &Signature,
        object: &str,
    ) -> Result<Option<Join>, LoadError> {
        let columns = signature.joined(config).map_err(|what| LoadError::at(object, what))?;
        let Some(first) = config.joined.values().next() else {
            return Ok(None);
        };
        let wanted = columns
            .into_iter()
            .map(|JoinedColumn { input, column }| WantedColumn { input, name: column });
        Join::open(
            self.features.clone(),
            Arc::clone(&self.tables),
            &first.table,
            &signature.inputs,
            &wanted.collect::<Vec<_>>(),
        )
        .await
        .map(Some)
    }
}

/// Stages of a load up to its feature table: reading, verifying and placing files, then what the slowest session took.
fn seconds_of([read, verify, place]: [Duration; 3], reports: &[SessionReport]) -> LoadSeconds {
    let longest = |time: fn(&SessionReport) -> Duration| reports.iter().map(time).max().unwrap_or_default();
    LoadSeconds {
        read: read.as_secs_f64(),
        verify: verify.as_secs_f64(),
        place: place.as_secs_f64(),
        session: longest(|report| report.session_time).as_secs_f64(),
        warmup: longest(|report| report.warmup_time).as_secs_f64(),
        features: 0.0,
    }
}

/// The disk space of files that the sessions map.
fn disk_space(graph: &Graph) -> Option<Arc<DiskSpace>> {
    match &graph.weights {
        Weights::Mapped(placed) => Some(placed.room()),
        Weights::InMemory(_) => None,
    }
}

/// The numbers of rows that close a batch, ascending.
fn preferred(config: &ModelConfig) -> Vec<usize> {
    let mut rows: Vec<usize> = config
        .batching
        .preferred_rows
        .iter()
        .map(|&rows| rows as usize)
        .collect();
    rows.sort_unstable();
    rows
}
