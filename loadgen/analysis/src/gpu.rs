//! Energy of a point's GPUs, and the division of their time. In: the repeats of a point. Out: figures. Knows nothing of
//! the measurement.

use crate::record::{IdleByCause, Repeat};

/// Returns joules per inference over all repeats and GPUs; `None` without a GPU or without inferences.
#[must_use]
pub fn joules_per_inference(repeats: &[Repeat]) -> Option<f64> {
    let servers = || repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let joules: f64 = servers().flat_map(|server| &server.gpus).map(|gpu| gpu.energy_j).sum();
    let inferences: f64 = servers()
        .filter(|server| !server.gpus.is_empty())
        .map(|server| server.inferences)
        .sum();
    (joules > 0.0 && inferences > 0.0).then(|| joules / inferences)
}

/// Returns the shares of GPU time; `None` without a GPU, or without session times.
#[must_use]
pub fn idle_by_cause(repeats: &[Repeat]) -> Option<IdleByCause> {
    let servers = || {
        repeats
            .iter()
            .filter_map(|repeat| repeat.server.as_ref())
            .filter(|server| !server.gpus.is_empty())
    };
    let state = |name: &str| -> f64 { servers().filter_map(|server| server.session_seconds.get(name)).sum() };
    let waits = ["queue_wait", "storage_wait", "no_requests"].map(state);
    let whole = state("compute") + waits.iter().sum::<f64>();
    if whole <= 0.0 {
        return None;
    }
    // The busiest GPU, because sessions of one model run on one GPU.
    let busy: f64 = servers()
        .map(|server| server.gpus.iter().map(|gpu| gpu.busy_s).fold(0.0, f64::max))
        .sum();
    let windows: f64 = repeats
        .iter()
        .filter(|repeat| repeat.server.is_some())
        .map(|repeat| repeat.window_s)
        .sum();
    let busy = (busy / windows.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    // If sessions waited longer than the GPU was idle, their waits share the idle time.
    let idle = waits.iter().sum::<f64>() / whole;
    let scale = ((1.0 - busy) / idle.max(f64::MIN_POSITIVE)).min(1.0);
    let [queue_wait, storage_wait, no_requests] = waits.map(|wait| wait / whole * scale);
    Some(IdleByCause {
        busy,
        copy_and_host: (1.0 - busy - idle * scale).max(0.0),
        queue_wait,
        storage_wait,
        no_requests,
    })
}
