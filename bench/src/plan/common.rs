//! Parts that all plans share. In: flags, TOML. Out: values in their ranges, tiers; or the key, and its allowed values.

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierlab_formats::toml_error::plain;
use tierlab_instrument::prices::{ReadPrices, reads};
use tierlab_instrument::units::parse_bytes;
use tierlab_storage::{ErrorKind, TierConfig};

/// Flags of every command that runs a plan.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The plan's TOML
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Folder on the disk that local tiers measure, instead of the plan's `scratch`; the run creates a folder in it and removes it
    /// at the end [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
    /// Folder of the results [default: results/NAME-DATE]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Repeats of each measurement, instead of the plan's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeats: Option<u32>,
}

/// Settings of every run.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) name: String,
    /// Text of the plan, stored with the results.
    pub(crate) text: String,
    pub(crate) seed: u64,
    pub(crate) repeats: u32,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) tiers: BTreeMap<String, TierConfig>,
}

/// A plan's file.
pub(crate) struct Source {
    /// Path of the file, for errors.
    pub(crate) file: String,
    /// Folder of the file, to which paths in the plan are relative.
    pub(crate) folder: PathBuf,
    pub(crate) text: String,
}

/// A tier of a plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTier {
    /// TOML file, relative to the plan's folder.
    pub(super) file: PathBuf,
    /// Keys that override that TOML, as `KEY=VALUE`.
    #[serde(default)]
    pub(super) set: Vec<String>,
    /// Entry of `[storage]` in the price file that states the price of reads.
    price: Option<String>,
}

/// Number of bytes, in TOML a number or a text such as `4KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Size(pub(crate) u64);

impl From<u64> for Size {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number of bytes from 0, or a text such as `4KiB`")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => parse_bytes(&text).map(Self).map_err(serde::de::Error::custom),
        }
    }
}

impl Source {
    /// Reads a plan.
    ///
    /// # Errors
    /// The file cannot be read, or a key is unknown or has a wrong type.
    pub(crate) fn read<Raw: DeserializeOwned>(file: &Path) -> Result<(Self, Raw)> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
        Self::parse(file, text)
    }

    /// Reads the text of a plan.
    ///
    /// # Errors
    /// A key is unknown or has a wrong type.
    pub(crate) fn parse<Raw: DeserializeOwned>(file: &Path, text: String) -> Result<(Self, Raw)> {
        let name = file.display().to_string();
        let raw = toml::from_str(&text).map_err(|e| bad_usage(&name, &plain(&e.to_string())))?;
        let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
        let source = Self {
            file: name,
            folder,
            text,
        };
        Ok((source, raw))
    }

    /// Usage error in this plan.
    pub(crate) fn invalid(&self, why: impl Display) -> anyhow::Error {
        bad_usage(&self.file, &why.to_string())
    }

    /// Settings of a run, from the head of its plan: name, seed, repeats, scratch folder.
    pub(crate) fn common(
        self,
        flags: &Flags,
        (name, seed, repeats): (&str, u64, u32),
        scratch: Option<&PathBuf>,
        tiers: BTreeMap<String, TierConfig>,
    ) -> Common {
        let from_plan = scratch.map(|scratch| self.folder.join(scratch));
        Common {
            name: name.to_owned(),
            seed,
            repeats,
            scratch: flags.scratch.clone().or(from_plan),
            tiers,
            text: self.text,
        }
    }

    /// Tiers by name, of a plan without prices.
    ///
    /// # Errors
    /// A file cannot be read, a key of it is wrong, or a tier has a price.
    pub(crate) fn tiers(&self, raw: &BTreeMap<String, RawTier>) -> Result<BTreeMap<String, TierConfig>> {
        let (tiers, prices) = self.priced_tiers(raw)?;
        match prices.first_key_value() {
            Some((name, _)) => {
                Err(self.invalid(format!("tiers.{name}.price: this plan has no prices; remove the key")))
            }
            None => Ok(tiers),
        }
    }

    /// Tiers by name, and the price entries of those that name one.
    ///
    /// # Errors
    /// A file cannot be read, or a key of it is wrong.
    pub(crate) fn priced_tiers(&self, raw: &BTreeMap<String, RawTier>) -> Result<PricedTiers> {
        let (mut tiers, mut prices) = (BTreeMap::new(), BTreeMap::new());
        for (name, tier) in raw {
            // Part of a folder's name.
            check_name(&format!("tiers.{name}"), name).map_err(|why| self.invalid(why))?;
            tiers.insert(name.clone(), tier_config(&self.folder.join(&tier.file), &tier.set)?);
            prices.extend(tier.price.clone().map(|price| (name.clone(), price)));
        }
        Ok((tiers, prices))
    }

    /// Prices of tiers, and of an instance if one is named, from a price file relative to the plan's folder. `entries` are the tiers'
    /// `price`s.
    ///
    /// # Errors
    /// The file cannot be read, or lacks an entry.
    pub(crate) fn prices(
        &self,
        file: &Path,
        instance: Option<&str>,
        entries: &BTreeMap<String, String>,
    ) -> Result<ReadPrices> {
        reads(&self.folder.join(file), instance, entries).map_err(|error| self.invalid(error))
    }
}

