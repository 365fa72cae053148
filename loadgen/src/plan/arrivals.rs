//! Arrival process and rate profile. In: `arrivals`, `[arrival]` and `[shape]`. Out: both, validated, with the trace read.
//! [`tierlab_load::schedule`] draws from them.

use super::check::Base;
use super::fault::{Fault, check_count, check_range, missing, only_with, refuse};
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_load::arrivals::{Arrivals, Process, Shape, Trace};
use tierlab_load::recording::{Call, RecordingSpec, Unit};

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
    Replay,
}

/// Arrivals with `arrivals = "gamma"`, `"trace"` or `"replay"`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawArrival {
    /// Standard deviation of the gaps over their mean, with "gamma"; 1 is "poisson".
    #[serde(default, with = "Within::<value::Variation>")]
    pub(super) cv: Option<f64>,
    /// Recorded requests, with "trace" and "replay", as JSON lines (`timestamp`, and for "replay" `method`, `path`,
    /// `content_type` and `body`, if known; also traces of Mooncake's form), a HAR file (requests to its
    /// first server), an access log of nginx or Apache, or CSV.
    pub(super) file: Option<PathBuf>,
    /// Column or key of the times in CSV and JSON lines (default: "timestamp").
    pub(super) column: Option<String>,
    /// Unit of times that are numbers, not RFC 3339 (default: "s"; "ms" in Mooncake's traces).
    pub(super) unit: Option<Unit>,
    /// Recorded seconds per second of the step, with "replay"; 1440 compresses a day to a minute (default: 1).
    #[serde(default, with = "Within::<value::Speed>")]
    pub(super) speed: Option<f64>,
}

/// File of the recorded requests of "trace" and "replay".
pub(super) fn recording(
    process: RawProcess,
    arrival: &RawArrival,
    base: Base<'_>,
) -> Result<Option<RecordingSpec>, Fault> {
    if !matches!(process, RawProcess::Trace | RawProcess::Replay) {
        return Ok(None);
    }
    let Some(file) = &arrival.file else {
        let advice = "recorded requests: JSON lines, a HAR file, an access log or CSV";
        return missing("arrival.file", advice);
    };
    Ok(Some(RecordingSpec {
        file: base.request_file(file),
        column: arrival.column.clone().unwrap_or_else(|| "timestamp".into()),
        unit: arrival.unit,
    }))
}

/// `[shape]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub(super) enum RawShape {
    Steps { shares: Vec<f64> },
    Ramp { from: f64, to: f64 },
}

/// Validates both and reads the recorded requests, which a replay sends.
pub(super) fn validate(
    (process, arrival, shape): (RawProcess, &RawArrival, Option<&RawShape>),
    recording: Option<&RecordingSpec>,
) -> Result<(Arrivals, Vec<Call>), Fault> {
    if process != RawProcess::Gamma {
        only_with("arrival", "`arrivals = \"gamma\"`", &[("cv", arrival.cv.is_some())])?;
    }
    if process != RawProcess::Replay {
        let flags = [("speed", arrival.speed.is_some())];
        only_with("arrival", "`arrivals = \"replay\"`", &flags)?;
    }
    let (mut calls, mut other_servers) = (Vec::new(), 0);
    if let Some(recording) = recording {
        let read = recording.read().map_err(|text| Fault::new("arrival.file", text))?;
        (calls, other_servers) = (read.calls, read.other_servers);
    } else {
        let (file, column) = (arrival.file.is_some(), arrival.column.is_some());
        let flags = [("file", file), ("column", column), ("unit", arrival.unit.is_some())];
        only_with("arrival", "`arrivals = \"trace\"` or `\"replay\"`", &flags)?;
    }
    let trace = Arc::new(Trace {
        file: arrival.file.clone().unwrap_or_default(),
        at_s: calls.iter().map(|call| call.at_s).collect(),
        other_servers,
    });
    let process = match process {
        RawProcess::Poisson => Process::Poisson,
        RawProcess::Constant => Process::Constant,
        RawProcess::Gamma => {
            let Some(cv) = arrival.cv else {
                return missing("arrival.cv", "gamma needs its coefficient of variation, such as 2.0");
            };
            Process::Gamma { cv }
        }
        RawProcess::Trace | RawProcess::Replay => Process::Trace {
            trace,
            speed: (process == RawProcess::Replay).then(|| arrival.speed.unwrap_or(1.0)),
        },
    };
    let shape = shape.map_or(Ok(Shape::Flat), profile)?;
    Ok((Arrivals { process, shape }, calls))
}

fn profile(shape: &RawShape) -> Result<Shape, Fault> {
    match shape {
        RawShape::Steps { shares } => {
            check_count("shape.shares", shares.len(), 2, MAX_PIECES)?;
            for &share in shares {
                check_range("shape.shares", share, 0.0, 1_000.0)?;
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            if mean <= 0.0 {
                refuse!("shape.shares", "all 0: nothing would be sent");
            }
            Ok(Shape::Steps(shares.iter().map(|share| share / mean).collect()))
        }
        &RawShape::Ramp { from, to } => {
            check_range("shape.from", from, 0.0, 1_000.0)?;
            check_range("shape.to", to, 0.0, 1_000.0)?;
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
