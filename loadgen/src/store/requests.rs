//! `requests/*.parquet` in a run's folder: every request of a step, a row each in the order of the schedule.
//!
//! In: the requests that a step kept, and facts of its bodies. Out: a file, written after the step and before the next one, so
//! that no disk delays a send; in batches, so that memory stays bounded. Knows nothing of plans and targets.

use super::histograms::hdr_file;
use crate::error::StoreError;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tierlab_analysis::record::{Factors, SlowRequest};
use tierlab_load::driver::KeptRequest;
use tierlab_load::keys::Population;
use tierlab_load::payload::{Body, Protocol};
use tierlab_protocol::timing::Stage;

#[cfg(feature = "parquet")]
mod rows;

/// Slow requests that a result names.
const SLOWEST: usize = 5;

/// Point's name and rate in requests per second, and repeat from 0.
pub type StepId = (String, f64, u32);

/// Facts of a step's requests that their samples do not have.
#[derive(Debug)]
pub struct RequestFacts {
    /// Protocol of the bodies.
    pub protocol: Protocol,
    /// First entity of each request; empty without entities.
    pub ids: Vec<i64>,
    /// Population of the entities.
    pub population: Option<Population>,
    /// Bodies, sent in turn.
    pub bodies: Arc<Vec<Body>>,
    /// True if shapes are read from the bodies.
    pub has_tensors: bool,
    /// Measured window, in microseconds since the step's start.
    pub window_us: Range<u64>,
}

/// Returns the name of a repeat's file, relative to the run's folder; a later attempt replaces it.
pub fn file(factors: &Factors, repeat: u32) -> String {
    let name = hdr_file(factors, repeat);
    let stem = name.trim_start_matches("hdr/").trim_end_matches(".hdr");
    format!("requests/{stem}.parquet")
}

/// Writes the requests of a step, and returns the slowest good replies of its window.
///
/// # Errors
/// A folder or file that cannot be written.
pub fn write(
    path: &Path,
    step: &StepId,
    mut requests: Vec<KeptRequest>,
    facts: &RequestFacts,
) -> Result<Vec<SlowRequest>, StoreError> {
    requests.sort_unstable_by_key(|request| request.index);
    rows::write(path, step, &requests, facts).map_err(StoreError::io(path))?;
    Ok(slowest(&facts.window_us, &requests))
}

/// Rows in a build without the feature `parquet`, which refuses plans that keep requests.
#[cfg(not(feature = "parquet"))]
mod rows {
    use super::{KeptRequest, Path, RequestFacts, StepId};
    use std::io;

    pub(super) fn write(_: &Path, _: &StepId, _: &[KeptRequest], _: &RequestFacts) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn slowest(window_us: &Range<u64>, requests: &[KeptRequest]) -> Vec<SlowRequest> {
    let good = |request: &&KeptRequest| request.sample.is_ok() && window_us.contains(&request.sample.due_us);
    let mut slowest: Vec<&KeptRequest> = requests.iter().filter(good).collect();
    slowest.sort_by_key(|request| std::cmp::Reverse(request.sample.latency_us()));
    let slow = slowest.into_iter().take(SLOWEST).map(|request| {
        let timings = request.sample.timings.as_ref();
        let stage = timings.and_then(|timings| {
            let stages = Stage::ALL.into_iter().map(|stage| (stage, timings.get(stage)));
            stages.max_by_key(|(_, time)| *time)
        });
        SlowRequest {
            request: request.index as u64,
            due_us: request.sample.due_us,
            latency_us: request.sample.latency_us(),
            lag_us: request.sample.lag_us(),
            stage: stage.map(|(stage, time)| (stage.as_str().to_owned(), time.as_micros() as u64)),
        }
    });
    slow.collect()
}
