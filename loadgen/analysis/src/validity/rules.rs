//! Rules of validity, each a function that returns the fault in words, or `None`; and the growth of the number in flight, the sign of a
//! server that cannot keep up. In: evidence and limits. Pure.
//!
//! The number of requests that a schedule holds is known, so good requests scheduled in a window less good replies in it are exactly the
//! growth of the queue. A healthy queue grows too, because a step begins with an empty one.

use crate::record::{ClosedLoopFigures, Factors, Limits, Pool, Repeat, failures, worst_start};
use crate::statistics::mean;
use crate::statistics::percentile::BlockTable;
use crate::statistics::student::t_two_sided;
use std::borrow::Cow;

/// Fewest samples of a point: of 72 requests some are beyond the p95 with a probability of 97.5 %.
const MIN_SAMPLES: u64 = 72;

/// Maximum random deviation, in standard deviations: about one healthy point in 16,000 lies outside.
const RANDOM_SIGMAS: f64 = 4.0;

/// Inputs of the rules.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// Requests per second offered.
    pub offered_rps: f64,
    /// Standard deviation of the gaps between requests over their mean; 1 for a Poisson process.
    pub arrivals_cv: f64,
    /// Requests in the percentiles.
    pub samples: u64,
    /// Latency p50, in microseconds, for any number of samples.
    pub p50_us: f64,
    /// Latency p99, in microseconds, for any number of samples.
    pub p99_us: f64,
    /// Send lag p99, in microseconds, for any number of samples.
    pub lag_p99_us: f64,
    /// Drifts of the latency, in words.
    pub drifts: Vec<String>,
    /// Repeats of the point.
    pub steps: Cow<'a, [Repeat]>,
}

impl<'a> Evidence<'a> {
    /// Creates the evidence of some repeats, from tables of their latencies and send lags, without drifts.
    pub(crate) fn of(factors: &Factors, steps: &'a [Repeat], latency: &BlockTable, lag: &BlockTable) -> Self {
        let at = |table: &BlockTable, quantile: f64| table.pooled_quantile(quantile).unwrap_or(0) as f64;
        let gamma = factors.arrivals.strip_prefix("gamma(cv ");
        let cv: Option<f64> = gamma.and_then(|rest| rest.split(')').next()?.parse().ok());
        Self {
            offered_rps: factors.offered_rps,
            arrivals_cv: cv.unwrap_or(1.0),
            samples: latency.samples(),
            p50_us: at(latency, 0.5),
            p99_us: at(latency, 0.99),
            lag_p99_us: at(lag, 0.99),
            drifts: Vec::new(),
            steps: Cow::Borrowed(steps),
        }
    }

    pub(super) fn sum(&self, of: impl Fn(&Repeat) -> f64) -> f64 {
        self.steps.iter().map(of).sum()
    }

    /// Fixed connections of the repeats; empty if each user had its own.
    pub(super) fn pools(&self) -> impl Iterator<Item = Pool> {
        self.steps.iter().filter_map(|step| step.pool)
    }

    /// Random deviation of the number of requests of a schedule that holds `nominal` on average.
    fn random_requests(&self, nominal: f64) -> f64 {
        RANDOM_SIGMAS * self.arrivals_cv.max(1.0) * nominal.sqrt() + 1.0
    }

    pub(super) fn scheduled(&self) -> f64 {
        self.sum(|step| step.scheduled as f64)
    }

    pub(super) fn failed(&self) -> f64 {
        self.sum(|step| step.errors.values().sum::<u64>() as f64)
    }
}

/// Checks a closed loop's pauses, its counterpart of a late send: time beyond the think time lowers the throughput, and
/// is not the server's fault.
pub(super) fn long_pauses(figures: &ClosedLoopFigures, limits: &Limits) -> Option<String> {
    let cycle_us = figures.mean_response_us + figures.mean_think_us;
    let limit = (limits.lag_share_of_p99 * cycle_us).max(limits.lag_us as f64);
    (figures.own_us() > limit).then(|| {
        format!(
            "users paused {:.1} ms longer than planned on average, limit {:.1} ms: the load generator limited the throughput",
            figures.own_us() / 1e3,
            limit / 1e3
        )
    })
}

/// Checks the journeys that reached a step: if many did not, only the luckier ones were measured.
pub(super) fn not_reached(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let nominal = evidence.offered_rps * evidence.sum(|step| step.window_s);
    let reached = evidence.scheduled();
    let tolerance = (limits.error_share * nominal).max(evidence.random_requests(nominal));
    (nominal - reached > tolerance)
        .then(|| format!("only {reached:.0} of {nominal:.0} journeys reached this step: earlier steps failed"))
}

/// Checks that the bytes arrived by the requested path: a figure of another path does not describe this one, even if
/// saturated.
pub(super) fn device_shortfall(evidence: &Evidence<'_>) -> Option<String> {
    let mut steps = evidence.steps.iter();
    steps.find_map(|step| step.server.as_ref()?.device_reads.as_ref()?.shortfall())
}

