//! The shape of `server.toml`, with the defaults of every key that no other room has. Nothing is checked here but names and types.

use crate::front::connections::{Bounds, TlsFiles};
use crate::inference::runtime::{CudaOptions, MappedConfig, Provider, TensorRtOptions};
use crate::inference::session::layout::FitConfig;
use crate::models::management::ControlMode;
use crate::request::Limits;
use crate::telemetry::config::TelemetryConfig;
use crate::telemetry::log::LogFormat;
use crate::values::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_storage::wrappers::CacheConfig;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Tierlab server")]
pub(super) struct Raw {
    pub(super) listen: Option<String>,
    pub(super) grpc_listen: Option<String>,
    pub(super) models: Vec<String>,
    pub(super) tier: Option<String>,
    pub(super) model_tier: Option<String>,
    pub(super) feature_tier: Option<String>,
    // Checked here; what is in force depends on the tier.
    #[serde(rename = "cache")]
    _cache: CacheConfig,
    pub(super) features: RawFeatures,
    pub(super) admission: Limits,
    pub(super) connections: Bounds,
    pub(super) access: RawAccess,
    pub(super) tls: TlsFiles,
    pub(super) runtime: RuntimeConfig,
    pub(super) drain: RawDrain,
    pub(super) repository: RawRepository,
    #[schemars(with = "BTreeMap<String, serde_json::Map<String, serde_json::Value>>")]
    pub(super) model_config: BTreeMap<String, toml::Table>,
    pub(super) admin: RawAdmin,
    pub(super) log: RawLog,
    pub(super) telemetry: TelemetryConfig,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawFeatures {
    pub(super) layout: String,
    pub(super) rows: RawRows,
    pub(super) prove_every: u32,
    pub(super) revalidate_s: u64,
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
pub(super) enum RawRows {
    Host,
    Device,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAccess {
    pub(super) token_file: Option<PathBuf>,
    pub(super) admin_token_file: Option<PathBuf>,
    pub(super) allowed_hosts: Vec<String>,
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDrain {
    #[serde(rename = "timeout_ms", with = "Millis")]
    pub(super) timeout: Duration,
}

impl Default for RawDrain {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRepository {
    pub(super) control: ControlMode,
    #[serde(rename = "poll_interval_ms", with = "Millis")]
    pub(super) poll_interval: Duration,
    pub(super) max_file_bytes: u64,
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) enabled: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) format: LogFormat,
    pub(super) level: String,
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
