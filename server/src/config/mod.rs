//! The server's configuration: files, environment and flags to one validated [`Config`].
//!
//! In: `server.toml`, the `tiers/*.toml` beside it (one document, under `tiers.NAME`), `TIERLAB_A__B=value` variables, and
//! `--set a.b=value` flags, each over the ones before. Out: a validated configuration, or an error that names file and key.
//! Parse, then build: no other module reads files or the environment for its configuration. The feature cache can be set in
//! two places, the server's `[cache]` and the feature tier's own.

mod files;
mod raw;

pub use crate::error::ConfigError;

use crate::error::fail;
use crate::features::tier::{RowDestination, TableLayout};
use crate::front::connections::ListenerConfig;
use crate::host::memory;
use crate::inference::runtime::{MappedConfig, NEVER_FROM_MEMORY_BYTES};
use crate::inference::session::layout::MAX_CORES;
use crate::models::management::{ALL_MODELS, ManagementSettings};
use files::{ADMIN_TOKEN, TOKEN, cache_of, listener_config, parse_tiers, read_table, read_tiers, tier_file};
use raw::{Raw, RawFeatures, RawRows};
use schemars::Schema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tierlab_formats::model::{ModelConfig, is_plain_name};
use tierlab_formats::toml_error::plain;
use tierlab_program::schema;
use tierlab_storage::config::{WrappedConfig, overlay, removes_key};
use tierlab_storage::wrappers::CacheConfig;
use tierlab_storage::{StorageError, TierConfig};

/// Default address of the HTTP front.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);
/// Maximum threads of the async runtime.
const MAX_WORKER_THREADS: u64 = 1024;
/// Maximum open connections.
const MAX_CONNECTIONS: u64 = 1 << 20;
/// Maximum requests in flight.
const MAX_IN_FLIGHT: u64 = 1 << 20;
/// Maximum default of `admission.max_buffered_bytes`.
const MAX_FITTED_BYTES: usize = 1 << 30;
/// Divisor of the process's memory in the same default: models, runs and allocators need the rest.
const BUFFERED_SHARE: u64 = 8;
/// Maximum interval between two checks of a feature table, in seconds.
const MAX_REVALIDATE_S: u64 = 86_400;
/// Maximum interval between two checks of the model tier, in milliseconds.
const MAX_POLL_MS: u64 = 86_400_000;
/// Prefix of environment variables that set keys.
const ENV_PREFIX: &str = "TIERLAB_";
/// Variables with that prefix that set no keys: of the other programs, the systemd unit and the image's health check.
const OTHER_VARIABLES: [&str; 4] = ["TIERLAB_CERTIFICATE", "TIERLAB_FLAGS", "TIERLAB_LOG", "TIERLAB_PORT"];

/// True for a variable that sets no key: one of the above, or an address that Kubernetes sets for a Service `tierlab-NAME`.
fn is_foreign(name: &str, value: &str) -> bool {
    let protocols = ["tcp", "udp", "sctp"];
    let is_address = protocols.iter().any(|name| value.starts_with(&format!("{name}://")));
    let of_port = |(at, mark): (usize, &str)| {
        let rest = name[at + mark.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        protocols
            .iter()
            .any(|protocol| rest.starts_with(&format!("_{}", protocol.to_uppercase())))
    };
    OTHER_VARIABLES.contains(&name)
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && is_address)
        || name.match_indices("_PORT_").any(of_port)
}

/// Configuration file that has a schema.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Described {
    /// The server's configuration
    Server,
    /// `tiers/NAME.toml` beside it
    Tier,
    /// `config.toml` of a model
    Model,
}

impl Described {
    /// JSON Schema of the file.
    pub(crate) fn schema(self) -> Schema {
        match self {
            Self::Server => schema::of_toml::<Raw>(),
            Self::Tier => schema::of_toml::<WrappedConfig>(),
            Self::Model => schema::of_toml::<ModelConfig>(),
        }
    }
}