/// Checks for foreign activity on the machine, which may have caused any result. The disturbed repeats that remain here
/// were needed ([`crate::record::counted`]).
pub(super) fn disturbed(evidence: &Evidence<'_>) -> Option<String> {
    let disturbed = || evidence.steps.iter().filter_map(|step| step.disturbed.as_ref());
    let (count, repeats) = (disturbed().count(), evidence.steps.len());
    let by = disturbed().next()?;
    Some(format!("disturbed in {count} of {repeats} repeats: {by}"))
}

/// Checks that several agents started together; otherwise their schedule is not the plan's.
pub(super) fn start_skew(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let worst = evidence.steps.iter().filter_map(|step| worst_start(&step.agents));
    let over = worst.filter(|start| start.skew_us() > limits.start_skew_us as f64);
    let over: Vec<_> = over.collect();
    let worst = over.iter().max_by(|a, b| a.skew_us().total_cmp(&b.skew_us()))?;
    Some(format!(
        "agents may not have started together in {} of {} repeats: {} started within {:.1} ms of the common start (limit {:.1} ms)",
        over.len(),
        evidence.steps.len(),
        worst.agent,
        worst.skew_us() / 1e3,
        limits.start_skew_us as f64 / 1e3
    ))
}

/// Checks that the schedule itself offered the rate. A Poisson schedule of `n` expected arrivals holds `n ± sqrt(n)`, one
/// of bursts `n ± cv sqrt(n)`, so a short window may differ from the nominal rate by far more than a percent without a
/// fault: only deviations beyond the random error count.
pub(super) fn schedule_error(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let nominal = evidence.offered_rps * evidence.sum(|step| step.window_s);
    let tolerance = (limits.rate_error_share * nominal).max(evidence.random_requests(nominal));
    let scheduled = evidence.scheduled();
    ((scheduled - nominal).abs() > tolerance)
        .then(|| format!("the schedule has {scheduled:.0} requests, but the rate requires {nominal:.0}"))
}

/// Checks for a growing backlog: in more than half of the repeats the latency certainly rises (its interval lies above
/// zero) and by an amount that matters, over the window by more than half of the median latency and more than the lag
/// limit. An open loop offered a share `x` more than the server can do gains `x` seconds of latency per second.
pub(super) fn backlog_growing(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let matters = (0.5 * evidence.p50_us).max(limits.lag_us as f64);
    let slopes = evidence.steps.iter().map(|step| (step.backlog_slope, step.window_s));
    let growing = slopes.filter(|(slope, window_s)| slope.lo > 0.0 && slope.value * window_s > matters);
    let growing: Vec<f64> = growing.map(|(slope, _)| slope.value).collect();
    let repeats = evidence.steps.len();
    (2 * growing.len() > repeats).then(|| {
        let (ms, count) = (mean(&growing) / 1e3, growing.len());
        format!("backlog growing: latency rises by {ms:.0} ms per second in {count} of {repeats} repeats")
    })
}

/// Checks the failed requests against the plan's limit, with their reasons.
pub(super) fn error_share(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let (failed, scheduled) = (evidence.failed(), evidence.scheduled());
    let share = failed / scheduled;
    (share > limits.error_share).then(|| {
        let named = |(reason, count, example): (&str, u64, Option<&str>)| {
            let example = example.map_or_else(String::new, |text| format!(", as: {text}"));
            format!("{count} × {reason}{example}")
        };
        let failures = failures(evidence.steps.iter()).into_iter();
        let named = failures.map(named).collect::<Vec<_>>().join(", ");
        let [failed, limit] = [share, limits.error_share].map(|share| 100.0 * share);
        format!("{failed:.2} % of the requests failed ({named}; limit {limit:.2} %)")
    })
}

pub(super) fn in_flight_limit(evidence: &Evidence<'_>) -> Option<String> {
    let hit = evidence.steps.iter().filter(|step| step.in_flight_limit_hit).count();
    let of = match evidence.pools().next() {
        Some(pool) => format!("all {} `connections` busy", pool.connections),
        None => "in-flight limit hit".to_owned(),
    };
    (hit > 0).then(|| format!("{of} in {hit} of {} repeats", evidence.steps.len()))
}

/// Checks the send lag, so that the generator's own lateness is not reported as latency: it must not exceed both
/// limits. Under an objective, a lag that is small beside its limit does not matter. A wait for one of a fixed number
/// of connections is not the generator's lag: only the rest of the lag counts.
pub(super) fn send_lag(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let of_latency = evidence.p99_us.max(limits.objective_us.unwrap_or(0.0));
    let limit = (limits.lag_share_of_p99 * of_latency).max(limits.lag_us as f64);
    let own_us = evidence.pools().map(|pool| pool.own_lag_p99_us).max();
    let lag_us = own_us.map_or(evidence.lag_p99_us, |us| us as f64);
    let [lag_ms, limit_ms] = [lag_us, limit].map(|us| us / 1e3);
    (lag_us > limit).then(|| format!("sent late: send lag p99 {lag_ms:.1} ms, limit {limit_ms:.1} ms"))
}

