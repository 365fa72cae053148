//! How requests are spread over time, as a plan says it. In: `arrivals`, `[arrival]` and `[shape]`. Out: a process and a
//! profile, validated, traces read. Draws nothing; [`tierlab_load::schedule`] does.

use super::check::{Base, within};
use super::columns::{self, Column};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_load::arrivals::{Arrivals, Process, Shape, Trace};

/// The most pieces of a stepped profile.
const MAX_PIECES: usize = 100;

/// `arrivals`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawProcess {
    #[default]
    Poisson,
    Constant,
    Gamma,
    Trace,
}

/// `[arrival]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArrival {
    pub(super) cv: Option<f64>,
    pub(super) file: Option<PathBuf>,
    pub(super) column: Option<String>,
    pub(super) unit: Option<RawUnit>,
}

/// `arrival.unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawUnit {
    S,
    Ms,
    Us,
    Ns,
}

/// `[shape]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub(super) enum RawShape {
    Steps { shares: Vec<f64> },
    Ramp { from: f64, to: f64 },
}

/// Validates, and reads the trace.
pub(super) fn validate(
    process: RawProcess,
    arrival: RawArrival,
    shape: Option<RawShape>,
    base: Base<'_>,
) -> Result<Arrivals, String> {
    let foreign = |key: &str, owner: &str| Err(format!("`arrival.{key}` belongs to `arrivals = \"{owner}\"`"));
    if process != RawProcess::Gamma && arrival.cv.is_some() {
        return foreign("cv", "gamma");
    }
    if process != RawProcess::Trace {
        for (key, given) in [
            ("file", arrival.file.is_some()),
            ("column", arrival.column.is_some()),
            ("unit", arrival.unit.is_some()),
        ] {
            if given {
                return foreign(key, "trace");
            }
        }
    }
    let process = match process {
        RawProcess::Poisson => Process::Poisson,
        RawProcess::Constant => Process::Constant,
        RawProcess::Gamma => {
            let Some(cv) = arrival.cv else {
                return Err("`arrival.cv` is missing: gamma needs its coefficient of variation, as 2.0".into());
            };
            within("arrival.cv", cv, 0.05, 20.0)?;
            Process::Gamma { cv }
        }
        RawProcess::Trace => Process::Trace(Arc::new(trace(arrival, base)?)),
    };
    Ok(Arrivals {
        process,
        shape: shape.map_or(Ok(Shape::Flat), profile)?,
    })
}

fn profile(shape: RawShape) -> Result<Shape, String> {
    match shape {
        RawShape::Steps { shares } => {
            within(
                "shape.shares (their number)",
                shares.len() as f64,
                2.0,
                MAX_PIECES as f64,
            )?;
            for &share in &shares {
                within("shape.shares", share, 0.0, 1_000.0)?;
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            if mean <= 0.0 {
                return Err("`shape.shares` are all 0: nothing would be sent".into());
            }
            Ok(Shape::Steps(shares.iter().map(|share| share / mean).collect()))
        }
        RawShape::Ramp { from, to } => {
            within("shape.from", from, 0.0, 1_000.0)?;
            within("shape.to", to, 0.0, 1_000.0)?;
            let mean = f64::midpoint(from, to);
            if mean <= 0.0 {
                return Err("`shape.from` and `shape.to` are both 0: nothing would be sent".into());
            }
            Ok(Shape::Ramp {
                from: from / mean,
                to: to / mean,
            })
        }
    }
}

fn trace(arrival: RawArrival, base: Base<'_>) -> Result<Trace, String> {
    let Some(file) = arrival.file else {
        return Err("`arrival.file` is missing: a trace is replayed from a CSV file".into());
    };
    let column = Column {
        key: "arrival.file",
        name: arrival.column.unwrap_or_else(|| "timestamp".into()),
    };
    let per_s = match arrival.unit.unwrap_or(RawUnit::S) {
        RawUnit::S => 1.0,
        RawUnit::Ms => 1e3,
        RawUnit::Us => 1e6,
        RawUnit::Ns => 1e9,
    };
    let path = base.path(&file);
    let mut at: Vec<f64> = columns::numbers(&path, &column)?;
    at.sort_by(f64::total_cmp);
    let (Some(&first), Some(&last)) = (at.first(), at.last()) else {
        return Err(format!("`arrival.file`: {} has no rows", path.display()));
    };
    if last <= first {
        return Err(format!("`arrival.file`: all rows of {} came at once", path.display()));
    }
    // Large timestamps differ in their last digits: they are made small before they are scaled.
    at.iter_mut().for_each(|at| *at = (*at - first) / per_s);
    Ok(Trace { file, at_s: at })
}
