//! A plan: what is measured. In: a file, and flags over it. Out: points, tiers and how long, all checked.

mod cross;
mod point;
mod raw;

pub(crate) use point::{CacheState, Operation, Pattern, Point, Way, word};
pub(crate) use raw::{Arrivals, RawTier, Size};

use anyhow::Result;
use cross::Place;
use raw::RawPlan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_storage::{ErrorKind, StorageError, TierConfig};

/// A plan, checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) name: String,
    /// The file's text, kept beside the results.
    pub(crate) text: String,
    pub(crate) points: BTreeSet<Point>,
    pub(crate) tiers: BTreeMap<String, TierConfig>,
    pub(crate) repeats: u32,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) peers: bool,
    pub(crate) access: Access,
}

/// What else may use the CPUs beside a repeat, as shares of all of them; 1 is no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) foreign_cpu_share: f64,
    pub(crate) steal_share: f64,
}

/// How accesses are made, the same for all points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) seed: u64,
    /// Bytes of all files together.
    pub(crate) size: u64,
    pub(crate) window: Duration,
    pub(crate) warmup: Duration,
    pub(crate) exponent: f64,
    pub(crate) stride: u32,
    pub(crate) write_share: f64,
    pub(crate) arrivals: Arrivals,
    /// Whether errors that may pass are counted, and do not end a repeat.
    pub(crate) tolerates_faults: bool,
}

/// What flags change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    pub(crate) repeats: Option<u32>,
    pub(crate) seconds: Option<f64>,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) no_peers: bool,
}

/// An error of usage, which ends the program with 2.
pub(crate) fn bad_usage(what: &str, why: &str) -> anyhow::Error {
    StorageError::new(ErrorKind::Invalid, what, why).into()
}

/// Whether a name can be one of a folder.
pub(crate) fn check_name(key: &str, name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!("{key}: letters, digits, `-`, `_` and `.`")),
    }
}

/// Reads a tier's TOML.
pub(crate) fn tier_config(file: &Path, set: &[String]) -> Result<TierConfig> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
    Ok(TierConfig::parse_with(&name, &text, set)?)
}

/// A tier's TOML that was made here.
pub(crate) fn tier_config_of(text: &str) -> Result<TierConfig> {
    Ok(TierConfig::parse("tier", text)?)
}

impl Plan {
    /// Reads a plan and the tiers that it names.
    ///
    /// # Errors
    /// The file and the key, and what it should be.
    pub(crate) fn read(file: &Path, changes: &Changes) -> Result<Self> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
        Self::parse(file, &text, changes)
    }

    /// Reads a plan's text; `file` is where it comes from.
    pub(crate) fn parse(file: &Path, text: &str, changes: &Changes) -> Result<Self> {
        let source = file.display().to_string();
        let raw: RawPlan = toml::from_str(text).map_err(|e| bad_usage(&source, e.to_string().trim_end()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let mut tiers = BTreeMap::new();
        for (name, tier) in &raw.tiers {
            tiers.insert(name.clone(), tier_config(&folder.join(&tier.file), &tier.set)?);
        }
        let places = tiers
            .iter()
            .map(|(name, config)| (name.clone(), place(config)))
            .collect();
        let access = access(&raw, changes).map_err(|why| bad_usage(&source, &why))?;
        let points = cross::points(&raw.cross, &places, access.size).map_err(|why| bad_usage(&source, &why))?;
        // A run is gone on with by the same plan and the same seconds.
        let text = changes
            .seconds
            .map_or(text.to_owned(), |seconds| format!("{text}# --seconds {seconds}\n"));
        Ok(Self {
            points,
            tiers,
            access,
            repeats: changes.repeats.unwrap_or(raw.repeats).max(1),
            scratch: changes
                .scratch
                .clone()
                .or_else(|| raw.scratch.map(|scratch| folder.join(scratch))),
            limits: Limits {
                foreign_cpu_share: raw.foreign_cpu_share,
                steal_share: raw.steal_share,
            },
            peers: raw.peers && !changes.no_peers,
            name: raw.name,
            text,
        })
    }
}

fn access(raw: &RawPlan, changes: &Changes) -> Result<Access, String> {
    check_name("name", &raw.name)?;
    let time = |key: &str, seconds: f64, least: f64| match Duration::try_from_secs_f64(seconds) {
        Ok(time) if (least..=86_400.0).contains(&seconds) => Ok(time),
        _ => Err(format!("{key}: from {least} to 86400 seconds, not {seconds}")),
    };
    let within = |key: &str, value: f64, most: f64| match (0.0..=most).contains(&value) {
        true => Ok(value),
        false => Err(format!("{key}: from 0 to {most}, not {value}")),
    };
    within("foreign_cpu_share", raw.foreign_cpu_share, 1.0)?;
    within("steal_share", raw.steal_share, 1.0)?;
    Ok(Access {
        seed: raw.seed,
        size: raw.size.0,
        window: time("seconds", changes.seconds.unwrap_or(raw.seconds), 0.01)?,
        warmup: time("warmup_seconds", raw.warmup_seconds, 0.0)?,
        exponent: within("exponent", raw.exponent, 10.0)?,
        stride: raw.stride.max(1),
        write_share: within("write_share", raw.write_share, 1.0)?,
        arrivals: raw.arrivals,
        tolerates_faults: false,
    })
}

/// Local files are those of an nvme tier with one root and nothing around it.
fn place(config: &TierConfig) -> Place {
    match config {
        TierConfig::Nvme(nvme) if nvme.roots.is_empty() => Place::Local { direct: nvme.direct },
        _ => Place::Elsewhere,
    }
}
