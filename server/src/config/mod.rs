//! The server's configuration: files, environment and flags to one validated [`Config`].
//!
//! In: `server.toml`, the `tiers/*.toml` beside it (one document, under `tiers.NAME`), `TIERLAB_A__B=value` variables, and
//! `--set a.b=value` flags, each over the ones before. Out: a validated configuration, or an error that names file and key.
//! Parse, then build: no other module reads files or the environment for its configuration. The feature cache can be set in
//! two places, the server's `[cache]` and the feature tier's own.

mod cache;
mod files;
mod listener;
mod raw;
mod telemetry;

pub use crate::error::ConfigError;

use crate::error::fail;
use crate::features::destination::RowDestination;
use crate::features::layout::TableLayout;
use crate::front::connections::ListenerConfig;
use crate::inference::runtime::LibrarySearch;
use crate::inference::runtime::mapped::{MappedConfig, NEVER_FROM_MEMORY_BYTES};
use crate::inference::runtime::memory;
use crate::inference::runtime::optimized::OptimizedCacheConfig;
use crate::inference::runtime::provider::Providers;
use crate::inference::session::layout::{FitConfig, MAX_CORES};
use crate::models::loading::opening::LoadLimits;
use crate::models::management::settings::{ALL_MODELS, ControlMode, ManagementSettings};
use crate::pipeline::admission::Limits;
use crate::telemetry::config::TelemetryConfig;
use crate::telemetry::log::LogFormat;
use cache::cache_of;
use files::{parse_tiers, read_table, read_tiers, tier_file};
use raw::{Raw, RawControl, RawFeatures, RawInstances, RawRepository, RawRows, RawWeights};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_formats::model::{ModelConfig, is_plain_name};
use tierlab_storage::config::{overlay, takes_out};
use tierlab_storage::wrappers::CacheConfig;
use tierlab_storage::{StorageError, TierConfig};

/// Threads of the async runtime at most.
const MAX_WORKER_THREADS: usize = 1024;
/// Open connections at most.
const MAX_CONNECTIONS: usize = 1 << 20;
/// Requests in flight at most.
const MAX_IN_FLIGHT: usize = 1 << 20;
/// Bytes that requests hold together at most, where the configuration does not say.
const MAX_FITTED_BYTES: usize = 1 << 30;
/// The part of the process's memory that they may be: models, runs and allocators need the rest.
const BUFFERED_SHARE: u64 = 8;
/// The prefix of environment variables that set keys.
const ENV_PREFIX: &str = "TIERLAB_";