/// Raw settings from the command line and the environment. Not printable, because variables may hold tokens.
#[derive(Clone, Default, clap::Args)]
pub struct Sources {
    /// Configuration file; tiers are read from the folder `tiers` beside it.
    #[arg(long, value_name = "FILE", default_value = "configs/server.toml")]
    pub config: PathBuf,
    /// Tier of models and features: the name of a file in `tiers/`.
    #[arg(long, value_name = "KIND")]
    pub tier: Option<String>,
    /// Tier of models (overrides --tier).
    #[arg(long, value_name = "KIND")]
    pub model_tier: Option<String>,
    /// Tier of feature tables (overrides --tier).
    #[arg(long, value_name = "KIND")]
    pub feature_tier: Option<String>,
    /// Address of the HTTP front; port 0 takes a free port.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Address of the gRPC front (default: gRPC is off).
    #[arg(long, value_name = "ADDR")]
    pub grpc_listen: Option<String>,
    /// Sets a key of the configuration; may be repeated. KEY= removes the key. TIERLAB_A__B=VALUE in the environment
    /// does the same.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Environment variables of the process.
    #[arg(skip)]
    pub environment: Vec<(String, String)>,
}

/// A validated configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) grpc_listen: Option<SocketAddr>,
    pub(crate) management: ManagementSettings,
    pub(crate) model_tier: TierConfig,
    pub(crate) feature_tier: TierConfig,
    /// Cache of the feature tier.
    pub(crate) cache: CacheConfig,
    /// Layout of feature tables on their tier.
    pub(crate) layout: TableLayout,
    /// Destination memory of feature rows.
    pub(crate) destination: RowDestination,
    pub(crate) connections: ListenerConfig,
    /// Path of the ONNX Runtime library, from `ORT_DYLIB_PATH`.
    pub(crate) library: Option<PathBuf>,
    /// Validated document, for values that are used unchanged.
    pub(crate) raw: Raw,
}

impl Config {
    /// Reads and validates the configuration.
    ///
    /// # Errors
    /// Fails if a file cannot be read or parsed, on an unknown key, a value out of range, or a tier that is
    /// not configured.
    pub fn read(sources: &Sources) -> Result<Self, ConfigError> {
        let advice = "set --config to a file such as configs/server.toml";
        let mut document = read_table(&sources.config, advice)?;
        let mut tiers = read_tiers(&sources.config)?;
        if let Some(inside) = document.remove("tiers") {
            let toml::Value::Table(inside) = inside else {
                return fail(format!("{}: `tiers` must be a table", sources.config.display()));
            };
            tiers.extend(inside);
        }
        document.insert("tiers".into(), toml::Value::Table(tiers));
        let mut library = None;
        let mut layers = vec![document.clone()];
        let mut apply = |setting: &str| {
            overlay(&mut document, setting)?;
            if removes_key(setting) {
                // The setting is in at least one of the layers below.
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
            } else if name == TOKEN || name == ADMIN_TOKEN {
                // Tokens are kept out of the document, which may be printed.
            } else if let Some(key) = name.strip_prefix(ENV_PREFIX).filter(|_| !is_foreign(name, value)) {
                let key = key.to_lowercase().replace("__", ".");
                match apply(&format!("{key}={value}")) {
                    // An empty variable removes a key, and is ignored if the key is not set.
                    Err(_) if value.trim().is_empty() => {}
                    laid => laid.map_err(|e| ConfigError(format!("{name}: {e}")))?,
                }
            }
        }
        for set in &sources.set {
            apply(set).map_err(|e| ConfigError(format!("--set {e}")))?;
        }
        let tiers = match document.remove("tiers") {
            Some(toml::Value::Table(tiers)) => tiers,
            _ => toml::Table::new(),
        };
        let raw = Raw::deserialize(document).map_err(|e| {
            let (file, reason) = (sources.config.display(), plain(&e.to_string()));
            ConfigError(format!("{file} (with TIERLAB_ and --set applied): {reason}"))
        })?;
        let tiers = parse_tiers(&sources.config, tiers)?;
        let cache = |tier: &str| {
            cache_of(tier, &layers).map_err(|e| ConfigError(format!("{}: [cache]: {e}", sources.config.display())))
        };
        Self::build(raw, &tiers, cache, sources, library)
    }

