//! `[[mix]]`: several modes, batch sizes and models at the same time. In: TOML, and the trace that batch sizes come from.
//! Out: validated mixes. Knows nothing of how they are sent.

use super::check::{Base, MAX_RATE, MAX_REQUESTS_PER_STEP, within};
use super::columns::{self, Column};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Mode;
use tierlab_formats::model::is_plain_name;
use tierlab_load::load::Load;

/// The most parts of a mix: each has users and a point of its own.
const MAX_PARTS: usize = 32;

/// Loads that are sent at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// What it is made of; at least two.
    pub parts: Vec<Part>,
    /// Requests per second of all parts together.
    pub rates: Vec<f64>,
}

/// One part of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its share of the requests, among the weights of all parts.
    pub weight: f64,
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request; 1 in real-time mode.
    pub batch_size: u32,
    /// The model, where it is not the plan's.
    pub model: Option<String>,
}

impl Mix {
    /// What a part sends when the whole sends `rate`.
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

/// `[[mix]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMix {
    rates: Vec<f64>,
    #[serde(default)]
    part: Vec<RawPart>,
    trace: Option<PathBuf>,
    column: Option<String>,
}

/// `[[mix.part]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    weight: f64,
    mode: Mode,
    batch_size: Option<u32>,
    model: Option<String>,
}

/// How long a step is, and where relative paths begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) warmup_s: f64,
    pub(super) step_s: f64,
    pub(super) base: Base<'a>,
}

pub(super) fn validate(raw: Vec<RawMix>, frame: Frame<'_>) -> Result<Vec<Mix>, String> {
    raw.into_iter()
        .enumerate()
        .map(|(index, raw)| mix(raw, &format!("mix[{index}]"), frame))
        .collect()
}

fn mix(raw: RawMix, at: &str, frame: Frame<'_>) -> Result<Mix, String> {
    let parts = match (raw.trace, raw.part.is_empty()) {
        (Some(_), false) => return Err(format!("`{at}.trace` makes the parts itself; leave out `[[mix.part]]`")),
        (Some(file), true) => from_trace(&frame.base.path(&file), raw.column, at)?,
        (None, _) if raw.column.is_some() => return Err(format!("`{at}.column` belongs to `{at}.trace`")),
        (None, _) => raw
            .part
            .into_iter()
            .enumerate()
            .map(|(index, raw)| part(raw, &format!("{at}.part[{index}]")))
            .collect::<Result<Vec<_>, _>>()?,
    };
    within(
        &format!("{at}.part (their number)"),
        parts.len() as f64,
        2.0,
        MAX_PARTS as f64,
    )?;
    for (i, part) in parts.iter().enumerate() {
        let same =
            |other: &&Part| (other.mode, other.batch_size, &other.model) == (part.mode, part.batch_size, &part.model);
        if parts[..i].iter().any(|other| same(&other)) {
            return Err(format!("`{at}.part[{i}]`: {part} stands twice"));
        }
    }
    if raw.rates.is_empty() {
        return Err(format!("`{at}.rates` is empty"));
    }
    let mix = Mix {
        parts,
        rates: raw.rates,
    };
    for (i, &rate) in mix.rates.iter().enumerate() {
        within(&format!("{at}.rates"), rate, 0.01, MAX_RATE)?;
        if mix.rates[..i].contains(&rate) {
            return Err(format!("`{at}.rates`: {rate} stands twice"));
        }
        if rate * (frame.warmup_s + frame.step_s) > MAX_REQUESTS_PER_STEP {
            return Err(format!(
                "`{at}.rates`: {rate} per second is more than {MAX_REQUESTS_PER_STEP} requests a step; shorten `step_s`"
            ));
        }
        for part in &mix.parts {
            let share = mix.load(part, rate).rate;
            if share * frame.step_s < 1.0 {
                return Err(format!(
                    "`{at}.rates`: of {rate} per second, {share:.3} are {part}, which sends nothing in a step of {} s",
                    frame.step_s
                ));
            }
        }
    }
    Ok(mix)
}

fn part(raw: RawPart, at: &str) -> Result<Part, String> {
    within(&format!("{at}.weight"), raw.weight, 1e-6, 1e6)?;
    let batch_size = match (raw.mode, raw.batch_size) {
        (Mode::Realtime, None) => 1,
        (Mode::Realtime, Some(_)) => {
            return Err(format!(
                "`{at}.batch_size` does not belong to `mode = \"realtime\"`, which sends one entity per request"
            ));
        }
        (Mode::Batch, None) => return Err(format!("`{at}.batch_size` is missing: `mode = \"batch\"` needs it")),
        (Mode::Batch, Some(size)) => {
            within(&format!("{at}.batch_size"), f64::from(size), 2.0, 65_536.0)?;
            size
        }
    };
    if let Some(model) = raw.model.as_ref().filter(|model| !is_plain_name(model)) {
        return Err(format!("`{at}.model` = `{model}` is no plain name"));
    }
    Ok(Part {
        weight: raw.weight,
        mode: raw.mode,
        batch_size,
        model: raw.model,
    })
}

/// A part for each batch size of a recorded load, as often as it stands there.
fn from_trace(file: &Path, column: Option<String>, at: &str) -> Result<Vec<Part>, String> {
    let column = Column {
        key: "mix.trace",
        name: column.unwrap_or_else(|| "batch_size".into()),
    };
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for size in columns::ids(file, &column)? {
        let Some(size) = u32::try_from(size).ok().filter(|size| (1..=65_536).contains(size)) else {
            return Err(format!("`{at}.trace`: {}: {size} is no batch size", file.display()));
        };
        *counts.entry(size).or_default() += 1;
    }
    if counts.len() > MAX_PARTS {
        return Err(format!(
            "`{at}.trace`: {} has {} batch sizes, more than {MAX_PARTS}; round them, as by `tierlab-loadgen trace --round-batches`",
            file.display(),
            counts.len()
        ));
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
