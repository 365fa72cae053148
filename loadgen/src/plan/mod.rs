//! Plans: what to measure, how often, and under which limits.
//!
//! In: a TOML file. Out: a validated [`Plan`]; what is wrong is named by file and key. Nothing deeper reads files or
//! the environment. Paths in a plan are relative to the plan's own file.

mod arrivals;
mod columns;
mod lab;
mod mix;
mod place;
mod raw;
mod search;

pub use arrivals::{Arrivals, Process, Shape, Trace};
pub use lab::{CacheState, ColdStartPlan, Data, LabPlan, Origin, TierPlan};
pub use mix::{Mix, Part};
pub use search::SearchPlan;

use crate::payload::Form;
use crate::record::{Limits, Mode};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tierlab_protocol::model::is_plain_name;

/// The most requests of one step: their due times, keys and bodies are all made before it starts.
pub const MAX_REQUESTS_PER_STEP: f64 = 2e6;
/// The highest rate that a plan may ask for, in requests per second.
pub const MAX_RATE: f64 = 100_000.0;

/// A plan that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", file.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
pub struct PlanError {
    /// The plan's file.
    pub file: PathBuf,
    /// The line of the key, from 1, or of the table that lacks it; absent where `what` says it, or nothing is there.
    pub line: Option<usize>,
    /// The key, and what is wrong with it.
    pub what: String,
}

/// How tensors are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// As JSON numbers.
    #[default]
    Json,
    /// With the binary tensor extension, both ways.
    Binary,
}

/// What requests go over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The Open Inference Protocol over HTTP/1.1.
    #[default]
    Http,
    /// The same over gRPC, tensors always binary.
    Grpc,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        })
    }
}

/// Which entities are asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyDistribution {
    /// Each as often as any other.
    Uniform,
    /// The entity of rank r with a frequency proportional to r^-exponent.
    Zipf {
        /// The exponent, above 0.
        exponent: f64,
    },
    /// One after the other through the table, over and over.
    Sequential,
    /// Those of a file, in its order, over and over.
    File {
        /// As the plan names it.
        file: PathBuf,
        /// At least one.
        ids: Arc<[i64]>,
    },
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { exponent } => write!(f, "zipf({exponent:.2})"),
            Self::Sequential => f.write_str("sequential"),
            Self::File { file, .. } => write!(f, "file({})", file.file_name().unwrap_or_default().to_string_lossy()),
        }
    }
}

/// One load: a mode, a batch size and a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    pub batch_size: u32,
    /// Requests per second.
    pub rate: f64,
}

impl Load {
    /// The same load at another rate.
    #[must_use]
    pub fn at(self, rate: f64) -> Self {
        Self { rate, ..self }
    }
}

/// A validated plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where it was read from.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// Its name, one plain path segment.
    pub name: String,
    /// The model.
    pub model: String,
    /// What every step's seed derives from.
    pub seed: u64,
    /// Repeats of every configuration.
    pub repeats: u32,
    /// Cut off the front of a step, by schedule.
    pub warmup: Duration,
    /// The measured window.
    pub window: Duration,
    /// How long replies may come in after the window.
    pub drain: Duration,
    /// Users: the most requests in flight.
    pub max_in_flight: usize,
    /// The client's limit for one request, from its actual send.
    pub timeout: Duration,
    /// What requests go over.
    pub protocol: Protocol,
    /// How tensors are sent over HTTP.
    pub encoding: Encoding,
    /// How requests are spread over time.
    pub arrivals: Arrivals,
    /// Which entities are asked for.
    pub keys: KeyDistribution,
    /// Whether the same load is first measured on a null endpoint.
    pub noise_floor: bool,
    /// Whether `selfcheck` runs first and its lines stand in the result.
    pub selfcheck: bool,
    /// The price list and the instance on it.
    pub prices: Option<(PathBuf, String)>,
    /// What verdicts are given by.
    pub limits: Limits,
    /// Every load, in the plan's order.
    pub loads: Vec<Load>,
    /// Loads that are sent at the same time, in the plan's order.
    pub mixes: Vec<Mix>,
    /// What the highest rate is searched under; absent where none is.
    pub search: Option<SearchPlan>,
    /// The lab around it; absent in a sweep.
    pub lab: Option<LabPlan>,
}

impl Plan {
    /// Reads and validates a plan.
    ///
    /// # Errors
    /// A file that cannot be read, bad TOML, an unknown key, a value out of range.
    pub fn load(file: &Path) -> Result<Self, PlanError> {
        let text = std::fs::read_to_string(file).map_err(|error| PlanError {
            file: file.to_owned(),
            line: None,
            what: format!("cannot be read: {error}"),
        })?;
        Self::parse(file, &text)
    }

