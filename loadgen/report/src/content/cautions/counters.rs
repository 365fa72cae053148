//! What a server's own counters say of a point, and when they say nothing. In: a point. Out: sentences.

use crate::units::latency;
use tierlab_analysis::record::{Point, ServerDelta, ServerStages};

/// Why counters are left out, and who started anew.
pub(super) fn cautions(name: &str, point: &Point) -> Vec<String> {
    let servers = || point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let doubts: Vec<&str> = servers().filter_map(|server| server.doubt.as_deref()).collect();
    let mut cautions = Vec::new();
    if let Some(first) = doubts.first() {
        cautions.push(format!(
            "{name}: what the server counted is left out in {} of {} steps: {first}",
            doubts.len(),
            point.repeats.len()
        ));
    }
    let restarts: u32 = servers().map(|server: &ServerDelta| server.restarts).sum();
    if restarts > 0 {
        cautions.push(format!(
            "{name}: servers started anew {restarts} times during its steps; what they counted before that is not known"
        ));
    }
    cautions
}

/// The mean way of a request by the server's own statistics: `queue 0.05 ms, inputs 0.01 ms, inference 0.9 ms, outputs 0.02 ms`.
pub(crate) fn stages(point: &Point) -> Option<String> {
    let stages: Vec<&ServerStages> = point
        .repeats
        .iter()
        .filter_map(|repeat| repeat.server.as_ref()?.stages.as_ref())
        .collect();
    let requests: f64 = stages.iter().map(|stages| stages.requests).sum();
    if requests <= 0.0 {
        return None;
    }
    let mean = |of: fn(&ServerStages) -> f64| {
        let sum: f64 = stages.iter().map(|stages| of(stages) * stages.requests).sum();
        latency(sum / requests)
    };
    Some(format!(
        "queue {}, inputs {}, inference {}, outputs {}",
        mean(|stages| stages.queue_us),
        mean(|stages| stages.input_us),
        mean(|stages| stages.infer_us),
        mean(|stages| stages.output_us)
    ))
}
