//! Replies that fall behind the schedule, the sign of a server that cannot keep up.
//!
//! In: evidence and limits. Out: the growth of the number in flight over the windows, and if it is certain and large
//! enough to matter. Pure. Knows nothing of latencies.
//!
//! The number of requests that a schedule holds is known, so good requests scheduled in a window less good
//! replies in it are exactly the growth of the queue. A healthy queue grows too, because a step begins with an empty
//! one.

use super::rules::Evidence;
use crate::record::{Limits, Repeat};
use crate::statistics::student::t_two_sided;

/// Minimum number of repeats whose differences give the random error.
const REPEATS_TELL: usize = 5;
/// Random error in standard errors, if there are fewer repeats.
const CHANCE: f64 = 4.0;
/// Probability of a false growth, in either direction.
const OUTSIDE: f64 = 0.01;
/// Mean growth over a window, in requests, of a healthy queue that begins a step empty.
const FILLS_BY: f64 = 5.0;
/// Standard deviation of the number in flight in a queue of one server at 95 % of its capacity.
const HEALTHY_IN_FLIGHT: f64 = 19.0;
/// Largest share of the requests of a window that a healthy queue may grow by.
const MOST_OF_WINDOW: f64 = 0.25;

/// Growth of the number of requests in flight, all windows together.
pub(super) struct Growth {
    /// Good requests scheduled in the windows.
    expected: f64,
    /// Growth, in requests.
    requests: f64,
    /// Growth within the random error, in requests.
    chance: f64,
    /// Growth that a healthy queue may show, in requests.
    healthy: f64,
    /// Growth that a healthy queue may show beside another sign of a queue, or if the growth is certain.
    healthy_beside: f64,
}

impl Growth {
    /// Computes the growth. With few repeats the error is that of two independent observations of a queue of one server
    /// with as many in flight, each with a standard deviation of `sqrt(L + L^2)`.
    pub(super) fn of(evidence: &Evidence<'_>, limits: &Limits) -> Self {
        let expected = evidence.scheduled() - evidence.failed();
        let count = evidence.steps.len() as f64;
        let grown = |step: &Repeat| {
            let failed: u64 = step.errors.values().sum();
            step.scheduled as f64 - failed as f64 - step.achieved_rps * step.window_s
        };
        let requests = evidence.sum(grown);
        let chance = if evidence.steps.len() < REPEATS_TELL {
            let in_flight = |step: &Repeat| step.mean_in_flight.max(0.0);
            CHANCE
                * evidence
                    .sum(|step| 2.0 * in_flight(step) * (1.0 + in_flight(step)))
                    .sqrt()
        } else {
            let squares = evidence.sum(|step| (grown(step) - requests / count).powi(2));
            t_two_sided(OUTSIDE, count - 1.0) * (squares / (count - 1.0) * count).sqrt()
        };
        let healthy = |per_window: f64| {
            let few = per_window.min(MOST_OF_WINDOW * expected / count);
            (limits.rate_error_share * expected).max(count * few)
        };
        let per_window = FILLS_BY + HEALTHY_IN_FLIGHT / count.sqrt();
        Self {
            expected,
            requests,
            chance,
            healthy: healthy(per_window),
            healthy_beside: healthy(per_window / 2.0),
        }
    }

    /// True if replies fall behind by more than those of a healthy server.
    pub(super) fn is_large(&self) -> bool {
        self.requests > self.healthy
    }

    /// Describes replies that fall behind: certainly, or by enough `beside` another sign of a queue.
    pub(super) fn behind(&self, beside: bool) -> Option<String> {
        let chance = if beside { 0.0 } else { self.chance };
        (self.requests - chance > self.healthy_beside).then(|| self.told())
    }

    /// Describes more replies than requests: the windows began with an earlier queue.
    pub(super) fn ahead(&self) -> Option<String> {
        (-self.requests - self.chance > self.healthy_beside).then(|| self.told())
    }

    fn told(&self) -> String {
        let percent = |requests: f64| 100.0 * requests / self.expected.max(1.0);
        format!(
            "achieved rate off by {:+.1} % (limit {:.1} %)",
            -percent(self.requests),
            percent(self.healthy_beside)
        )
    }
}
