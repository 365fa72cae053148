//! Where the time of a step went, and whether its backlog grew.

use crate::record::{Band, Interval, Sample};

/// Mean composition of the latency per percentile band.
#[must_use]
pub fn bands(samples: &[Sample]) -> Vec<Band> {
    let _ = samples;
    Vec::new()
}

/// Growth of the latency over the step, in microseconds per second of schedule.
#[must_use]
pub fn backlog_slope(samples: &[Sample]) -> Interval {
    let _ = samples;
    Interval::default()
}