    fn build(
        mut raw: Raw,
        tiers: &BTreeMap<String, TierConfig>,
        cache: impl FnOnce(&str) -> Result<CacheConfig, ConfigError>,
        sources: &Sources,
        library: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let file = sources.config.display();
        let address = |key: &str, flag: &Option<String>, value: &Option<String>| {
            let parse = |value: &String| {
                let invalid = |_| ConfigError(format!("invalid address: `{key}` = `{value}`; use one like {LISTEN}"));
                value.parse::<SocketAddr>().map_err(invalid)
            };
            flag.as_ref().or(value.as_ref()).map(parse).transpose()
        };
        let listen = address("listen", &sources.listen, &raw.listen)?.unwrap_or(LISTEN);
        let grpc_listen = address("grpc_listen", &sources.grpc_listen, &raw.grpc_listen)?;
        let addresses: Vec<SocketAddr> = [Some(listen), grpc_listen].into_iter().flatten().collect();
        check_numbers(&raw, &file)?;
        check_models(&raw, &file)?;
        raw.telemetry.check(&file.to_string())?;
        fit_weights(&mut raw.runtime.weights, sources)?;
        let limits = &mut raw.admission;
        if limits.max_buffered_bytes == 0 {
            let share = memory::process_limit().0 / BUFFERED_SHARE;
            limits.max_buffered_bytes = MAX_FITTED_BYTES.min(usize::try_from(share).unwrap_or(MAX_FITTED_BYTES));
        }
        let [model_tier, feature_tier] = chosen_tiers(&raw, tiers, sources)?;
        let cache = cache(feature_tier.0)?;
        Ok(Self {
            listen,
            grpc_listen,
            layout: TableLayout::of(&raw.features.layout)
                .or_else(|reason| fail(format!("{file}: `features.layout`: {reason}")))?,
            destination: destination_of(&raw.features, &cache, sources)?,
            management: ManagementSettings {
                control: raw.repository.control,
                poll_interval: raw.repository.poll_interval,
                admin: raw.admin.enabled,
                models: std::mem::take(&mut raw.models),
                model_configs: std::mem::take(&mut raw.model_config),
                drain: raw.drain.timeout,
                tier_file: tier_file(&sources.config, model_tier.0),
            },
            model_tier: model_tier.1.clone(),
            feature_tier: feature_tier.1.clone(),
            cache,
            connections: listener_config(&raw.tls, raw.connections, raw.access.clone(), sources, &addresses)?,
            library,
            raw,
        })
    }
}

/// Names and settings of the model tier and the feature tier.
fn chosen_tiers<'a>(
    raw: &Raw,
    tiers: &'a BTreeMap<String, TierConfig>,
    sources: &Sources,
) -> Result<[(&'a String, &'a TierConfig); 2], ConfigError> {
    let select_tier = |flag: &str, own_flag: &Option<String>, own_key: &Option<String>| {
        let wanted = [own_flag, &sources.tier, own_key, &raw.tier];
        let names = tiers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let Some(name) = wanted.into_iter().flatten().next() else {
            return fail(format!("no tier chosen: pass --tier or {flag} with one of {names}"));
        };
        let unknown = || {
            let file = sources.config.display();
            let reason = format!("unknown tier: `{name}`; {file} and the tiers/ beside it have {names}");
            ConfigError(reason)
        };
        tiers.get_key_value(name).ok_or_else(unknown)
    };
    let models = select_tier("--model-tier", &sources.model_tier, &raw.model_tier)?;
    if models.1.kind() == "flight" {
        return fail(format!(
            "model tier `{}` is a Flight server, which serves only feature tables: choose another tier with --model-tier",
            models.0
        ));
    }
    let features = select_tier("--feature-tier", &sources.feature_tier, &raw.feature_tier)?;
    Ok([models, features])
}

