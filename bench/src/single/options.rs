//! Flags of one point, and the checked workload.

use crate::chance::Zipf;
use crate::plan::Pattern;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_instrument::units::parse_bytes;
use tierlab_storage::wrappers::CacheConfig;
use tierlab_storage::{ErrorKind, StorageError};

/// Flags of one point.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "FILE")]
    pub(crate) tier: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Existing object of the tier to read [default: an object written for the measurement and removed afterwards]
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    pub(crate) object: Option<String>,
    /// Size of the object to write
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Order of the reads
    #[arg(long, value_enum, default_value = "random")]
    pattern: Pattern,
    /// Exponent of Zipf's law
    #[arg(long, default_value_t = 1.0)]
    exponent: f64,
    /// Bytes of one range
    #[arg(long, default_value = "4KiB", value_parser = parse_bytes)]
    block: u64,
    /// Ranges per read call
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ranges: u32,
    /// Read calls in flight
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    depth: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds to read before measuring
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Seed of the random positions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that run the callers; 0 is one per core. One thread is the most efficient if the tier's own work is
    /// small
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) threads: u16,
    /// Seconds to hold the tier open without reads after the measurement, to report its CPU time
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    idle: f64,
    /// Size of a cache in front of the tier; 0 is none [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    cache: Option<u64>,
    /// Block size of the cache in bytes [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    cache_block: Option<u64>,
    /// Target of the bytes: host memory, or device memory if the tier reads there (`kind = "gds"`)
    #[arg(long, value_enum, default_value = "host", conflicts_with = "cache")]
    pub(crate) into: Into,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Target of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Into {
    /// Host memory
    Host,
    /// Device memory; only bytes of the warm-up are copied back and checked
    Device,
}

/// Checked workload.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Workload {
    pub(crate) pattern: Pattern,
    /// Exponent of Zipf's law, if that is the pattern.
    pub(crate) exponent: Option<f64>,
    pub(crate) block_bytes: u64,
    pub(crate) ranges_per_call: u32,
    pub(crate) depth: u32,
    pub(crate) into: Into,
    pub(crate) seed: u64,
    #[serde(serialize_with = "seconds")]
    pub(crate) warmup: Duration,
    #[serde(serialize_with = "seconds")]
    pub(crate) window: Duration,
    #[serde(serialize_with = "seconds")]
    pub(crate) idle: Duration,
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

impl Workload {
    /// Zipf's law over the blocks of an object, for that pattern.
    pub(crate) fn zipf(&self, object_bytes: u64) -> Result<Option<Zipf>, StorageError> {
        let law = |exponent| Zipf::new((object_bytes / self.block_bytes).max(1), exponent);
        self.exponent.map(law).transpose()
    }
}

impl Options {
    pub(crate) fn workload(&self) -> Result<Workload, StorageError> {
        let invalid = |key: &str, why: &str| StorageError::new(ErrorKind::Invalid, key, why);
        if self.block == 0 {
            return Err(invalid("--block", "must be at least one byte"));
        }
        if self.object.is_none() && self.size < self.block {
            return Err(invalid("--size", "must hold at least one block"));
        }
        let duration = |key, seconds: f64| match Duration::try_from_secs_f64(seconds) {
            Ok(duration) if duration <= Duration::from_secs(86_400) => Ok(duration),
            _ => Err(invalid(key, "must be from 0 to 86400 seconds")),
        };
        let window = duration("--seconds", self.seconds)?;
        if window.is_zero() {
            return Err(invalid("--seconds", "must be more than 0"));
        }
        if !(0.0..=10.0).contains(&self.exponent) {
            return Err(invalid("--exponent", "must be from 0 to 10"));
        }
        Ok(Workload {
            pattern: self.pattern,
            exponent: (self.pattern == Pattern::Zipf).then_some(self.exponent),
            block_bytes: self.block,
            ranges_per_call: self.ranges,
            depth: self.depth,
            into: self.into,
            seed: self.seed,
            warmup: duration("--warmup", self.warmup)?,
            window,
            idle: duration("--idle", self.idle)?,
        })
    }

    /// Returns the cache in front of a tier whose configuration has `own`.
    pub(crate) fn cache_config(&self, own: Option<CacheConfig>) -> Option<CacheConfig> {
        let own = own.unwrap_or(CacheConfig::off());
        let config = CacheConfig {
            capacity_bytes: self.cache.unwrap_or(own.capacity_bytes),
            block_bytes: self.cache_block.unwrap_or(own.block_bytes),
            ..own
        };
        (config.capacity_bytes > 0).then_some(config)
    }
}
