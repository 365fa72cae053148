//! Flags of one point.

use crate::chance::Zipf;
use crate::plan::{self, Pattern, parse_positive_seconds, parse_seconds};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use tierlab_instrument::units::parse_bytes;
use tierlab_storage::StorageError;
use tierlab_storage::wrappers::CacheConfig;

/// Flags of one point, and the workload of its report.
#[derive(Debug, Args, Serialize)]
pub(crate) struct SingleOptions {
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(super) tier: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    #[serde(skip)]
    pub(super) set: Vec<String>,
    /// Existing object of the tier to read [default: an object written for the measurement and removed afterwards]
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    #[serde(skip)]
    pub(super) object: Option<String>,
    /// Size of the object to write
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    #[serde(skip)]
    pub(super) size: u64,
    /// Order of the reads
    #[arg(long, value_enum, default_value = "random")]
    pub(super) pattern: Pattern,
    /// Exponent of Zipf's law
    #[arg(long, default_value = "1", value_parser = exponent)]
    pub(super) exponent: f64,
    /// Bytes of one range
    #[arg(long = "block", value_name = "BLOCK", default_value = "4KiB", value_parser = parse_bytes)]
    pub(super) block_bytes: u64,
    /// Ranges per read call
    #[arg(long = "ranges", value_name = "RANGES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) ranges_per_call: u32,
    /// Read calls in flight
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub(super) depth: u32,
    /// Seconds to measure
    #[arg(long = "seconds", value_name = "SECONDS", default_value = "5", value_parser = parse_positive_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    pub(super) window: Duration,
    /// Seconds to read before measuring
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    pub(super) warmup: Duration,
    /// Seed of the random positions
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Threads that run the callers; 0 is one per core. One thread is the most efficient if the tier's own work is
    /// small
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    #[serde(skip)]
    pub(super) threads: u16,
    /// Seconds to hold the tier open without reads after the measurement, to report its CPU time
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    pub(super) idle: Duration,
    /// Size of a cache in front of the tier; 0 is none [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    #[serde(skip)]
    cache: Option<u64>,
    /// Block size of the cache in bytes [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    #[serde(skip)]
    cache_block: Option<u64>,
    /// Target of the bytes: host memory, or device memory if the tier reads there (`kind = "gds"`)
    #[arg(long, value_enum, default_value = "host", conflicts_with = "cache")]
    pub(super) into: Into,
    /// Print JSON instead of text
    #[arg(long)]
    #[serde(skip)]
    pub(super) json: bool,
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

fn exponent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=10.0).contains(number));
    number.ok_or_else(|| "must be from 0 to 10".to_owned())
}

impl SingleOptions {
    /// Checks the size of the block.
    ///
    /// # Errors
    /// The flag, and its allowed values.
    pub(super) fn check(&self) -> Result<()> {
        if self.block_bytes == 0 {
            return Err(plan::bad_usage("--block", "must be at least one byte"));
        }
        if self.object.is_none() && self.size < self.block_bytes {
            return Err(plan::bad_usage("--size", "must hold at least one block"));
        }
        Ok(())
    }

    /// Zipf's law over the blocks of an object, for that pattern.
    pub(super) fn zipf(&self, object_bytes: u64) -> Result<Option<Zipf>, StorageError> {
        let law = || Zipf::new((object_bytes / self.block_bytes).max(1), self.exponent);
        (self.pattern == Pattern::Zipf).then(law).transpose()
    }

    /// Returns the cache in front of a tier whose configuration has `own`.
    pub(super) fn cache_config(&self, own: Option<CacheConfig>) -> Option<CacheConfig> {
        let own = own.unwrap_or(CacheConfig::off());
        let config = CacheConfig {
            capacity_bytes: self.cache.unwrap_or(own.capacity_bytes),
            block_bytes: self.cache_block.unwrap_or(own.block_bytes),
            ..own
        };
        (config.capacity_bytes > 0).then_some(config)
    }
}