/// Raw settings from the command line and the environment.
#[derive(Clone, Default)]
pub struct Sources {
    /// `--config`: the path of `server.toml`; tiers lie in `tiers/` beside it.
    pub config: PathBuf,
    /// `--tier`: the tier of models and features.
    pub tier: Option<String>,
    /// `--model-tier`, over `--tier`.
    pub model_tier: Option<String>,
    /// `--feature-tier`, over `--tier`.
    pub feature_tier: Option<String>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--grpc-listen`.
    pub grpc_listen: Option<String>,
    /// `--set KEY=VALUE`, in order.
    pub set: Vec<String>,
    /// The process's environment.
    pub environment: Vec<(String, String)>,
}

impl fmt::Debug for Sources {
    /// The environment by its names only: there may be tokens in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Sources")
            .field("config", &self.config)
            .field("tier", &self.tier)
            .field("model_tier", &self.model_tier)
            .field("feature_tier", &self.feature_tier)
            .field("listen", &self.listen)
            .field("environment", &names)
            .finish_non_exhaustive()
    }
}

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) grpc_listen: Option<SocketAddr>,
    pub(crate) management: ManagementSettings,
    pub(crate) model_tier: TierConfig,
    pub(crate) feature_tier: TierConfig,
    /// Over the feature tier.
    pub(crate) cache: CacheConfig,
    /// The largest file of a model that is read.
    pub(crate) max_file_bytes: u64,
    /// Layout of feature tables on their tier.
    pub(crate) layout: TableLayout,
    /// Memory that feature rows are read into.
    pub(crate) destination: RowDestination,
    /// Interval between checks for a new table version; `None` disables them.
    pub(crate) revalidate: Option<Duration>,
    pub(crate) limits: Limits,
    pub(crate) connections: ListenerConfig,
    backlog: u32,
    pub(crate) search: LibrarySearch,
    pub(crate) providers: Providers,
    /// Cache folder for optimised graphs; `None` disables it.
    pub(crate) optimized_cache: Option<OptimizedCacheConfig>,
    pub(crate) mapped: MappedConfig,
    pub(crate) load_limits: LoadLimits,
    /// Sessions of models whose configs state none.
    pub(crate) fit: FitConfig,
    pub(crate) worker_threads: usize,
    pub(crate) drain: Duration,
    pub(crate) telemetry: TelemetryConfig,
    log_format: LogFormat,
    log_level: String,
}

impl Config {
    /// Reads and validates everything.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, an unknown key, a value out of range, or a tier that is not configured.
    pub fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let mut document = read_table(&sources.config)?;
        let mut tiers = read_tiers(&sources.config)?;
        if let Some(inside) = document.remove("tiers") {
            let toml::Value::Table(inside) = inside else {
                return fail(format!("{}: `tiers` is no table", sources.config.display()));
            };
            tiers.extend(inside);
        }
        document.insert("tiers".into(), toml::Value::Table(tiers));
        let mut library = None;
        let mut layers = vec![document.clone()];
        let mut lay = |setting: &str| {
            overlay(&mut document, setting)?;
            if takes_out(setting) {
                // Of the layers below, it is in one at least.
                for layer in &mut layers {
                    let _ = overlay(layer, setting);
                }
                return Ok::<(), StorageError>(());
            }
            let mut layer = toml::Table::new();
            overlay(&mut layer, setting)?;
            layers.push(layer);
            Ok(())
        };
        for (name, value) in &sources.environment {
            if name == "ORT_DYLIB_PATH" && !value.is_empty() {
                library = Some(PathBuf::from(value));
            } else if name == listener::TOKEN || name == listener::ADMIN_TOKEN {
                // No keys of the document: nothing that may be printed holds them.
            } else if let Some(key) = name.strip_prefix(ENV_PREFIX) {
                let key = key.to_lowercase().replace("__", ".");
                match lay(&format!("{key}={value}")) {
                    // An empty variable is as good as none, and takes out a key that there is.
                    Err(_) if value.trim().is_empty() => {}
                    laid => laid.map_err(|e| ConfigError(format!("{name}: {e}")))?,
                }
            }
        }
        for set in &sources.set {
            lay(set).map_err(|e| ConfigError(format!("--set {e}")))?;
        }
        let tiers = match document.remove("tiers") {
            Some(toml::Value::Table(tiers)) => tiers,
            _ => toml::Table::new(),
        };
        let raw = Raw::deserialize(document).map_err(|e| {
            let what = e.to_string();
            ConfigError(format!(
                "{} (with TIERLAB_ and --set applied): {}",
                sources.config.display(),
                what.trim_end()
            ))
        })?;
        let tiers = parse_tiers(&sources.config, tiers)?;
        let cache = |tier: &str| {
            cache_of(tier, &layers).map_err(|e| ConfigError(format!("{}: [cache]: {e}", sources.config.display())))
        };
        Self::build(raw, &tiers, cache, sources, library)
    }

    fn build(
        raw: Raw,
        tiers: &BTreeMap<String, TierConfig>,
        cache: impl FnOnce(&str) -> Result<CacheConfig, ConfigError>,
        sources: &Sources,
        library: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let file = sources.config.display();
        let (flag_tier, file_tier) = (sources.tier.as_ref(), raw.tier.as_ref());
        let pick = |flag: &str, wanted: [Option<&String>; 4]| {
            let names = tiers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let Some(name) = wanted.into_iter().flatten().next() else {
                return fail(format!("no tier chosen: give --tier or {flag}, one of {names}"));
            };
            let unknown = || {
                ConfigError(format!(
                    "no tier `{name}`: {file} and the tiers/ beside it have {names}"
                ))
            };
            Ok((name.clone(), tiers.get(name).cloned().ok_or_else(unknown)?))
        };
        let (models, features) = (sources.model_tier.as_ref(), sources.feature_tier.as_ref());
        let (model_tier_name, model_tier) =
            pick("--model-tier", [models, flag_tier, raw.model_tier.as_ref(), file_tier])?;
        let (feature_tier_name, feature_tier) = pick(
            "--feature-tier",
            [features, flag_tier, raw.feature_tier.as_ref(), file_tier],
        )?;
        let address = |key: &str, value: &String| {
            value
                .parse::<SocketAddr>()
                .map_err(|_| ConfigError(format!("`{key}` = `{value}` is no address such as 127.0.0.1:8000")))
        };
        let listen = address("listen", sources.listen.as_ref().unwrap_or(&raw.listen))?;
        let grpc_listen = sources.grpc_listen.as_ref().or(raw.grpc_listen.as_ref());
        let grpc_listen = grpc_listen.map(|value| address("grpc_listen", value)).transpose()?;
        let addresses: Vec<SocketAddr> = [Some(listen), grpc_listen].into_iter().flatten().collect();
        for (key, value) in [
            ("admission.max_in_flight", raw.admission.max_in_flight as u64),
            ("admission.max_body_bytes", raw.admission.max_body_bytes as u64),
            ("repository.max_file_bytes", raw.repository.max_file_bytes),
            ("admission.timeout_ms", raw.admission.timeout_ms),
            ("connections.max", raw.connections.max as u64),
            (
                "connections.max_per_address",
                raw.connections.max_per_address.unwrap_or(1) as u64,
            ),
            ("connections.backlog", u64::from(raw.connections.backlog)),
            ("connections.header_timeout_ms", raw.connections.header_timeout_ms),
            ("connections.write_timeout_ms", raw.connections.write_timeout_ms),
            ("runtime.load_timeout_ms", raw.runtime.load_timeout_ms),
            ("runtime.warmup_timeout_ms", raw.runtime.warmup_timeout_ms),
        ] {
            if value == 0 {
                return fail(format!("{file}: `{key}` must be at least 1"));
            }
        }
        check_most(&raw, &file)?;
        let plain = |name: &&String| *name == ALL_MODELS || is_plain_name(name);
        if let Some(name) = raw.models.iter().find(|name| !plain(name)) {
            return fail(format!(
                "{file}: `models` holds `{name}`, no plain name (letters, digits, `.`, `_`, `-`)"
            ));
        }
        let cache = cache(&feature_tier_name)?;
        Ok(Self {
            listen,
            grpc_listen,
            max_file_bytes: raw.repository.max_file_bytes,
            layout: layout_of(&raw.features, sources)?,
            destination: destination_of(&raw.features, &cache, sources)?,
            revalidate: revalidate_of(&raw.features, sources)?,
            management: ManagementSettings {
                control: control_of(&raw.repository, sources)?,
                admin: raw.admin.enabled,
                models: raw.models,
                model_configs: model_configs_of(raw.model_config, &file)?,
                drain: Duration::from_millis(raw.drain.timeout_ms),
                tier_file: tier_file(&sources.config, &model_tier_name),
            },
            model_tier,
            feature_tier,
            cache,
            limits: Limits {
                max_in_flight: raw.admission.max_in_flight,
                max_body_bytes: raw.admission.max_body_bytes,
                max_buffered_bytes: match raw.admission.max_buffered_bytes {
                    0 => fitted_buffers(),
                    bytes => bytes,
                },
                timeout: Duration::from_millis(raw.admission.timeout_ms),
            },
            backlog: raw.connections.backlog,
            connections: listener::listener_config(
                &raw.connections,
                raw.access,
                raw.tls,
                &sources.environment,
                &addresses,
            )?,
            search: LibrarySearch {
                environment: library,
                config: raw.runtime.library,
            },
            providers: Providers {
                choice: raw.runtime.provider,
                cuda: raw.runtime.cuda,
                tensorrt: raw.runtime.tensorrt,
            },
            optimized_cache: raw.runtime.optimized_cache.map(|folder| OptimizedCacheConfig {
                folder,
                max_bytes: raw.runtime.optimized_cache_max_bytes,
            }),
            mapped: mapped_of(raw.runtime.weights, sources)?,
            load_limits: LoadLimits {
                load: Duration::from_millis(raw.runtime.load_timeout_ms),
                warmup: Duration::from_millis(raw.runtime.warmup_timeout_ms),
                memory: raw.runtime.max_load_bytes,
            },
            fit: fit_of(&raw.runtime.instances, sources)?,
            worker_threads: raw.runtime.worker_threads,
            drain: Duration::from_millis(raw.drain.timeout_ms),
            telemetry: raw.telemetry.build(&file.to_string())?,
            log_format: raw.log.format,
            log_level: raw.log.level,
        })
    }

    /// The address to serve gRPC on, where it is wanted.
    #[must_use]
    pub fn grpc_listen(&self) -> Option<SocketAddr> {
        self.grpc_listen
    }

    /// The address to listen on.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Connections that may wait to be taken.
    #[must_use]
    pub fn backlog(&self) -> u32 {
        self.backlog
    }

    /// Log format.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// The log's filter.
    #[must_use]
    pub fn log_level(&self) -> &str {
        &self.log_level
    }

    /// Time that admitted requests may take to finish after a termination signal.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.drain
    }

    /// Threads of the async runtime; 0 means one per core.
    #[must_use]
    pub fn worker_threads(&self) -> usize {
        self.worker_threads
    }
}

/// Refuses numbers that no machine can serve.
fn check_most(raw: &Raw, file: &impl fmt::Display) -> Result<(), ConfigError> {
    for (key, value, most) in [
        ("runtime.worker_threads", raw.runtime.worker_threads, MAX_WORKER_THREADS),
        ("connections.max", raw.connections.max, MAX_CONNECTIONS),
        ("admission.max_in_flight", raw.admission.max_in_flight, MAX_IN_FLIGHT),
    ] {
        if value > most {
            return fail(format!("{file}: `{key}` is {value}, the most is {most}"));
        }
    }
    Ok(())
}

/// Reports values that no model config can have at once. Conflicts with a model's own config are reported when that is read.
fn model_configs_of(
    raw: BTreeMap<String, toml::Table>,
    file: &impl std::fmt::Display,
) -> Result<BTreeMap<String, toml::Table>, ConfigError> {
    for (name, keys) in &raw {
        if !is_plain_name(name) {
            return fail(format!(
                "{file}: `model_config` holds `{name}`, which no model can be called"
            ));
        }
        if let Err(error) = toml::Value::Table(keys.clone()).try_into::<ModelConfig>() {
            return fail(format!("{file}: `model_config.{name}`: {error}"));
        }
    }
    Ok(raw)
}

fn layout_of(raw: &RawFeatures, sources: &Sources) -> Result<TableLayout, ConfigError> {
    TableLayout::of(&raw.layout)
        .or_else(|what| fail(format!("{}: `features.layout`: {what}", sources.config.display())))
}

fn destination_of(raw: &RawFeatures, cache: &CacheConfig, sources: &Sources) -> Result<RowDestination, ConfigError> {
    let file = sources.config.display();
    match raw.rows {
        RawRows::Host if raw.prove_every != 1 => fail(format!(
            "{file}: `features.prove_every` is {}, and on the host every row is proven: it goes with `features.rows = \
             \"device\"`",
            raw.prove_every
        )),
        RawRows::Host => Ok(RowDestination::Host),
        RawRows::Device if cache.capacity_bytes > 0 => fail(format!(
            "{file}: `features.rows = \"device\"` needs `cache.capacity_bytes = 0`: what never comes to the host cannot be \
             kept there"
        )),
        RawRows::Device => Ok(RowDestination::Device {
            prove_every: raw.prove_every,
        }),
    }
}