/// Checks for drift: latency that changes during the measurement has no percentile.
pub(super) fn drifting(evidence: &Evidence<'_>) -> Option<String> {
    (!evidence.drifts.is_empty()).then(|| format!("drifts: {}", evidence.drifts.join(", ")))
}

/// Checks the number of samples, because few requests show nothing of the tail. Failed requests count as measured.
pub(super) fn too_few_samples(evidence: &Evidence<'_>, limits: &Limits) -> Option<String> {
    let is_failing = evidence.failed() > limits.error_share * evidence.scheduled();
    if is_failing && evidence.scheduled() >= MIN_SAMPLES as f64 {
        return None;
    }
    (evidence.samples < MIN_SAMPLES).then(|| format!("too few samples: {} of {MIN_SAMPLES}", evidence.samples))
}

/// Minimum number of repeats whose differences give the random error.
const MIN_REPEATS: usize = 5;
/// Probability of a false growth, in either direction.
const OUTSIDE: f64 = 0.01;
/// Mean growth over a window, in requests, of a healthy queue that begins a step empty.
const MEAN_FILL: f64 = 5.0;
/// Standard deviation of the number in flight in a queue of one server at 95 % of its capacity.
const HEALTHY_IN_FLIGHT: f64 = 19.0;
/// Largest share of the requests of a window that a healthy queue may grow by.
const MAX_WINDOW_SHARE: f64 = 0.25;

/// Growth of the number of requests in flight, all windows together.
pub(super) struct Growth {
    /// Good requests scheduled in the windows.
    expected: f64,
    /// Growth, in requests.
    requests: f64,
    /// Growth within the random error, in requests.
    random_error: f64,
    /// Growth without another sign of a queue that shows nothing: random, or explained by a constant latency.
    unproven: f64,
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
        let failed = |step: &Repeat| step.errors.values().sum::<u64>() as f64;
        let grown = |step: &Repeat| step.scheduled as f64 - failed(step) - step.achieved_rps * step.window_s;
        let requests = evidence.sum(grown);
        let random_error = if evidence.steps.len() < MIN_REPEATS {
            let in_flight = |step: &Repeat| step.mean_in_flight.max(0.0);
            let variance = evidence.sum(|step| 2.0 * in_flight(step) * (1.0 + in_flight(step)));
            RANDOM_SIGMAS * variance.sqrt()
        } else {
            let squares = evidence.sum(|step| (grown(step) - requests / count).powi(2));
            t_two_sided(OUTSIDE, count - 1.0) * (squares / (count - 1.0) * count).sqrt()
        };
        // A growing queue is itself in flight, so that it never exceeds that error; but it exceeds the deviation of the
        // requests and replies of a server that is always busy. A stall at the end of a lone repeat does so too.
        let busy_error = match evidence.steps.len() {
            2..MIN_REPEATS => RANDOM_SIGMAS * (2.0 * expected).sqrt(),
            _ => f64::INFINITY,
        };
        let healthy = |per_window: f64| {
            let allowed = per_window.min(MAX_WINDOW_SHARE * expected / count);
            (limits.rate_error_share * expected).max(count * allowed)
        };
        let per_window = MEAN_FILL + HEALTHY_IN_FLIGHT / count.sqrt();
        Self {
            expected,
            requests,
            random_error,
            unproven: random_error.min(busy_error) + evidence.sum(|step| step.start_fill),
            healthy: healthy(per_window),
            healthy_beside: healthy(per_window / 2.0),
        }
    }

    /// True if replies fall behind by more than those of a healthy server.
    pub(super) fn is_large(&self) -> bool {
        self.requests > self.healthy
    }

    /// Describes replies that fall behind: certainly, or by enough beside another sign of a queue.
    pub(super) fn behind(&self, has_other_sign: bool) -> Option<String> {
        let unproven = if has_other_sign { 0.0 } else { self.unproven };
        (self.requests - unproven > self.healthy_beside).then(|| self.text())
    }

    /// Describes more replies than requests: the windows began with an earlier queue.
    pub(super) fn ahead(&self) -> Option<String> {
        (-self.requests - self.random_error > self.healthy_beside).then(|| self.text())
    }

    fn text(&self) -> String {
        let percent = |requests: f64| 100.0 * requests / self.expected.max(1.0);
        let (off, limit) = (-percent(self.requests), percent(self.healthy_beside));
        format!("achieved rate off by {off:+.1} % (limit {limit:.1} %)")
    }
}