/// Tiers and price entries, each by the tier's name.
pub(crate) type PricedTiers = (BTreeMap<String, TierConfig>, BTreeMap<String, String>);

/// Usage error, which ends the program with code 2.
pub(crate) fn bad_usage(what: &str, why: &str) -> anyhow::Error {
    ErrorKind::Invalid.error(what, why).into()
}

/// Reads a tier's TOML.
pub(crate) fn tier_config(file: &Path, set: &[String]) -> Result<TierConfig> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| bad_usage(&name, &format!("cannot be read: {e}")))?;
    Ok(TierConfig::parse_with(&name, &text, set)?)
}

/// Checks that a name can name a folder.
pub(crate) fn check_name(key: &str, name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && name.chars().all(is_allowed) {
        true => Ok(()),
        false => bail!("{key}: invalid name: use letters, digits, `-`, `_` and `.`"),
    }
}

/// Checks that each key is from 1 to its maximum.
pub(crate) fn check_counts(counts: &[(&str, u64, u64)]) -> Result<()> {
    counts
        .iter()
        .try_for_each(|(key, value, max)| check_within(key, *value, 1, *max))
}

/// Checks that a key is in its range.
pub(crate) fn check_within<T: PartialOrd + Display + Copy>(key: &str, value: T, min: T, max: T) -> Result<()> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => bail!("{key}: from {min} to {max}, not {value}"),
    }
}

/// Checks that a list has an entry, and no duplicates.
pub(crate) fn check_list<T: PartialEq + Debug>(key: &str, all: &[T]) -> Result<()> {
    if all.is_empty() {
        bail!("{key}: plan needs at least one entry");
    }
    let repeated = all.iter().enumerate().find(|(at, one)| all[..*at].contains(one));
    repeated.map_or(Ok(()), |(_, one)| Err(anyhow!("{key}: duplicate entry {one:?}")))
}

/// Checks that a list has an entry and no duplicates, and that each entry is in a range.
pub(crate) fn check_each<T: PartialOrd + Display + Debug + Copy>(key: &str, all: &[T], min: T, max: T) -> Result<()> {
    check_list(key, all)?;
    all.iter().try_for_each(|one| check_within(key, *one, min, max))
}

/// Checks that a table has an entry.
pub(crate) fn check_table<T>(key: &str, all: &BTreeMap<String, T>) -> Result<()> {
    check_list(key, &all.keys().collect::<Vec<_>>())
}

/// Parses a time in seconds, at most a day.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.filter(|time| *time <= Duration::from_secs(86_400));
    time.context("must be from 0 to 86400 seconds")
}

/// Parses a time in seconds above 0.
pub(crate) fn parse_positive_seconds(text: &str) -> Result<Duration> {
    let time = Some(parse_seconds(text)?).filter(|time| !time.is_zero());
    time.context("must be more than 0")
}

/// Writes a duration as seconds.
pub(crate) fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

/// One value, or a list of them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a whole number from 0, or a list of them")]
pub(crate) enum OneOrMany<T> {
    One(T),
    List(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(crate) const fn values(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::List(values) => values.as_slice(),
        }
    }
}

/// Default of a number.
pub(crate) fn number<T: TryFrom<u64>, const N: u64>() -> T {
    T::try_from(N).unwrap_or_else(|_| unreachable!("defaults fit their types"))
}

/// Default of a list: one number.
pub(crate) fn numbers<T: TryFrom<u64>, const N: u64>() -> Vec<T> {
    vec![number::<T, N>()]
}

/// Default of a list: the default of its type.
pub(crate) fn default_entry<T: Default>() -> Vec<T> {
    vec![T::default()]
}

/// Default of a fraction, in hundredths.
pub(crate) fn hundredths<const N: u32>() -> f64 {
    f64::from(N) / 100.0
}

/// Default of a size, in MiB.
pub(crate) const fn mib<const N: u64>() -> Size {
    Size(N << 20)
}