/// The longest pause between two looks at a feature table, in seconds.
const LONGEST_REVALIDATE_S: u64 = 86_400;

fn revalidate_of(raw: &RawFeatures, sources: &Sources) -> Result<Option<Duration>, ConfigError> {
    if raw.revalidate_s > LONGEST_REVALIDATE_S {
        return fail(format!(
            "{}: `features.revalidate_s` must be at most {LONGEST_REVALIDATE_S}, or 0 for never, is {}",
            sources.config.display(),
            raw.revalidate_s
        ));
    }
    Ok((raw.revalidate_s > 0).then(|| Duration::from_secs(raw.revalidate_s)))
}

/// The shortest and the longest pause between two looks at the model tier, in milliseconds.
const POLL_INTERVALS_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

fn control_of(raw: &RawRepository, sources: &Sources) -> Result<ControlMode, ConfigError> {
    if !POLL_INTERVALS_MS.contains(&raw.poll_interval_ms) {
        let (least, most) = (POLL_INTERVALS_MS.start(), POLL_INTERVALS_MS.end());
        let file = sources.config.display();
        return fail(format!(
            "{file}: `repository.poll_interval_ms` must be from {least} to {most}"
        ));
    }
    Ok(match raw.control {
        RawControl::None => ControlMode::None,
        RawControl::Explicit => ControlMode::Explicit,
        RawControl::Poll => ControlMode::Poll {
            every: Duration::from_millis(raw.poll_interval_ms),
        },
    })
}

