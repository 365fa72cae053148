//! Structure of `server.toml`, with the defaults of keys not defined by another module. Checks only names and types.

use crate::Millis;
use crate::front::connections::{Bounds, TlsFiles};
use crate::inference::runtime::{CudaOptions, MappedConfig, Provider, TensorRtOptions};
use crate::inference::session::layout::FitConfig;
use crate::models::management::ControlMode;
use crate::request::Limits;
use crate::telemetry::config::TelemetryConfig;
use crate::telemetry::log::LogFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_storage::wrappers::CacheConfig;

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Tierlab server")]
pub(crate) struct Raw {
    pub(crate) listen: Option<String>,
    pub(crate) grpc_listen: Option<String>,
    pub(crate) models: Vec<String>,
    pub(crate) tier: Option<String>,
    pub(crate) model_tier: Option<String>,
    pub(crate) feature_tier: Option<String>,
    // Only checked here; the effective cache depends on the tier.
    #[serde(rename = "cache")]
    _cache: CacheConfig,
    pub(crate) features: RawFeatures,
    pub(crate) admission: Limits,
    pub(crate) connections: Bounds,
    pub(crate) access: RawAccess,
    pub(crate) tls: TlsFiles,
    pub(crate) runtime: RuntimeConfig,
    pub(crate) drain: RawDrain,
    pub(crate) repository: RawRepository,
    #[schemars(with = "BTreeMap<String, serde_json::Map<String, serde_json::Value>>")]
    pub(crate) model_config: BTreeMap<String, toml::Table>,
    pub(crate) admin: RawAdmin,
    pub(crate) log: RawLog,
    pub(crate) telemetry: TelemetryConfig,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawFeatures {
    pub(crate) layout: String,
    pub(crate) rows: RawRows,
    pub(crate) prove_every: u32,
    pub(crate) revalidate_s: u64,
}

impl Default for RawFeatures {
    fn default() -> Self {
        Self {
            layout: "rows".into(),
            rows: RawRows::Host,
            prove_every: 1,
            revalidate_s: 5,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawRows {
    Host,
    Device,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAccess {
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RuntimeConfig {
    pub(crate) library: Option<PathBuf>,
    pub(crate) provider: Provider,
    pub(crate) cuda: CudaOptions,
    pub(crate) tensorrt: TensorRtOptions,
    pub(crate) worker_threads: usize,
    pub(crate) optimized_cache: Option<PathBuf>,
    pub(crate) optimized_cache_max_bytes: u64,
    pub(crate) load_timeout_ms: u64,
    pub(crate) warmup_timeout_ms: u64,
    pub(crate) max_load_bytes: u64,
    pub(crate) weights: MappedConfig,
    pub(crate) instances: FitConfig,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawDrain {
    #[serde(rename = "timeout_ms", with = "Millis")]
    pub(crate) timeout: Duration,
}

impl Default for RawDrain {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawRepository {
    pub(crate) control: ControlMode,
    #[serde(rename = "poll_interval_ms", with = "Millis")]
    pub(crate) poll_interval: Duration,
    pub(crate) max_file_bytes: u64,
}

impl Default for RawRepository {
    fn default() -> Self {
        Self {
            control: ControlMode::None,
            poll_interval: Duration::from_secs(15),
            max_file_bytes: 64 << 30,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawAdmin {
    pub(crate) enabled: bool,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawLog {
    pub(crate) format: LogFormat,
    pub(crate) level: String,
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".into(),
        }
    }
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            library: None,
            provider: Provider::default(),
            cuda: CudaOptions::default(),
            tensorrt: TensorRtOptions::default(),
            worker_threads: 0,
            optimized_cache: None,
            optimized_cache_max_bytes: 8 << 30,
            load_timeout_ms: 1_800_000,
            warmup_timeout_ms: 120_000,
            max_load_bytes: 0,
            weights: MappedConfig::default(),
            instances: FitConfig::default(),
        }
    }
}
