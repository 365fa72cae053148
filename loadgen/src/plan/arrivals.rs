//! Arrival process and rate profile. In: `arrivals`, `[arrival]` and `[shape]`. Out: both, validated, with the trace read.
//! [`tierlab_load::schedule`] draws from them.

use super::check::Base;
use super::columns::{self, Column};
use super::fault::{Fault, counted, missing, only_with, refuse, within};
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_load::arrivals::{Arrivals, Process, Shape, Trace};

/// Maximum pieces of a stepped profile.
const MAX_PIECES: usize = 100;

/// `arrivals`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawProcess {
    #[default]
    Poisson,
    Constant,
    Gamma,
    Trace,
}

/// Arrivals with `arrivals = "gamma"` or `"trace"`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArrival {
    /// With "gamma": standard deviation of the gaps over their mean; 1 is "poisson".
    #[serde(default, with = "Within::<value::Variation>")]
    pub(super) cv: Option<f64>,
    /// With "trace": CSV file of times.
    pub(super) file: Option<PathBuf>,
    /// With "trace": column of times (default: "timestamp").
    pub(super) column: Option<String>,
    /// With "trace": unit of the times (default: "s").
    pub(super) unit: Option<RawUnit>,
}

/// `arrival.unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawUnit {
    S,
    Ms,
    Us,
    Ns,
}

/// `[shape]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub(super) enum RawShape {
    Steps { shares: Vec<f64> },
    Ramp { from: f64, to: f64 },
}

/// Validates both and reads the trace.
pub(super) fn validate(
    (process, arrival, shape): (RawProcess, &RawArrival, Option<&RawShape>),
    base: Base<'_>,
) -> Result<Arrivals, Fault> {
    if process != RawProcess::Gamma {
        only_with("arrival", "`arrivals = \"gamma\"`", &[("cv", arrival.cv.is_some())])?;
    }
    if process != RawProcess::Trace {
        let (file, column) = (arrival.file.is_some(), arrival.column.is_some());
        let given = [("file", file), ("column", column), ("unit", arrival.unit.is_some())];
        only_with("arrival", "`arrivals = \"trace\"`", &given)?;
    }
    let process = match process {
        RawProcess::Poisson => Process::Poisson,
        RawProcess::Constant => Process::Constant,
        RawProcess::Gamma => {
            let Some(cv) = arrival.cv else {
                return missing("arrival.cv", "gamma needs its coefficient of variation, such as 2.0");
            };
            Process::Gamma { cv }
        }
        RawProcess::Trace => Process::Trace(Arc::new(trace(arrival, base)?)),
    };
    Ok(Arrivals {
        process,
        shape: shape.map_or(Ok(Shape::Flat), profile)?,
    })
}

fn profile(shape: &RawShape) -> Result<Shape, Fault> {
    match shape {
        RawShape::Steps { shares } => {
            counted("shape.shares", shares.len(), 2, MAX_PIECES)?;
            for &share in shares {
                within("shape.shares", share, 0.0, 1_000.0)?;
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            if mean <= 0.0 {
                refuse!("shape.shares", "all 0: nothing would be sent");
            }
            Ok(Shape::Steps(shares.iter().map(|share| share / mean).collect()))
        }
        &RawShape::Ramp { from, to } => {
            within("shape.from", from, 0.0, 1_000.0)?;
            within("shape.to", to, 0.0, 1_000.0)?;
            let mean = f64::midpoint(from, to);
            if mean <= 0.0 {
                refuse!("shape.from", "0, as `shape.to`: nothing would be sent");
            }
            Ok(Shape::Ramp {
                from: from / mean,
                to: to / mean,
            })
        }
    }
}

fn trace(arrival: &RawArrival, base: Base<'_>) -> Result<Trace, Fault> {
    let Some(file) = &arrival.file else {
        return missing("arrival.file", "a trace is replayed from a CSV file");
    };
    let column = Column {
        key: "arrival.file",
        name: arrival.column.clone().unwrap_or_else(|| "timestamp".into()),
    };
    let per_s = match arrival.unit.unwrap_or(RawUnit::S) {
        RawUnit::S => 1.0,
        RawUnit::Ms => 1e3,
        RawUnit::Us => 1e6,
        RawUnit::Ns => 1e9,
    };
    let path = base.path(file);
    let mut at: Vec<f64> = columns::numbers(&path, &column)?;
    at.sort_by(f64::total_cmp);
    let (Some(&first), Some(&last)) = (at.first(), at.last()) else {
        refuse!("arrival.file", "{} has no rows", path.display());
    };
    if last <= first {
        refuse!("arrival.file", "all rows of {} have the same time", path.display());
    }
    // Large timestamps differ in their last digits: they are made small before they are scaled.
    at.iter_mut().for_each(|at| *at = (*at - first) / per_s);
    Ok(Trace {
        file: file.clone(),
        at_s: at,
    })
}