/// Folder for files of many GiB: `/tmp` is often in memory.
const TEMPORARY_FOLDER: &str = "/var/tmp";

fn mapped_of(raw: RawWeights, sources: &Sources) -> Result<MappedConfig, ConfigError> {
    if raw.map_from_bytes > NEVER_FROM_MEMORY_BYTES {
        return fail(format!(
            "{}: `runtime.weights.map_from_bytes` may be {NEVER_FROM_MEMORY_BYTES} at most: ONNX Runtime takes no such \
             tensor from memory",
            sources.config.display()
        ));
    }
    let chosen = sources
        .environment
        .iter()
        .find(|(name, value)| name == "TMPDIR" && !value.is_empty());
    let temporary = || chosen.map_or(TEMPORARY_FOLDER, |(_, folder)| folder).into();
    Ok(MappedConfig {
        from_bytes: raw.map_from_bytes,
        folder: raw.folder.unwrap_or_else(temporary),
        max_bytes: raw.max_bytes,
    })
}

/// Bytes that requests may hold together where the configuration does not say: a share of the memory that there is.
fn fitted_buffers() -> usize {
    let share = memory::of_this_process().0 / BUFFERED_SHARE;
    MAX_FITTED_BYTES.min(usize::try_from(share).unwrap_or(MAX_FITTED_BYTES))
}

fn fit_of(raw: &RawInstances, sources: &Sources) -> Result<FitConfig, ConfigError> {
    if raw.cores > MAX_CORES {
        let file = sources.config.display();
        return fail(format!("{file}: `runtime.instances.cores` may be {MAX_CORES} at most"));
    }
    Ok(FitConfig {
        cores: raw.cores,
        measure: Duration::from_millis(raw.measure_ms),
        max_weight_bytes: raw.max_weight_bytes,
    })
}

#[cfg(test)]
mod tests;
