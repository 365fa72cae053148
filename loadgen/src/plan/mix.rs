//! `[[mix]]`: several modes, batch sizes and models at the same time. In: TOML. Out: the same, validated.

use super::check::Step;
use super::fault::{Fault, counted, distinct, duplicate, empty, misplaced, missing, plain, refuse, within};
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt;
use tierlab_analysis::record::Mode;
use tierlab_load::schedule::Load;

/// Maximum parts of a mix: each has users and a point of its own.
const MAX_PARTS: usize = 32;

/// Several loads at the same time, each a point of its own in the result. `max_in_flight` holds for each part. Parts share the
/// costs: the hour by the time of their requests in inference, storage requests and bytes by the tier requests that their
/// replies report. Searches leave mixes out.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Requests per second of all parts together, shared by weight.
    pub rates: Vec<f64>,
    /// Parts, at least two.
    #[serde(default, rename = "part")]
    pub parts: Vec<Part>,
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

pub(super) fn validate(mixes: &[Mix], step: Step) -> Result<(), Fault> {
    let mut numbered = mixes.iter().enumerate();
    numbered.try_for_each(|(index, mix)| check(mix, &format!("mix[{index}]"), step))
}

fn check(mix: &Mix, at: &str, step: Step) -> Result<(), Fault> {
    let parts = &mix.parts;
    for (index, part) in parts.iter().enumerate() {
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
    if mix.rates.is_empty() {
        return empty(format!("{at}.rates"));
    }
    distinct(&format!("{at}.rates"), &mix.rates)?;
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
    Ok(())
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
