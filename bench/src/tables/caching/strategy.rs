//! Caches between a look-up and the table. Names and sizes only.

use crate::plan::toml_name;
use serde::{Deserialize, Serialize};
use std::fmt;
use tierlab_instrument::units::{self, digits3};
use tierlab_storage::wrappers::CacheConfig;
use tierlab_storage::wrappers::cache::{Granularity, Policy};

/// Unit of a cache: the row alone, or the block around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unit {
    Row,
    Block(u64),
}

impl fmt::Display for Unit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row => out.write_str("rows"),
            Self::Block(bytes) => out.write_str(&units::bytes(*bytes)),
        }
    }
}

/// Cache in memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Ram {
    /// Size as a share of the table's bytes, including bookkeeping.
    pub(super) share: f64,
    pub(super) policy: Policy,
    pub(super) unit: Unit,
}

impl Ram {
    /// Returns the server's configuration for a table of `table_bytes` in rows of `row_bytes`.
    pub(super) fn config(&self, table_bytes: u64, row_bytes: u64) -> CacheConfig {
        let (granularity, block_bytes) = match self.unit {
            Unit::Row => (Granularity::Range, row_bytes),
            Unit::Block(bytes) => (Granularity::Block, bytes),
        };
        CacheConfig {
            capacity_bytes: (self.share * table_bytes as f64).round() as u64,
            block_bytes,
            policy: self.policy,
            ttl_ms: None,
            granularity,
        }
    }
}

/// Combination of caches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Strategy {
    None,
    Ram(Ram),
    /// Copy on local disk that holds this share of the table.
    Staged(f64),
    /// Cache in memory over such a copy.
    RamOverStaged(Ram, f64),
}

impl Strategy {
    pub(super) const fn ram(&self) -> Option<Ram> {
        match self {
            Self::Ram(ram) | Self::RamOverStaged(ram, _) => Some(*ram),
            Self::None | Self::Staged(_) => None,
        }
    }

    pub(super) const fn staged(&self) -> Option<f64> {
        match self {
            Self::Staged(share) | Self::RamOverStaged(_, share) => Some(*share),
            Self::None | Self::Ram(_) => None,
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ram = |ram: &Ram| format!("RAM {} {}, {}", share_text(ram.share), toml_name(&ram.policy), ram.unit);
        match self {
            Self::None => out.write_str("no cache"),
            Self::Ram(own) => out.write_str(&ram(own)),
            Self::Staged(share) => write!(out, "staged {}", share_text(*share)),
            Self::RamOverStaged(own, share) => write!(out, "{}, over staged {}", ram(own), share_text(*share)),
        }
    }
}

/// Formats a share: `12.5 %`.
pub(super) fn share_text(share: f64) -> String {
    let text = digits3(share * 100.0);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text} %")
}

/// Kind of a strategy, as named in plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    None,
    Ram,
    Staged,
    RamOverStaged,
}