    /// Validates a plan's text; `file` is what errors name and what paths are relative to.
    ///
    /// # Errors
    /// As [`Plan::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, PlanError> {
        let raw: raw::RawPlan = toml::from_str(text).map_err(|error| PlanError {
            file: file.to_owned(),
            line: None,
            what: error.to_string().trim_end().to_owned(),
        })?;
        validate(raw, file, text).map_err(|what| refusal(file, text, what))
    }

    /// What requests to a model are encoded as.
    #[must_use]
    pub const fn form<'a>(&self, model: &'a str) -> Form<'a> {
        match self.protocol {
            Protocol::Http => Form::Http(self.encoding),
            Protocol::Grpc => Form::Grpc(model),
        }
    }

    /// The models that its mixes ask for beside its own.
    #[must_use]
    pub fn other_models(&self) -> BTreeSet<&str> {
        let parts = self.mixes.iter().flat_map(|mix| &mix.parts);
        let models = parts.filter_map(|part| part.model.as_deref());
        models.filter(|model| *model != self.model).collect()
    }

    /// An error of this plan, found out later; `what` begins with the key, between backticks.
    #[must_use]
    pub fn refuse(&self, what: String) -> PlanError {
        refusal(&self.file, &self.text, what)
    }

    /// The longest that one step can take.
    #[must_use]
    pub fn step_limit(&self) -> Duration {
        self.warmup + self.window + self.drain
    }
}

/// An error with the line of the key that it names first.
fn refusal(file: &Path, text: &str, what: String) -> PlanError {
    let key = what.split('`').nth(1).map(|key| key.trim_matches(['[', ']']));
    PlanError {
        file: file.to_owned(),
        line: key.and_then(|key| place::line_of(text, key)),
        what,
    }
}

fn validate(raw: raw::RawPlan, file: &Path, text: &str) -> Result<Plan, String> {
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    for (key, name) in [("name", &raw.name), ("model", &raw.model)] {
        if !is_plain_name(name) {
            return Err(format!(
                "`{key}` = `{name}` is no plain name (letters, digits, `.`, `_`, `-`)"
            ));
        }
    }
    within("repeats", f64::from(raw.repeats), 1.0, 100.0)?;
    within("warmup_s", raw.warmup_s, 0.0, 3_600.0)?;
    within("step_s", raw.step_s, 0.1, 3_600.0)?;
    within("drain_s", raw.drain_s, 0.05, 600.0)?;
    within("max_in_flight", f64::from(raw.max_in_flight), 1.0, 8_192.0)?;
    within("timeout_ms", raw.timeout_ms as f64, 1.0, 600_000.0)?;
    limits(&raw.limits)?;
    let encoding = match (raw.protocol, raw.encoding) {
        (Protocol::Grpc, Some(Encoding::Json)) => {
            return Err(
                "`encoding` = \"json\" does not belong to `protocol = \"grpc\"`, whose tensors are binary".into(),
            );
        }
        (_, encoding) => encoding.unwrap_or_default(),
    };
    let keys = keys(raw.keys, base)?;
    let arrivals = arrivals::validate(raw.arrivals, raw.arrival, raw.shape, base)?;
    let prices = match (raw.prices, raw.instance) {
        (None, None) => None,
        (Some(prices), Some(instance)) => Some((below(base, &prices), instance)),
        (Some(_), None) => return Err("`instance` is missing: which instance of `prices` is it?".into()),
        (None, Some(_)) => return Err("`prices` is missing: where is `instance` priced?".into()),
    };
    let frame = mix::Frame {
        warmup_s: raw.warmup_s,
        step_s: raw.step_s,
        base,
    };
    let mixes = mix::validate(raw.mix, frame)?;
    if raw.load.is_empty() && mixes.is_empty() {
        return Err("`[[load]]` is missing: a plan needs at least one load, or a `[[mix]]`".into());
    }
    let loads = loads(&raw.load, raw.warmup_s, raw.step_s)?;
    let steps = search::Steps {
        warmup_s: raw.warmup_s,
        step_s: raw.step_s,
        repeats: raw.repeats,
        limits: &raw.limits,
        loads: &loads,
    };
    Ok(Plan {
        search: raw.search.map(|raw| search::validate(raw, &steps)).transpose()?,
        loads,
        mixes,
        lab: raw.lab.map(|lab| lab::validate(lab, base)).transpose()?,
        file: file.to_owned(),
        text: text.to_owned(),
        name: raw.name,
        model: raw.model,
        seed: raw.seed,
        repeats: raw.repeats,
        warmup: Duration::from_secs_f64(raw.warmup_s),
        window: Duration::from_secs_f64(raw.step_s),
        drain: Duration::from_secs_f64(raw.drain_s),
        max_in_flight: raw.max_in_flight as usize,
        timeout: Duration::from_millis(raw.timeout_ms),
        protocol: raw.protocol,
        encoding,
        arrivals,
        keys,
        noise_floor: raw.noise_floor,
        selfcheck: raw.selfcheck,
        prices,
        limits: raw.limits,
    })
}

