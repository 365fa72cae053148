//! A server's life: listen, load, serve, drain.
//!
//! In: a validated configuration, listeners, and a future that ends when the server is to stop. Out: nothing but an error; all
//! that it has to say goes to its clients, its metrics, its log and the callback that hears of readiness.

use crate::config::{Config, ConfigError};
use crate::drain;
use crate::error::ServerError;
use crate::features::live::LiveTables;
use crate::features::tier::{FeatureTier, RowDestination};
use crate::front::connections::{Endpoint, ListenerConfig, fit_files};
use crate::front::grpc;
use crate::front::http;
use crate::front::state::ServerState;
use crate::host::memory;
use crate::inference::runtime::Runtime;
use crate::inference::runtime::mapped::MappedWeights;
use crate::inference::runtime::optimized::{OptimizedCache, OptimizedCacheConfig};
use crate::models::loading::fitting::Fitting;
use crate::models::loading::load::Loader;
use crate::models::management::manager::{ModelManager, ModelSource};
use crate::pipeline::Pipeline;
use crate::request::admission::Admission;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::gpu::GpuWatch;
use crate::telemetry::trace::otlp::Telemetry;
use futures::future::OptionFuture;
use prometheus::Registry;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::metrics::VARIANT_LABEL;
use tierlab_storage::wrappers::{CacheConfig, Limited, Role, StorageMetrics, compose};
use tierlab_storage::{Tier, TierConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Shorter than most requests' time limit, and long enough that an idle server stays idle.
const TIMER_PERIOD: Duration = Duration::from_secs(1);

/// Addresses that the fronts listen on.
#[derive(Debug)]
pub struct Listeners {
    /// HTTP listener.
    pub http: TcpListener,
    /// gRPC, where it is wanted.
    pub grpc: Option<TcpListener>,
}

/// The addresses of [`Listeners`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP address.
    pub http: SocketAddr,
    /// gRPC, where it is served.
    pub grpc: Option<SocketAddr>,
}

impl Listeners {
    fn addresses(&self) -> std::io::Result<Addresses> {
        Ok(Addresses {
            http: self.http.local_addr()?,
            grpc: self.grpc.as_ref().map(TcpListener::local_addr).transpose()?,
        })
    }

    /// Serves on all of them; ends when `draining` says so and the last connection is done.
    async fn serve(
        self,
        state: Arc<ServerState>,
        listener_config: ListenerConfig,
        telemetry: Option<Arc<Telemetry>>,
        draining: watch::Receiver<bool>,
    ) {
        let http = Endpoint {
            listener: self.http,
            routes: http::Routes::new(Arc::clone(&state)),
            listener_config: listener_config.clone(),
            telemetry: telemetry.clone(),
            admission: Arc::clone(&state.pipeline.admission),
            metrics: Arc::clone(&state.pipeline.metrics),
        };
        let grpc = self.grpc.map(|listener| Endpoint {
            listener,
            admission: Arc::clone(&state.pipeline.admission),
            metrics: Arc::clone(&state.pipeline.metrics),
            routes: grpc::router(state),
            listener_config,
            telemetry,
        });
        let grpc = OptionFuture::from(grpc.map(|front| front.serve(draining.clone())));
        tokio::join!(http.serve(draining), grpc);
    }
}

