//! What plans over tables share. In: TOML. Out: values in their ranges, tiers; or the key, and what it should be.

use crate::plan::{bad_usage, tier_config};
use anyhow::Result;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use tierlab_storage::TierConfig;

/// What every run is asked for.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) name: String,
    /// The plan's.
    pub(super) text: String,
    pub(super) seed: u64,
    pub(super) repeats: u32,
    pub(super) scratch: Option<PathBuf>,
    pub(super) tiers: BTreeMap<String, TierConfig>,
}

/// A plan that was found.
pub(super) struct Found<Raw> {
    /// The file, as errors name it.
    pub(super) file: String,
    /// Where it lies, which the paths in it begin at.
    pub(super) folder: PathBuf,
    pub(super) text: String,
    pub(super) raw: Raw,
}

/// A tier of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PricedTier {
    /// Its TOML, from the plan's folder.
    file: PathBuf,
    /// Keys of it that are other here.
    #[serde(default)]
    set: Vec<String>,
    /// The entry of the price file's `[storage]` that says what reading costs.
    #[serde(default)]
    price: Option<String>,
}

/// Reads a plan's file.
///
/// # Errors
/// The file and the key, and what it should be.
pub(super) fn find<Raw: DeserializeOwned>(file: &Path) -> Result<Found<Raw>> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
    let raw = toml::from_str(&text).map_err(|e| bad_usage(&name, e.to_string().trim_end()))?;
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    Ok(Found {
        file: name,
        folder,
        text,
        raw,
    })
}

/// Tiers by name, and the prices that they name.
pub(super) type Tiers = (BTreeMap<String, TierConfig>, BTreeMap<String, Option<String>>);

/// The tiers that a plan in `folder` names.
///
/// # Errors
/// A file that cannot be read, or whose keys make no sense.
pub(super) fn tiers(folder: &Path, raw: BTreeMap<String, PricedTier>) -> Result<Tiers> {
    let (mut tiers, mut prices) = (BTreeMap::new(), BTreeMap::new());
    for (name, tier) in raw {
        tiers.insert(name.clone(), tier_config(&folder.join(&tier.file), &tier.set)?);
        prices.insert(name, tier.price);
    }
    Ok((tiers, prices))
}

/// Whether every key is from 1 to its most.
pub(super) fn check_counts(counts: &[(&str, u64, u64)]) -> Result<(), String> {
    counts
        .iter()
        .try_for_each(|(key, value, most)| check_within(key, *value, 1, *most))
}

/// Whether a key is in its range.
pub(super) fn check_within<T: PartialOrd + Display + Copy>(
    key: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), String> {
    match (&least..=&most).contains(&&value) {
        true => Ok(()),
        false => Err(format!("{key}: from {least} to {most}, not {value}")),
    }
}

/// Whether nothing stands twice.
pub(super) fn check_once<T: PartialEq + Debug>(key: &str, all: &[T]) -> Result<(), String> {
    match all.iter().enumerate().find(|(at, one)| all[..*at].contains(one)) {
        Some((_, one)) => Err(format!("{key}: {one:?} stands twice")),
        None => Ok(()),
    }
}