fn keys(raw: raw::RawKeys, base: &Path) -> Result<KeyDistribution, String> {
    use raw::RawDistribution as Raw;
    let foreign = |key: &str, owner: &str| Err(format!("`keys.{key}` belongs to `keys.distribution = \"{owner}\"`"));
    if raw.distribution != Raw::Zipf && raw.exponent.is_some() {
        return foreign("exponent", "zipf");
    }
    if raw.distribution != Raw::File && raw.file.is_some() {
        return foreign("file", "file");
    }
    if raw.distribution != Raw::File && raw.column.is_some() {
        return foreign("column", "file");
    }
    match raw.distribution {
        Raw::Uniform => Ok(KeyDistribution::Uniform),
        Raw::Sequential => Ok(KeyDistribution::Sequential),
        Raw::Zipf => {
            let Some(exponent) = raw.exponent else {
                return Err("`keys.exponent` is missing: zipf needs one, as 1.1".into());
            };
            within("keys.exponent", exponent, 0.01, 10.0)?;
            Ok(KeyDistribution::Zipf { exponent })
        }
        Raw::File => {
            let Some(file) = raw.file else {
                return Err("`keys.file` is missing: a CSV file with a column of entity ids".into());
            };
            let column = columns::Column {
                key: "keys.file",
                name: raw.column.unwrap_or_else(|| "entity_id".into()),
            };
            let path = below(base, &file);
            let ids = columns::ids(&path, &column)?;
            if ids.is_empty() {
                return Err(format!("`keys.file`: {} has no ids", path.display()));
            }
            Ok(KeyDistribution::File { file, ids: ids.into() })
        }
    }
}

fn loads(raw: &[raw::RawLoad], warmup_s: f64, step_s: f64) -> Result<Vec<Load>, String> {
    let mut loads = Vec::new();
    for (i, load) in raw.iter().enumerate() {
        let batch_sizes = match load.mode {
            Mode::Realtime if load.batch_sizes.is_empty() => &[1][..],
            Mode::Realtime => {
                return Err(format!(
                    "`load[{i}].batch_sizes` does not belong to `mode = \"realtime\"`, which sends one entity per request"
                ));
            }
            Mode::Batch if load.batch_sizes.is_empty() => {
                return Err(format!(
                    "`load[{i}].batch_sizes` is missing: `mode = \"batch\"` needs at least one"
                ));
            }
            Mode::Batch => &load.batch_sizes,
        };
        if load.rates.is_empty() {
            return Err(format!("`load[{i}].rates` is empty"));
        }
        for &batch_size in batch_sizes {
            // A batch of one would be real-time under another name.
            let least = if load.mode == Mode::Batch { 2.0 } else { 1.0 };
            within(
                &format!("load[{i}].batch_sizes"),
                f64::from(batch_size),
                least,
                65_536.0,
            )?;
            for &rate in &load.rates {
                within(&format!("load[{i}].rates"), rate, 0.01, MAX_RATE)?;
                if rate * step_s < 1.0 {
                    return Err(format!(
                        "`load[{i}].rates`: {rate} per second sends nothing in a step of {step_s} s"
                    ));
                }
                if rate * (warmup_s + step_s) > MAX_REQUESTS_PER_STEP {
                    return Err(format!(
                        "`load[{i}].rates`: {rate} per second is more than {MAX_REQUESTS_PER_STEP} requests a step; shorten `step_s`"
                    ));
                }
                loads.push(Load {
                    mode: load.mode,
                    batch_size,
                    rate,
                });
            }
        }
    }
    for (i, load) in loads.iter().enumerate() {
        if loads[..i].contains(load) {
            return Err(format!(
                "`load`: {} × {} at {} per second stands twice",
                load.mode, load.batch_size, load.rate
            ));
        }
    }
    Ok(loads)
}

fn limits(limits: &Limits) -> Result<(), String> {
    within("limits.rate_error_share", limits.rate_error_share, 0.0, 1.0)?;
    within("limits.lag_share_of_p99", limits.lag_share_of_p99, 0.0, 1.0)?;
    within("limits.error_share", limits.error_share, 0.0, 1.0)
}

/// A plan's path relative to the plan's folder, without the detours of `..` where they lead back through a plain name.
fn below(base: &Path, path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir if matches!(short.components().next_back(), Some(Component::Normal(_))) => {
                short.pop();
            }
            Component::CurDir => {}
            part => short.push(part),
        }
    }
    short
}

/// Refuses NaN, infinities and whatever lies outside.
fn within(key: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("`{key}` = {value} is not within {least} and {most}"))
    }
}

#[cfg(test)]
mod tests;
