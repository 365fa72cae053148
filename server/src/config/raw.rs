//! The shape of `server.toml`, with every key's default. Nothing is checked here but names and types.

use super::telemetry::{RawLog, RawTelemetry};
use crate::inference::runtime::mapped::NEVER_FROM_MEMORY_BYTES;
use crate::inference::runtime::provider::{CudaOptions, Provider, TensorRtOptions};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_storage::wrappers::CacheConfig;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub(super) listen: String,
    pub(super) grpc_listen: Option<String>,
    pub(super) models: Vec<String>,
    pub(super) tier: Option<String>,
    pub(super) model_tier: Option<String>,
    pub(super) feature_tier: Option<String>,
    // Checked here; what is in force depends on the tier.
    #[serde(rename = "cache")]
    _cache: CacheConfig,
    pub(super) features: RawFeatures,
    pub(super) admission: RawAdmission,
    pub(super) connections: RawConnections,
    pub(super) access: RawAccess,
    pub(super) tls: RawTls,
    pub(super) runtime: RawRuntime,
    pub(super) drain: RawDrain,
    pub(super) repository: RawRepository,
    pub(super) model_config: BTreeMap<String, toml::Table>,
    pub(super) admin: RawAdmin,
    pub(super) log: RawLog,
    pub(super) telemetry: RawTelemetry,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8000".into(),
            grpc_listen: None,
            models: Vec::new(),
            tier: None,
            model_tier: None,
            feature_tier: None,
            _cache: CacheConfig::default(),
            features: RawFeatures::default(),
            admission: RawAdmission::default(),
            connections: RawConnections::default(),
            access: RawAccess::default(),
            tls: RawTls::default(),
            runtime: RawRuntime::default(),
            drain: RawDrain::default(),
            repository: RawRepository::default(),
            model_config: BTreeMap::new(),
            admin: RawAdmin::default(),
            log: RawLog::default(),
            telemetry: RawTelemetry::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawRows {
    Host,
    Device,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmission {
    pub(super) max_in_flight: usize,
    pub(super) max_body_bytes: usize,
    pub(super) max_buffered_bytes: usize,
    pub(super) timeout_ms: u64,
}

impl Default for RawAdmission {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 0,
            timeout_ms: 10_000,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConnections {
    pub(super) max: usize,
    pub(super) max_per_address: Option<usize>,
    pub(super) health_places: usize,
    pub(super) backlog: u32,
    pub(super) header_timeout_ms: u64,
    pub(super) write_timeout_ms: u64,
}

impl Default for RawConnections {
    fn default() -> Self {
        Self {
            max: 4096,
            max_per_address: None,
            health_places: 16,
            backlog: 4096,
            header_timeout_ms: 30_000,
            write_timeout_ms: 30_000,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAccess {
    pub(super) token_file: Option<PathBuf>,
    pub(super) admin_token_file: Option<PathBuf>,
    pub(super) allowed_hosts: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTls {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRuntime {
    pub(super) library: Option<PathBuf>,
    pub(super) provider: Provider,
    pub(super) cuda: CudaOptions,
    pub(super) tensorrt: TensorRtOptions,
    pub(super) worker_threads: usize,
    pub(super) optimized_cache: Option<PathBuf>,
    pub(super) optimized_cache_max_bytes: u64,
    pub(super) load_timeout_ms: u64,
    pub(super) warmup_timeout_ms: u64,
    pub(super) max_load_bytes: u64,
    pub(super) weights: RawWeights,
    pub(super) instances: RawInstances,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawInstances {
    pub(super) cores: u32,
    pub(super) measure_ms: u64,
    pub(super) max_weight_bytes: u64,
}

impl Default for RawInstances {
    fn default() -> Self {
        Self {
            cores: 0,
            measure_ms: 1000,
            max_weight_bytes: 1 << 30,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWeights {
    pub(super) map_from_bytes: u64,
    pub(super) folder: Option<PathBuf>,
    pub(super) max_bytes: u64,
}

impl Default for RawWeights {
    fn default() -> Self {
        Self {
            map_from_bytes: NEVER_FROM_MEMORY_BYTES,
            folder: None,
            max_bytes: 64 << 30,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDrain {
    pub(super) timeout_ms: u64,
}

impl Default for RawDrain {
    fn default() -> Self {
        Self { timeout_ms: 10_000 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRepository {
    pub(super) control: RawControl,
    pub(super) poll_interval_ms: u64,
    pub(super) max_file_bytes: u64,
}

impl Default for RawRepository {
    fn default() -> Self {
        Self {
            control: RawControl::None,
            poll_interval_ms: 15_000,
            max_file_bytes: 64 << 30,
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawControl {
    None,
    Explicit,
    Poll,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdmin {
    pub(super) enabled: bool,
}

impl Default for RawRuntime {
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
            weights: RawWeights::default(),
            instances: RawInstances::default(),
        }
    }
}