/// Refuses zeros for keys that must be positive, and numbers that no machine can serve.
fn check_numbers(raw: &Raw, file: &impl fmt::Display) -> Result<(), ConfigError> {
    let ms = |time: Duration| time.as_millis() as u64;
    let (admission, connections, runtime) = (&raw.admission, &raw.connections, &raw.runtime);
    let poll_interval = ms(raw.repository.poll_interval);
    let (workers, cores) = (runtime.worker_threads as u64, u64::from(runtime.instances.cores));
    let (in_flight, many) = (admission.max_in_flight as u64, u64::MAX);
    for (key, value, min, max) in [
        ("admission.max_in_flight", in_flight, 1, MAX_IN_FLIGHT),
        ("admission.max_body_bytes", admission.max_body_bytes as u64, 1, many),
        ("admission.timeout_ms", ms(admission.timeout), 1, many),
        ("repository.max_file_bytes", raw.repository.max_file_bytes, 1, many),
        ("features.revalidate_s", raw.features.revalidate_s, 0, MAX_REVALIDATE_S),
        ("repository.poll_interval_ms", poll_interval, 100, MAX_POLL_MS),
        ("connections.max", connections.max as u64, 1, MAX_CONNECTIONS),
        ("connections.max_per_address", connections.per_address() as u64, 1, many),
        ("connections.backlog", u64::from(connections.backlog), 1, many),
        ("connections.header_timeout_ms", ms(connections.header_timeout), 1, many),
        ("connections.write_timeout_ms", ms(connections.write_timeout), 1, many),
        ("runtime.load_timeout_ms", runtime.load_timeout_ms, 1, many),
        ("runtime.warmup_timeout_ms", runtime.warmup_timeout_ms, 1, many),
        ("runtime.worker_threads", workers, 0, MAX_WORKER_THREADS),
        ("runtime.instances.cores", cores, 0, u64::from(MAX_CORES)),
    ] {
        if value < min {
            return fail(format!("{file}: `{key}` must be at least {min}"));
        }
        if value > max {
            return fail(format!("{file}: `{key}` is {value}; the limit is {max}"));
        }
    }
    Ok(())
}

/// Refuses invalid names, and values that are invalid in any model config. Conflicts with a model's own config are
/// reported when that config is read.
fn check_models(raw: &Raw, file: &impl fmt::Display) -> Result<(), ConfigError> {
    let is_invalid = |name: &&String| *name != ALL_MODELS && !is_plain_name(name);
    if let Some(name) = raw.models.iter().find(is_invalid) {
        let reason = "use letters, digits, `.`, `_` and `-`";
        return fail(format!("{file}: invalid name in `models`: `{name}`; {reason}"));
    }
    for (name, keys) in &raw.model_config {
        if !is_plain_name(name) {
            return fail(format!("{file}: invalid model name in `model_config`: `{name}`"));
        }
        if let Err(error) = toml::Value::Table(keys.clone()).try_into::<ModelConfig>() {
            return fail(format!("{file}: `model_config.{name}`: {error}"));
        }
    }
    Ok(())
}

fn destination_of(raw: &RawFeatures, cache: &CacheConfig, sources: &Sources) -> Result<RowDestination, ConfigError> {
    let file = sources.config.display();
    match raw.rows {
        RawRows::Host if raw.prove_every != 1 => fail(format!(
            "{file}: `features.prove_every` is {}, but every row on the host is proven; set 1, or `features.rows = \
             \"device\"`",
            raw.prove_every
        )),
        RawRows::Host => Ok(RowDestination::Host),
        RawRows::Device if cache.capacity_bytes > 0 => fail(format!(
            "{file}: `features.rows = \"device\"` requires `cache.capacity_bytes = 0`: rows on the device cannot be \
             cached on the host"
        )),
        RawRows::Device => Ok(RowDestination::Device {
            prove_every: raw.prove_every,
        }),
    }
}

/// Folder for files of many GiB: `/tmp` is often in memory.
const TEMPORARY_FOLDER: &str = "/var/tmp";

fn fit_weights(mapped: &mut MappedConfig, sources: &Sources) -> Result<(), ConfigError> {
    if mapped.from_bytes > NEVER_FROM_MEMORY_BYTES {
        return fail(format!(
            "{}: `runtime.weights.map_from_bytes` exceeds {NEVER_FROM_MEMORY_BYTES}: ONNX Runtime cannot take larger \
             tensors from memory",
            sources.config.display()
        ));
    }
    if mapped.folder.as_os_str().is_empty() {
        let mut environment = sources.environment.iter();
        let chosen = environment.find(|(name, value)| name == "TMPDIR" && !value.is_empty());
        mapped.folder = chosen.map_or(TEMPORARY_FOLDER, |(_, folder)| folder).into();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
