//! Lifecycle of a server: listen, load, serve, drain. At its end admitted requests are finished within a limit; the
//! rest is cancelled, and named. A run that ONNX Runtime does not end is not waited for.
//!
//! In: a validated configuration, listeners, and a future that ends when the server has to stop. Out: only an error;
//! all else goes to its clients, metrics, log, and the readiness callback.

use crate::config::{Config, ConfigError};
use crate::error::ServerError;
use crate::features::live::LiveTables;
use crate::features::tier::{FeatureTier, RowDestination};
use crate::front::connections::{Endpoint, ListenerConfig, fit_files};
use crate::front::state::ServerState;
use crate::front::{grpc, http};
use crate::host::memory;
use crate::inference::runtime::{MappedWeights, OptimizedCache, Providers, Runtime};
use crate::models::loading::Loader;
use crate::models::loading::fitting::{Fitting, LoadLimits};
use crate::models::management::ModelManager;
use crate::models::serving::Model;
use crate::pipeline::Pipeline;
use crate::request::{Admission, Reason, Refusal};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::gpu;
use crate::telemetry::trace::otlp::Telemetry;
use futures::future::{OptionFuture, join_all};
use prometheus::Registry;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_protocol::metrics::VARIANT_LABEL;
use tierlab_storage::wrappers::{CacheConfig, Limited, Role, StorageMetrics, compose};
use tierlab_storage::{Tier, TierConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

/// Period of the timer: shorter than most requests' time limit, and long enough that an idle server stays idle.
const TIMER_PERIOD: Duration = Duration::from_secs(1);

/// Addresses that the fronts listen on.
#[derive(Debug)]
pub struct Listeners {
    /// HTTP listener.
    pub http: TcpListener,
    /// gRPC listener, if wanted.
    pub grpc: Option<TcpListener>,
}

/// Addresses of [`Listeners`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP address.
    pub http: SocketAddr,
    /// gRPC address, if served.
    pub grpc: Option<SocketAddr>,
}

impl Listeners {
    fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            http: self.http.local_addr()?,
            grpc: self.grpc.as_ref().map(TcpListener::local_addr).transpose()?,
        })
    }

    /// Serves on all of them; ends when `draining` is set and the last connection is done.
    async fn serve(
        self,
        state: Arc<ServerState>,
        config: ListenerConfig,
        telemetry: Option<Arc<Telemetry>>,
        draining: watch::Receiver<bool>,
    ) {
        let http = Endpoint {
            routes: http::HttpRoutes::new(Arc::clone(&state)),
            config: config.clone(),
            telemetry: telemetry.clone(),
            pipeline: state.pipeline.clone(),
        };
        let grpc = Endpoint {
            pipeline: state.pipeline.clone(),
            routes: grpc::router(state),
            config,
            telemetry,
        };
        let serve_grpc = self.grpc.map(|listener| grpc.serve(listener, draining.clone()));
        tokio::join!(http.serve(self.http, draining), OptionFuture::from(serve_grpc));
    }
}