/// Serves until `shutdown` ends, then drains. `ready` is called with the addresses once every model is loaded and warm.
///
/// # Errors
/// A tier, the runtime or a model that cannot be loaded; what was left at the end of the drain time.
pub async fn run(
    config: Config,
    listeners: Listeners,
    ready: impl FnOnce(Addresses) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServerError> {
    let on_registry = |e: prometheus::Error| ServerError::Load(format!("metrics: {e}"));
    let variant = config.telemetry.variant.iter();
    let labels = variant.map(|name| (VARIANT_LABEL.to_owned(), name.clone())).collect();
    let registry = Registry::new_custom(None, Some(labels)).map_err(on_registry)?;
    let metrics = Arc::new(Metrics::register(&registry).map_err(on_registry)?);
    let storage_metrics = StorageMetrics::register(&registry).map_err(on_registry)?;
    metrics
        .in_flight_limit
        .set(i64::try_from(config.limits.max_in_flight).unwrap_or(i64::MAX));
    let _gpus = GpuWatch::start(&registry, config.telemetry.gpu_interval).map_err(on_registry)?;
    let telemetry = Telemetry::start(&config.telemetry, metrics.for_spans())?;
    memory::note_limits();
    let (memory, set_by) = memory::of_this_process();
    let buffered = config.limits.max_buffered_bytes;
    tracing::info!(
        memory,
        set_by,
        buffered,
        "memory, and what requests may hold of it, in bytes"
    );
    let admission = Admission::new(config.limits, metrics.in_flight.clone());
    let pipeline = Pipeline { admission, metrics };
    let manager = ModelManager::new(config.management.clone());
    let state = Arc::new(ServerState::new(pipeline, registry, manager));
    let addresses = listeners
        .addresses()
        .map_err(|e| ServerError::Load(format!("listener: {e}")))?;

    tokio::spawn(keep_a_timer_due());
    let (leave, draining) = watch::channel(false);
    for address in [Some(addresses.http), addresses.grpc].into_iter().flatten() {
        warn_if_exposed(address, &config.connections);
    }
    let mut listener_config = config.connections.clone();
    listener_config.bounds = fit_files(listener_config.bounds, 1 + u64::from(addresses.grpc.is_some()));
    let front = listeners.serve(Arc::clone(&state), listener_config, telemetry.clone(), draining);
    let front = tokio::spawn(front);
    tokio::pin!(shutdown);
    let loaded = tokio::select! {
        loaded = load(&config, &state, &storage_metrics) => Some(loaded),
        () = &mut shutdown => None,
    };
    match loaded {
        Some(Ok(())) => {}
        Some(Err(error)) => return Err(error),
        None => return Ok(()),
    }
    ready(addresses);
    shutdown.await;
    state.drain();
    tracing::info!("shutting down: no new connections, admitted requests are finished");
    leave.send_replace(true);
    let finished = drain::finish(front, &state, config.drain).await;
    if let Some(telemetry) = telemetry {
        telemetry.finish().await;
    }
    finished
}

/// Sleeps and sleeps again. A timer that is due before all others makes its thread write to the one that waits for them: on
/// a server that was idle, one system call for the deadline of each request. With one due soon, deadlines are never first.
async fn keep_a_timer_due() {
    loop {
        tokio::time::sleep(TIMER_PERIOD).await;
    }
}

/// Says so where anybody on the network can call, or listen.
fn warn_if_exposed(address: SocketAddr, listener_config: &ListenerConfig) {
    if address.ip().is_loopback() {
        return;
    }
    if !listener_config.access.is_closed() {
        tracing::warn!(%address, "anybody who reaches this address may call: set `access.token_file`, or listen on 127.0.0.1");
    }
    if listener_config.tls.is_none() {
        tracing::warn!(%address, "requests, replies and tokens travel in the clear: set `tls`, or listen on 127.0.0.1");
    }
}

/// Opens the tiers and ONNX Runtime, and loads the models.
async fn load(config: &Config, state: &ServerState, storage_metrics: &StorageMetrics) -> Result<(), ServerError> {
    let runtime =
        Runtime::load(&config.search, config.providers.clone()).map_err(|e| ServerError::Load(e.to_string()))?;
    tracing::info!(version = %runtime.version, library = %runtime.library.display(), "ONNX Runtime");
    let (tier, features) = open_tiers(config, storage_metrics).await?;
    let mut info = features.rows.info();
    info.notes.extend(features.destination.note());
    let version = runtime.version.clone();
    let source = ModelSource {
        tier,
        loader: Loader {
            runtime,
            features,
            tables: LiveTables::new(config.revalidate),
            metrics: Arc::clone(&state.pipeline.metrics),
            admission: Arc::clone(&state.pipeline.admission),
            queue_capacity: config.limits.max_in_flight,
            optimized: open_optimized(config)?,
            mapped: MappedWeights::new(config.mapped.clone()),
            limits: config.load_limits,
            fitting: Fitting::new(config.fit),
        },
    };
    state.manager.start(source).await?;
    let served = state.manager.snapshot();
    let providers: BTreeSet<&str> = served.models().map(|model| model.provider).collect();
    let (providers, notes) = (
        providers.into_iter().collect::<Vec<_>>().join("+"),
        info.notes.join("; "),
    );
    let labels = HashMap::from([
        ("version", env!("CARGO_PKG_VERSION")),
        ("onnxruntime", version.as_str()),
        ("providers", providers.as_str()),
        ("model_tier", config.model_tier.kind()),
        ("feature_tier", info.kind),
        ("feature_location", info.location.as_str()),
        ("feature_notes", notes.as_str()),
    ]);
    state.metrics().set_build_info(&labels);
    Ok(())
}

/// The cache of optimised graphs, where there is one.
fn open_optimized(config: &Config) -> Result<Option<Arc<OptimizedCache>>, ServerError> {
    let Some(OptimizedCacheConfig { folder, max_bytes }) = &config.optimized_cache else {
        return Ok(None);
    };
    let opened = OptimizedCache::open(folder, *max_bytes);
    let opened =
        opened.map_err(|e| ServerError::Load(format!("{} (`runtime.optimized_cache`): {e}", folder.display())))?;
    Ok(Some(Arc::new(opened)))
}

/// The model tier, and the feature tier with and without its cache. One kind for both is opened once.
async fn open_tiers(
    config: &Config,
    storage_metrics: &StorageMetrics,
) -> Result<(Arc<dyn Tier>, FeatureTier), ServerError> {
    let open = async |tier: &TierConfig| {
        tierlab_storage::open_counted(tier, storage_metrics)
            .await
            .map_err(|error| ServerError::Tier {
                kind: tier.kind(),
                error,
            })
    };
    let models = open(&config.model_tier).await?;
    let features = if config.feature_tier == config.model_tier {
        Arc::clone(&models)
    } else {
        open(&config.feature_tier).await?
    };
    let features = config.layout.of_rows(features);
    let kind = config.feature_tier.kind();
    let wrap = |tier: &Arc<dyn Tier>, role, cache: &CacheConfig| {
        compose(Arc::clone(tier), role, cache, storage_metrics).map_err(|error| ServerError::Tier { kind, error })
    };
    let off = CacheConfig::off();
    let features = FeatureTier {
        uncached: wrap(&features, Role::Feature, &off)?,
        rows: wrap(&features, Role::Feature, &config.cache)?,
        kind,
        destination: config.destination,
        damaged: storage_metrics.damaged_rows(kind),
    };
    if features.destination != RowDestination::Host && features.device().is_none() {
        let what = format!(
            "\"device\" needs a feature tier that reads into device memory, of kind `gds` with nothing around it; this one \
             is `{kind}` ({})",
            features.rows.info().wrappers.join(", ")
        );
        return Err(ConfigError::at("features.rows", what).into());
    }
    let models = wrap(&models, Role::Model, &off)?;
    let models = Limited::new(models, config.max_file_bytes, "repository.max_file_bytes");
    Ok((Arc::new(models), features))
}
