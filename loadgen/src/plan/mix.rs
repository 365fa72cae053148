//! `[[mix]]`: several modes, batch sizes and models at the same time. In: TOML, and the trace of batch sizes. Out: validated mixes.

use super::check::{Base, Step};
use super::columns::{self, Column};
use super::fault::{Fault, conflict, counted, distinct, duplicate, empty, misplaced, missing, plain, refuse, within};
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Mode;
use tierlab_load::schedule::Load;

/// Maximum parts of a mix: each has users and a point of its own.
const MAX_PARTS: usize = 32;

/// Loads that are sent at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Parts, at least two.
    pub parts: Vec<Part>,
    /// Requests per second of all parts together.
    pub rates: Vec<f64>,
}

/// One part of a mix: `[[mix.part]]`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Share of the requests, relative to the weights of all parts.
    #[serde(with = "Within::<value::Weight>")]
    pub weight: f64,
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    #[serde(default = "value::default::<1>")]
    pub batch_size: u32,
    /// Model (default: the plan's). Only in a sweep.
    pub model: Option<String>,
}

impl Mix {
    /// Load of a part at the mix's `rate`.
    #[must_use]
    pub fn load(&self, part: &Part, rate: f64) -> Load {
        let all: f64 = self.parts.iter().map(|part| part.weight).sum();
        Load {
            mode: part.mode,
            batch_size: part.batch_size,
            rate: rate * part.weight / all,
        }
    }
}

/// Models of mixes other than the plan's.
pub(super) fn other_models<'a>(mixes: &'a [Mix], model: &'a str) -> impl Iterator<Item = &'a str> {
    let parts = mixes.iter().flat_map(|mix| &mix.parts);
    let models = parts.filter_map(|part| part.model.as_deref());
    models.filter(move |other| *other != model)
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            let between = if index > 0 { ", " } else { "" };
            write!(f, "{between}{} {part}", part.weight)?;
        }
        Ok(())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.mode, self.batch_size)?;
        match &self.model {
            Some(model) => write!(f, " of {model}"),
            None => Ok(()),
        }
    }
}

/// Several loads at the same time, each a point of its own in the result. `max_in_flight` holds for each part. Parts share the
/// costs: the hour by the time of their requests in inference, storage requests and bytes by the tier requests that their
/// replies report. Searches leave mixes out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMix {
    /// Requests per second of all parts together, shared by weight.
    rates: Vec<f64>,
    /// Parts, at least two.
    #[serde(default)]
    part: Vec<Part>,
    /// CSV file of batch sizes instead of parts: one part for each size, weighted by its number of rows. `tierlab-loadgen
    /// trace` makes such files.
    trace: Option<PathBuf>,
    /// With `trace`: column of batch sizes (default: "batch_size").
    column: Option<String>,
}

pub(super) fn validate(raw: &[RawMix], step: Step, base: Base<'_>) -> Result<Vec<Mix>, Fault> {
    raw.iter()
        .enumerate()
        .map(|(index, raw)| mix(raw, &format!("mix[{index}]"), step, base))
        .collect()
}

fn mix(raw: &RawMix, at: &str, step: Step, base: Base<'_>) -> Result<Mix, Fault> {
    let parts = match (&raw.trace, raw.part.is_empty()) {
        (Some(_), false) => {
            return conflict(
                format!("{at}.trace"),
                format!("{at}.part"),
                "the trace makes the parts; leave one of them out",
            );
        }
        (Some(file), true) => from_trace(&base.path(file), raw.column.clone(), at)?,
        (None, _) if raw.column.is_some() => return misplaced(format!("{at}.column"), format!("`{at}.trace`")),
        (None, _) => raw.part.clone(),
    };
    for (index, part) in raw.part.iter().enumerate() {
        check_part(part, &format!("{at}.part[{index}]"))?;
    }
    counted(&format!("{at}.part"), parts.len(), 2, MAX_PARTS)?;
    for (i, part) in parts.iter().enumerate() {
        let same =
            |other: &&Part| (other.mode, other.batch_size, &other.model) == (part.mode, part.batch_size, &part.model);
        if parts[..i].iter().any(|other| same(&other)) {
            return duplicate(format!("{at}.part[{i}]"), part);
        }
    }
    if raw.rates.is_empty() {
        return empty(format!("{at}.rates"));
    }
    distinct(&format!("{at}.rates"), &raw.rates)?;
    let mix = Mix {
        parts,
        rates: raw.rates.clone(),
    };
    for (i, &rate) in mix.rates.iter().enumerate() {
        let key = format!("{at}.rates[{i}]");
        step.check_rate(&key, rate, 1)?;
        for part in &mix.parts {
            let share = mix.load(part, rate).rate;
            if share * step.step_s < 1.0 {
                refuse!(
                    key,
                    "of {rate} per second, {share:.3} are {part}, which sends nothing in a step of {} s",
                    step.step_s
                );
            }
        }
    }
    Ok(mix)
}

fn check_part(part: &Part, at: &str) -> Result<(), Fault> {
    let key = format!("{at}.batch_size");
    match (part.mode, part.batch_size) {
        (Mode::Realtime, 1) => {}
        (Mode::Realtime, _) => return misplaced(key, "`mode = \"batch\"`"),
        (Mode::Batch, 1) => return missing(key, "`mode = \"batch\"` needs at least 2"),
        (Mode::Batch, size) => within(&key, f64::from(size), 2.0, 65_536.0)?,
    }
    match &part.model {
        Some(model) => plain(&format!("{at}.model"), model),
        None => Ok(()),
    }
}

/// Makes a part for each batch size of a recorded load, weighted by its count.
fn from_trace(file: &Path, column: Option<String>, at: &str) -> Result<Vec<Part>, Fault> {
    let column = Column {
        key: "mix.trace",
        name: column.unwrap_or_else(|| "batch_size".into()),
    };
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for size in columns::ids(file, &column)? {
        let Some(size) = u32::try_from(size).ok().filter(|size| (1..=65_536).contains(size)) else {
            let what = format!("{}: {size} is not a batch size", file.display());
            return Err(Fault::new(format!("{at}.trace"), what));
        };
        *counts.entry(size).or_default() += 1;
    }
    if counts.len() > MAX_PARTS {
        refuse!(
            format!("{at}.trace"),
            "{} has {} batch sizes, more than {MAX_PARTS}; round them by `tierlab-loadgen trace --round-batches`",
            file.display(),
            counts.len()
        );
    }
    Ok(counts
        .into_iter()
        .map(|(size, count)| Part {
            weight: f64::from(count),
            mode: if size == 1 { Mode::Realtime } else { Mode::Batch },
            batch_size: size,
            model: None,
        })
        .collect())
}