/// Serves until `shutdown` ends, then drains. Calls `ready` with the addresses once every model is loaded and warm.
///
/// # Errors
/// Fails if a tier, the runtime or a model cannot be loaded, or if work was left at the end of the drain time.
pub async fn run(
    config: Config,
    listeners: Listeners,
    ready: impl FnOnce(Addresses) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServerError> {
    let on_registry = |e: prometheus::Error| ServerError::Load(format!("metrics: {e}"));
    let variant = config.raw.telemetry.variant.iter();
    let labels = variant.map(|name| (VARIANT_LABEL.to_owned(), name.clone())).collect();
    let registry = Registry::new_custom(None, Some(labels)).map_err(on_registry)?;
    let metrics = Arc::new(Metrics::register(&registry).map_err(on_registry)?);
    let storage_metrics = StorageMetrics::register(&registry).map_err(on_registry)?;
    metrics
        .in_flight_limit
        .set(i64::try_from(config.raw.admission.max_in_flight).unwrap_or(i64::MAX));
    let _gpus = gpu::watch(&registry, config.raw.telemetry.gpu_interval).map_err(on_registry)?;
    let telemetry = Telemetry::start(&config.raw.telemetry, metrics.spans.clone())?;
    memory::note_limits();
    let (memory, set_by) = memory::process_limit();
    let buffered = config.raw.admission.max_buffered_bytes;
    tracing::info!(
        memory,
        set_by,
        buffered,
        "available memory, and the limit of requests, in bytes"
    );
    let admission = Admission::new(config.raw.admission, metrics.in_flight.clone());
    let pipeline = Pipeline { admission, metrics };
    let manager = ModelManager::new(config.management.clone());
    let state = Arc::new(ServerState {
        pipeline,
        registry,
        manager,
        draining: watch::Sender::new(false),
    });
    let on_listener = |e: std::io::Error| ServerError::Load(format!("listener: {e}"));
    let addresses = listeners.addresses().map_err(on_listener)?;

    tokio::spawn(keep_timer_due());
    for address in [Some(addresses.http), addresses.grpc].into_iter().flatten() {
        warn_if_exposed(address, &config.connections);
    }
    let mut listener_config = config.connections.clone();
    listener_config.bounds = fit_files(listener_config.bounds, 1 + u64::from(addresses.grpc.is_some()));
    let draining = state.draining.subscribe();
    let front = listeners.serve(Arc::clone(&state), listener_config, telemetry.clone(), draining);
    let front = tokio::spawn(front);
    tokio::pin!(shutdown);
    let is_loaded = tokio::select! {
        loaded = load(&config, &state, &storage_metrics) => loaded.map(|()| true)?,
        () = &mut shutdown => false,
    };
    if is_loaded {
        ready(addresses);
        shutdown.await;
    }
    tracing::info!("shutting down: no new connections, finishing admitted requests");
    state.draining.send_replace(true);
    let finished = finish(front, &state, config.raw.drain.timeout).await;
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    finished
}

/// Keeps a timer due soon. A timer that is due before all others makes its thread write to the one that waits for them:
/// on an idle server, one system call for the deadline of each request. With this timer, deadlines are never first.
async fn keep_timer_due() {
    loop {
        tokio::time::sleep(TIMER_PERIOD).await;
    }
}

/// Warns if anybody on the network can call, or listen.
fn warn_if_exposed(address: SocketAddr, listener_config: &ListenerConfig) {
    if address.ip().is_loopback() {
        return;
    }
    if listener_config.access.token.is_none() {
        tracing::warn!(%address, "anyone who reaches this address may call: set `access.token_file`, or listen on 127.0.0.1");
    }
    if listener_config.tls.is_none() {
        tracing::warn!(%address, "requests, replies and tokens are unencrypted: set `tls`, or listen on 127.0.0.1");
    }
}

/// Opens the tiers and ONNX Runtime, and loads the models.
async fn load(config: &Config, state: &ServerState, storage_metrics: &StorageMetrics) -> Result<(), ServerError> {
    let settings = &config.raw.runtime;
    let chosen = [
        ("ORT_DYLIB_PATH", config.library.as_deref()),
        ("[runtime] library", settings.library.as_deref()),
    ];
    let providers = Providers {
        choice: settings.provider,
        cuda: settings.cuda.clone(),
        tensorrt: settings.tensorrt.clone(),
    };
    let runtime = Runtime::load(chosen, providers)?;
    tracing::info!(version = %runtime.version, library = %runtime.library.display(), "ONNX Runtime");
    let (tier, features) = open_tiers(config, storage_metrics).await?;
    let mut info = features.rows.info();
    info.notes.extend(features.destination.note());
    let version = runtime.version.clone();
    let revalidate_s = config.raw.features.revalidate_s;
    let loader = Loader {
        tier,
        runtime,
        features,
        tables: LiveTables::new((revalidate_s > 0).then(|| Duration::from_secs(revalidate_s))),
        metrics: Arc::clone(&state.pipeline.metrics),
        admission: Arc::clone(&state.pipeline.admission),
        queue_capacity: config.raw.admission.max_in_flight,
        optimized: open_optimized(config)?,
        mapped: MappedWeights::new(settings.weights.clone()),
        limits: LoadLimits {
            load: Duration::from_millis(settings.load_timeout_ms),
            warmup: Duration::from_millis(settings.warmup_timeout_ms),
            memory: settings.max_load_bytes,
        },
        fitting: Fitting::new(settings.instances),
    };
    state.manager.start(loader).await?;
    let served = state.manager.snapshot();
    let providers: BTreeSet<&str> = served.models().map(|model| model.provider).collect();
    let providers = providers.into_iter().collect::<Vec<_>>().join("+");
    let notes = info.notes.join("; ");
    let labels = HashMap::from([
        ("version", env!("CARGO_PKG_VERSION")),
        ("onnxruntime", version.as_str()),
        ("providers", providers.as_str()),
        ("model_tier", config.model_tier.kind()),
        ("feature_tier", info.kind),
        ("feature_location", info.location.as_str()),
        ("feature_notes", notes.as_str()),
    ]);
    state.metrics().build_info.with(&labels).set(1.0);
    Ok(())
}

/// Cache of optimised graphs, if configured.
fn open_optimized(config: &Config) -> Result<Option<Arc<OptimizedCache>>, ServerError> {
    let Some(folder) = &config.raw.runtime.optimized_cache else {
        return Ok(None);
    };
    let opened = OptimizedCache::open(folder, config.raw.runtime.optimized_cache_max_bytes);
    let opened =
        opened.map_err(|e| ServerError::Load(format!("{} (`runtime.optimized_cache`): {e}", folder.display())))?;
    Ok(Some(Arc::new(opened)))
}

/// Opens the model tier, and the feature tier with and without its cache. If both are of one kind, it is opened once.
async fn open_tiers(config: &Config, metrics: &StorageMetrics) -> Result<(Arc<dyn Tier>, FeatureTier), ServerError> {
    let open = async |tier: &TierConfig| {
        let (kind, opened) = (tier.kind(), tierlab_storage::open_counted(tier, metrics).await);
        opened.map_err(|error| ServerError::Tier { kind, error })
    };
    let models = open(&config.model_tier).await?;
    let features = match config.feature_tier == config.model_tier {
        true => Arc::clone(&models),
        false => open(&config.feature_tier).await?,
    };
    let features = config.layout.of_rows(features);
    let kind = config.feature_tier.kind();
    let wrap = |tier: &Arc<dyn Tier>, role, cache: &CacheConfig| {
        compose(Arc::clone(tier), role, cache, metrics).map_err(|error| ServerError::Tier { kind, error })
    };
    let off = CacheConfig::off();
    let features = FeatureTier {
        uncached: wrap(&features, Role::Feature, &off)?,
        rows: wrap(&features, Role::Feature, &config.cache)?,
        kind,
        destination: config.destination,
        damaged: metrics.damaged_rows(kind),
    };
    if features.destination != RowDestination::Host && features.device().is_none() {
        let what = format!(
            "\"device\" requires a feature tier that reads into device memory: kind `gds` without wrappers; this one \
             is `{kind}` ({})",
            features.rows.info().wrappers.join(", ")
        );
        return Err(ConfigError::at("features.rows", what).into());
    }
    let models = wrap(&models, Role::Model, &off)?;
    let max_bytes = config.raw.repository.max_file_bytes;
    let models = Limited::new(models, max_bytes, "repository.max_file_bytes");
    Ok((Arc::new(models), features))
}

/// Additional time for interrupted runs to end, and their refusals to be sent.
const FINISH_GRACE: Duration = Duration::from_secs(1);

/// Waits for the connections, then for the sessions.
///
/// # Errors
/// Names requests or runs still in progress at the end of the limit.
async fn finish(mut front: JoinHandle<()>, state: &Arc<ServerState>, limit: Duration) -> Result<(), ServerError> {
    let deadline = Instant::now() + limit;
    let hard_deadline = deadline + FINISH_GRACE;
    let mut left = Vec::new();
    let models: Vec<Arc<Model>> = state.manager.snapshot().models().cloned().collect();
    let in_time = timeout_at(deadline.into(), &mut front).await.is_ok();
    if !in_time {
        left.extend(stop_runs(&models));
        if timeout_at(hard_deadline.into(), front).await.is_err() {
            left.push("connections whose clients have not sent their request or not read their reply".to_owned());
        }
    }
    // Queues are closed, so the threads end after their last run.
    models.iter().for_each(|model| model.queue.close());
    let mut threads = join_all(models.iter().map(|model| model.threads_ended()));
    let threads_deadline = if in_time { deadline } else { hard_deadline };
    if timeout_at(threads_deadline.into(), &mut threads).await.is_err() && in_time {
        left.extend(stop_runs(&models));
        let _ = timeout_at(hard_deadline.into(), threads).await;
    }
    let (admitted, settled) = state.pipeline.admission.tally();
    if admitted > settled {
        left.push(format!("{} admitted requests", admitted - settled));
    }
    if left.is_empty() {
        tracing::info!(admitted, settled, "drained");
        return Ok(());
    }
    let left = left.join("; ");
    tracing::error!(admitted, settled, left, "not drained");
    Err(ServerError::Drain { limit, left })
}

/// Interrupts all runs, and describes them.
fn stop_runs(models: &[Arc<Model>]) -> Vec<String> {
    let refusal = Refusal::new(Reason::Draining, "the server is shutting down");
    let stop = |model: &Arc<Model>| {
        let (name, version) = (model.name.clone(), model.version.clone());
        let runs = model.queue.stop_runs(&refusal);
        runs.into_iter()
            .map(move |run| format!("a run of model `{name}`, version {version}: {run}"))
    };
    models.iter().flat_map(stop).collect()
}
