//! Whether a point may be used, and if not, why.
//!
//! In: what the repeats of a point counted. Out: a [`Verdict`]. Pure: one rule, one function, one test or more.
//! Knows nothing of histograms, of how things were measured, nor of other points.

use crate::record::{ClosedLoopFigures, Fault, Interval, Limits, Repeat, Verdict, worst_start};
use crate::statistics::percentile::samples_needed;

/// How many standard deviations chance may explain: about one healthy point in 16,000 lies outside.
const CHANCE: f64 = 4.0;

/// What the rules look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Requests per second offered.
    pub offered_rps: f64,
    /// Requests in the percentiles.
    pub samples: u64,
    /// Latency p50, in microseconds, whatever the number of samples.
    pub p50_us: f64,
    /// Latency p99, in microseconds, whatever the number of samples.
    pub p99_us: f64,
    /// Send lag p99, in microseconds, whatever the number of samples.
    pub lag_p99_us: f64,
    /// How the latency drifted, in words.
    pub drifts: Vec<String>,
    /// The repeats.
    pub steps: Vec<StepEvidence>,
}

/// One repeat, as far as the rules need it.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEvidence {
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// Requests scheduled in the window.
    pub scheduled: u64,
    /// Of these, failed, by reason.
    pub failed: Vec<(String, u64)>,
    /// Of some reasons, an example.
    pub examples: Vec<(String, String)>,
    /// Good replies that arrived in the window.
    pub replies: f64,
    /// Whether every user was busy at some ticket.
    pub in_flight_limit_hit: bool,
    /// Mean number in flight.
    pub mean_in_flight: f64,
    /// Growth of the latency, in microseconds per second.
    pub backlog_slope: Interval,
    /// Why the reads into device memory were not what was asked for.
    pub device_shortfall: Option<String>,
    /// What foreign thing disturbed it.
    pub disturbed: Option<String>,
    /// Of several agents the one that may have begun furthest from the common start, and by how many microseconds.
    pub start_skew: Option<(String, f64)>,
}

impl From<&Repeat> for StepEvidence {
    fn from(repeat: &Repeat) -> Self {
        Self {
            window_s: repeat.window_s,
            scheduled: repeat.scheduled,
            failed: repeat
                .errors
                .iter()
                .map(|(reason, count)| (reason.clone(), *count))
                .collect(),
            examples: repeat.examples.clone().into_iter().collect(),
            replies: repeat.achieved_rps * repeat.window_s,
            in_flight_limit_hit: repeat.in_flight_limit_hit,
            mean_in_flight: repeat.mean_in_flight,
            backlog_slope: repeat.backlog_slope,
            device_shortfall: repeat
                .server
                .as_ref()
                .and_then(|server| server.device_reads.as_ref()?.shortfall()),
            disturbed: repeat.disturbed.clone(),
            start_skew: worst_start(&repeat.agents).map(|worst| (worst.agent.clone(), worst.skew_us())),
        }
    }
}

impl Evidence {
    fn sum(&self, of: impl Fn(&StepEvidence) -> f64) -> f64 {
        self.steps.iter().map(of).sum()
    }

    fn scheduled(&self) -> f64 {
        self.sum(|step| step.scheduled as f64)
    }

    fn failed(&self) -> f64 {
        self.sum(|step| step.failed.iter().map(|(_, count)| *count as f64).sum())
    }
}

/// The verdict. A growing backlog makes a point saturated, and what follows from one (too few replies, errors, the
/// in-flight limit and with it a late send) is listed as its symptoms. A late send without the in-flight limit is the
/// generator's own fault, and a disturbance that of neither, so that such a point is invalid even where its latency grows.
/// Everything else that fails makes it invalid.
#[must_use]
pub fn verdict(evidence: &Evidence, limits: &Limits) -> Verdict {
    judge(evidence, limits).0
}

/// The verdict, and the rules that it rests on.
#[must_use]
pub fn judge(evidence: &Evidence, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    let backlog = backlog_growing(evidence, limits);
    let limit_hit = in_flight_limit(evidence);
    let late = send_lag(evidence, limits);
    let generator_late = late.is_some() && limit_hit.is_none();
    let device = device_shortfall(evidence);
    let disturbed = disturbed(evidence);
    let skewed = start_skew(evidence, limits);
    let sound = device.is_none() && disturbed.is_none() && skewed.is_none();
    let saturated = backlog.is_some() && !generator_late && sound;
    let (faults, reasons): (Vec<Fault>, Vec<String>) = [
        (Fault::Disturbed, disturbed),
        (Fault::Device, device),
        (Fault::Skew, skewed),
        (Fault::Schedule, schedule_error(evidence, limits)),
        (Fault::Backlog, backlog),
        (Fault::Replies, reply_error(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::InFlight, limit_hit),
        (Fault::Late, late),
        (Fault::Drift, drifting(evidence, saturated)),
        (Fault::Samples, too_few_samples(evidence)),
    ]
    .into_iter()
    .filter_map(|(fault, reason)| Some((fault, reason?)))
    .unzip();
    let verdict = match (saturated, reasons.is_empty()) {
        (true, _) => Verdict::Saturated(reasons),
        (false, true) => Verdict::Valid,
        (false, false) => Verdict::Invalid(reasons),
    };
    (verdict, faults)
}

/// The verdict of a closed loop. It offers no rate, cannot grow a backlog, and sends when it sends: what is left are failures,
/// drift, disturbance and samples, and that users pause no longer than they were to.
#[must_use]
pub fn judge_closed_loop(
    evidence: &Evidence,
    figures: Option<ClosedLoopFigures>,
    limits: &Limits,
) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    invalid_for([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, figures.and_then(|figures| long_pauses(&figures, limits))),
        (Fault::Drift, drifting(evidence, false)),
        (Fault::Samples, too_few_samples(evidence)),
    ])
}

/// The verdict of one step of a journey: that of its requests, but for the rate, which those before it set. Where many never
/// came to it, it says nothing of all.
#[must_use]
pub fn judge_step(evidence: &Evidence, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    invalid_for([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Schedule, not_reached(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, send_lag(evidence, limits)),
        (Fault::Drift, drifting(evidence, false)),
        (Fault::Samples, too_few_samples(evidence)),
    ])
}

fn nothing_sent() -> (Verdict, Vec<Fault>) {
    let reasons = vec!["no requests in the window".to_owned()];
    (Verdict::Invalid(reasons), vec![Fault::Samples])
}

fn invalid_for<const N: usize>(found: [(Fault, Option<String>); N]) -> (Verdict, Vec<Fault>) {
    let found = found.into_iter().filter_map(|(fault, reason)| Some((fault, reason?)));
    let (faults, reasons): (Vec<Fault>, Vec<String>) = found.unzip();
    if reasons.is_empty() {
        (Verdict::Valid, faults)
    } else {
        (Verdict::Invalid(reasons), faults)
    }
}

/// A closed loop's counterpart of a late send: what a pause takes beyond the think time lowers the throughput, and that is not
/// the server's doing.
fn long_pauses(figures: &ClosedLoopFigures, limits: &Limits) -> Option<String> {
    let cycle_us = figures.mean_response_us + figures.mean_think_us;
    let limit = (limits.lag_share_of_p99 * cycle_us).max(limits.lag_us as f64);
    (figures.own_us() > limit).then(|| {
        format!(
            "users paused {:.1} ms longer than they were to on average, limit {:.1} ms: the load generator set the throughput",
            figures.own_us() / 1e3,
            limit / 1e3
        )
    })
}

/// A step that many journeys never came to was met by those that fared well so far.
fn not_reached(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let nominal = evidence.offered_rps * evidence.sum(|step| step.window_s);
    let reached = evidence.scheduled();
    let tolerance = (limits.error_share * nominal).max(CHANCE * nominal.sqrt() + 1.0);
    (nominal - reached > tolerance)
        .then(|| format!("only {reached:.0} of {nominal:.0} journeys came to this step: those before it failed"))
}

/// The bytes must have come by the way that was asked for: a figure of another way is no figure of this one, saturated or
/// not.
fn device_shortfall(evidence: &Evidence) -> Option<String> {
    evidence.steps.iter().find_map(|step| step.device_shortfall.clone())
}

/// Something foreign took from the machine what the server was to have: whatever came out may be its doing. The repeats
/// that are left here could not be done without ([`super::disturbance::counted`]).
fn disturbed(evidence: &Evidence) -> Option<String> {
    let disturbed: Vec<&String> = evidence
        .steps
        .iter()
        .filter_map(|step| step.disturbed.as_ref())
        .collect();
    let repeats = evidence.steps.len();
    disturbed
        .first()
        .map(|by| format!("disturbed in {} of {repeats} repeats: {by}", disturbed.len()))
}

/// One schedule sent by several agents is the plan's only where they began it together.
fn start_skew(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let starts = evidence.steps.iter().filter_map(|step| step.start_skew.as_ref());
    let over: Vec<_> = starts.filter(|(_, us)| *us > limits.start_skew_us as f64).collect();
    let (agent, us) = over.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "agents may not have begun together in {} of {} repeats: {agent} began within {:.1} ms of the common start (limit {:.1} ms)",
        over.len(),
        evidence.steps.len(),
        us / 1e3,
        limits.start_skew_us as f64 / 1e3
    ))
}

/// The schedule itself must have offered the rate. A Poisson schedule of `n` expected arrivals holds `n ± sqrt(n)`, so
/// that a short window differs from the nominal rate by far more than a percent without anything being wrong: only what
/// chance does not explain counts.
fn schedule_error(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let nominal = evidence.offered_rps * evidence.sum(|step| step.window_s);
    let tolerance = (limits.rate_error_share * nominal).max(CHANCE * nominal.sqrt() + 1.0);
    let scheduled = evidence.scheduled();
    ((scheduled - nominal).abs() > tolerance)
        .then(|| format!("the schedule held {scheduled:.0} requests where the rate asks for {nominal:.0}"))
}

/// Good replies in the window must be those scheduled in the window and not failed, within the limit.
///
/// The two differ on a healthy server too, by what is in flight at the window's edges: requests sent before it are
/// answered in it, and some sent in it are answered after. Both numbers are near the mean in flight `L` and scatter
/// like `sqrt(L)`, so that their difference has a standard deviation of `sqrt(2L)` per repeat; that much chance, and
/// one request per repeat for the cut itself, is allowed on top of nothing else.
fn reply_error(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let expected = evidence.scheduled() - evidence.failed();
    let replies = evidence.sum(|step| step.replies);
    let edges = CHANCE * (2.0 * evidence.sum(|step| step.mean_in_flight.max(0.0))).sqrt() + evidence.steps.len() as f64;
    let tolerance = (limits.rate_error_share * expected).max(edges);
    let error = replies - expected;
    (error.abs() > tolerance).then(|| {
        format!(
            "achieved rate off by {:+.1} % (limit {:.1} %)",
            100.0 * error / expected.max(1.0),
            100.0 * limits.rate_error_share
        )
    })
}

/// A backlog grows when, in more than half of the repeats, the latency certainly rises (its interval lies above zero)
/// and by an amount that matters: over the window by more than half of the median latency and more than the lag limit.
/// An open loop offered a share `x` more than the server can do gains `x` seconds of latency per second.
fn backlog_growing(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let matters = (0.5 * evidence.p50_us).max(limits.lag_us as f64);
    let growing: Vec<f64> = evidence
        .steps
        .iter()
        .filter(|step| step.backlog_slope.lo > 0.0 && step.backlog_slope.value * step.window_s > matters)
        .map(|step| step.backlog_slope.value)
        .collect();
    let repeats = evidence.steps.len();
    (2 * growing.len() > repeats).then(|| {
        let mean = growing.iter().sum::<f64>() / growing.len() as f64;
        format!(
            "backlog growing: latency rises by {:.0} ms per second in {} of {repeats} repeats",
            mean / 1e3,
            growing.len()
        )
    })
}

/// Failed requests above the plan's limit, named by reason.
fn error_share(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let (failed, scheduled) = (evidence.failed(), evidence.scheduled());
    let share = failed / scheduled;
    (share > limits.error_share).then(|| {
        let mut by_reason: Vec<(&str, u64)> = Vec::new();
        for (reason, count) in evidence.steps.iter().flat_map(|step| &step.failed) {
            match by_reason.iter_mut().find(|(known, _)| known == reason) {
                Some((_, sum)) => *sum += count,
                None => by_reason.push((reason, *count)),
            }
        }
        by_reason.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        let named: Vec<String> = by_reason
            .iter()
            .map(|(reason, count)| {
                let mut examples = evidence.steps.iter().flat_map(|step| &step.examples);
                let example = examples.find(|(of, _)| of == reason);
                let example = example.map_or_else(String::new, |(_, says)| format!(", as: {says}"));
                format!("{count} × {reason}{example}")
            })
            .collect();
        format!(
            "{:.2} % of the requests failed ({}; limit {:.2} %)",
            100.0 * share,
            named.join(", "),
            100.0 * limits.error_share
        )
    })
}

fn in_flight_limit(evidence: &Evidence) -> Option<String> {
    let hit = evidence.steps.iter().filter(|step| step.in_flight_limit_hit).count();
    (hit > 0).then(|| format!("in-flight limit hit in {hit} of {} repeats", evidence.steps.len()))
}

/// The generator's own lateness must not be what is reported: above both limits it is. Under an objective, what is small
/// beside its limit decides nothing.
fn send_lag(evidence: &Evidence, limits: &Limits) -> Option<String> {
    let of_latency = evidence.p99_us.max(limits.objective_us.unwrap_or(0.0));
    let limit = (limits.lag_share_of_p99 * of_latency).max(limits.lag_us as f64);
    (evidence.lag_p99_us > limit).then(|| {
        format!(
            "sent late: send lag p99 {:.1} ms, limit {:.1} ms",
            evidence.lag_p99_us / 1e3,
            limit / 1e3
        )
    })
}

/// What moves while it is measured has no percentile. Of a server that cannot keep up that is said already.
fn drifting(evidence: &Evidence, saturated: bool) -> Option<String> {
    (!saturated && !evidence.drifts.is_empty()).then(|| format!("drifts: {}", evidence.drifts.join(", ")))
}

/// Without a p95 a point says nothing of its tail. (A missing p99 shows as `n/a` instead.)
fn too_few_samples(evidence: &Evidence) -> Option<String> {
    let needed = samples_needed(0.95);
    (evidence.samples < needed).then(|| format!("too few samples: {} of {needed}", evidence.samples))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Exp1};

    /// 200 rps on a server that answers in about 5 ms, three windows of 5 s.
    fn healthy() -> Evidence {
        let step = StepEvidence {
            window_s: 5.0,
            scheduled: 1_000,
            failed: Vec::new(),
            examples: Vec::new(),
            replies: 1_000.0,
            in_flight_limit_hit: false,
            mean_in_flight: 1.0,
            backlog_slope: Interval {
                value: 10.0,
                lo: -90.0,
                hi: 110.0,
            },
            device_shortfall: None,
            disturbed: None,
            start_skew: None,
        };
        Evidence {
            offered_rps: 200.0,
            samples: 3_000,
            p50_us: 5_000.0,
            p99_us: 20_000.0,
            lag_p99_us: 300.0,
            drifts: Vec::new(),
            steps: vec![step; 3],
        }
    }

    fn judge(change: impl FnOnce(&mut Evidence)) -> Verdict {
        let mut evidence = healthy();
        change(&mut evidence);
        verdict(&evidence, &Limits::default())
    }

    #[track_caller]
    fn assert_invalid(verdict: &Verdict, reason: &str) {
        assert!(
            matches!(verdict, Verdict::Invalid(reasons) if reasons.len() == 1 && reasons[0].contains(reason)),
            "{verdict}"
        );
    }

    const GROWING: Interval = Interval {
        value: 50_000.0,
        lo: 45_000.0,
        hi: 55_000.0,
    };

    #[test]
    fn agents_that_may_not_have_begun_together_make_a_point_invalid() {
        let skewed = |us: f64| move |e: &mut Evidence| e.steps[1].start_skew = Some(("agent b:1".to_owned(), us));
        assert_eq!(judge(skewed(2_000.0)), Verdict::Valid);
        let found = judge(skewed(2_001.0));
        assert_invalid(&found, "in 1 of 3 repeats: agent b:1 began within 2.0 ms");
    }

    #[test]
    fn a_healthy_point_is_valid() {
        assert_eq!(judge(|_| ()), Verdict::Valid);
    }

    #[test]
    fn a_disturbed_point_is_invalid_and_not_saturated() {
        let by = "foreign processes used 46 % of the CPUs (limit 10 %)";
        let disturb = |e: &mut Evidence| e.steps[1].disturbed = Some(by.to_owned());
        let found = judge(disturb);
        assert_invalid(&found, &format!("disturbed in 1 of 3 repeats: {by}"));
        let growing = judge(|e| {
            disturb(e);
            e.steps.iter_mut().for_each(|step| step.backlog_slope = GROWING);
        });
        assert!(matches!(growing, Verdict::Invalid(_)), "{growing}");
    }

    #[test]
    fn a_closed_loop_is_not_held_against_a_rate() {
        let mut evidence = healthy();
        evidence.offered_rps = 0.0;
        evidence.lag_p99_us = 0.0;
        for step in &mut evidence.steps {
            (step.in_flight_limit_hit, step.replies, step.backlog_slope) = (true, 700.0, GROWING);
        }
        let figures = |own_us: f64| ClosedLoopFigures {
            ended_rps: 200.0,
            mean_response_us: 5_000.0,
            mean_pause_us: 2_000.0 + own_us,
            mean_think_us: 2_000.0,
        };
        let limits = Limits::default();
        let judge = |evidence: &Evidence, own_us| judge_closed_loop(evidence, Some(figures(own_us)), &limits);
        assert_eq!(judge(&evidence, 900.0), (Verdict::Valid, vec![]));
        let (verdict, faults) = judge(&evidence, 1_100.0);
        assert_eq!(faults, [Fault::Late]);
        assert_invalid(&verdict, "paused 1.1 ms longer");
        evidence.steps[0].failed = vec![("503".to_owned(), 100)];
        assert_eq!(judge(&evidence, 0.0).1, [Fault::Errors]);
    }

    #[test]
    fn a_step_that_few_journeys_came_to_says_nothing_of_all() {
        let limits = Limits::default();
        let mut evidence = healthy();
        assert_eq!(judge_step(&evidence, &limits), (Verdict::Valid, vec![]));
        for step in &mut evidence.steps {
            (step.scheduled, step.replies) = (500, 500.0);
        }
        let (verdict, faults) = judge_step(&evidence, &limits);
        assert_eq!(faults, [Fault::Schedule]);
        assert_invalid(&verdict, "only 1500 of 3000 journeys");
    }

    #[test]
    fn no_repeats_and_no_requests_are_invalid() {
        assert_invalid(&judge(|e| e.steps.clear()), "no requests");
        assert_invalid(
            &judge(|e| e.steps.iter_mut().for_each(|s| s.scheduled = 0)),
            "no requests",
        );
    }

    #[test]
    fn replies_missing_beyond_the_edges_are_a_rate_error() {
        assert_invalid(
            &judge(|e| e.steps.iter_mut().for_each(|s| s.replies = 985.0)),
            "off by -1.5 % (limit 1.0 %)",
        );
        assert_eq!(
            judge(|e| e.steps.iter_mut().for_each(|s| s.replies = 993.0)),
            Verdict::Valid
        );
        // Few requests: one more or fewer at the edge is more than a percent, and no fault.
        let few = |replies: f64| {
            judge(|e| {
                e.offered_rps = 8.0;
                e.samples = 120;
                e.steps
                    .iter_mut()
                    .for_each(|s| (s.scheduled, s.replies) = (40, replies));
            })
        };
        assert_eq!(few(38.5), Verdict::Valid);
        assert_invalid(&few(30.0), "achieved rate");
    }

    #[test]
    fn a_late_send_that_is_small_beside_the_objective_does_not_matter() {
        let late = |objective_us| {
            let mut evidence = healthy();
            (evidence.p99_us, evidence.lag_p99_us) = (10_000.0, 1_800.0);
            let limits = Limits {
                objective_us,
                ..Limits::default()
            };
            judge_faults(&evidence, &limits)
        };
        assert_eq!(late(None), [Fault::Late]);
        assert_eq!(late(Some(50_000.0)), []);
        assert_eq!(late(Some(15_000.0)), [Fault::Late]);
    }

    fn judge_faults(evidence: &Evidence, limits: &Limits) -> Vec<Fault> {
        super::judge(evidence, limits).1
    }

    #[test]
    fn wrong_replies_are_errors_with_an_example() {
        let verdict = judge(|e| {
            e.steps[1].failed = vec![("wrong-reply".to_owned(), 1_000)];
            e.steps[1].replies = 0.0;
            e.steps[1].examples = vec![("wrong-reply".to_owned(), "the reply is an error: `no`".to_owned())];
        });
        assert_invalid(&verdict, "1000 × wrong-reply, as: the reply is an error: `no`; limit");
    }

    #[test]
    fn failed_requests_are_not_counted_again_as_missing_replies() {
        let failed = |limit: f64| {
            let mut evidence = healthy();
            for step in &mut evidence.steps {
                (step.failed, step.replies) = (vec![("503".to_owned(), 30), ("timeout".to_owned(), 20)], 950.0);
            }
            verdict(
                &evidence,
                &Limits {
                    error_share: limit,
                    ..Limits::default()
                },
            )
        };
        assert_eq!(failed(0.1), Verdict::Valid);
        assert_invalid(
            &failed(0.01),
            "5.00 % of the requests failed (90 × 503, 60 × timeout; limit 1.00 %)",
        );
    }

    #[test]
    fn a_schedule_that_does_not_hold_the_rate_is_invalid() {
        let scheduled = |n: u64| {
            judge(|e| {
                for s in &mut e.steps {
                    (s.scheduled, s.replies) = (n, n as f64);
                }
            })
        };
        assert_invalid(
            &scheduled(900),
            "the schedule held 2700 requests where the rate asks for 3000",
        );
        assert_eq!(scheduled(950), Verdict::Valid, "chance explains 150 of 3,000");
    }

    #[test]
    fn late_sends_are_invalid_only_above_both_limits() {
        assert_invalid(&judge(|e| e.lag_p99_us = 2_500.0), "sent late");
        assert_eq!(
            judge(|e| e.lag_p99_us = 1_900.0),
            Verdict::Valid,
            "below a tenth of the p99"
        );
        assert_eq!(
            judge(|e| (e.p99_us, e.lag_p99_us) = (2_000.0, 900.0)),
            Verdict::Valid,
            "below a millisecond"
        );
    }

    #[test]
    fn a_growing_backlog_is_saturation() {
        let saturated = judge(|e| e.steps.iter_mut().for_each(|s| s.backlog_slope = GROWING));
        assert!(matches!(&saturated, Verdict::Saturated(why) if why[0].contains("50 ms per second in 3 of 3")));
        // Its consequences are symptoms, not faults of the measurement.
        let hit = judge(|e| {
            e.lag_p99_us = 90_000.0;
            for step in &mut e.steps {
                (step.backlog_slope, step.in_flight_limit_hit, step.replies) = (GROWING, true, 600.0);
            }
        });
        assert!(matches!(&hit, Verdict::Saturated(why) if why.len() == 4), "{hit}");
    }

    #[test]
    fn reads_by_another_way_than_was_asked_for_are_invalid_even_where_the_server_is_saturated() {
        let fallen_short = |slope: Interval| {
            judge(|e| {
                e.steps[1].device_shortfall = Some("GPUDirect Storage was asked for and …".to_owned());
                e.steps.iter_mut().for_each(|s| s.backlog_slope = slope);
            })
        };
        for slope in [Interval::default(), GROWING] {
            let verdict = fallen_short(slope);
            assert!(
                matches!(&verdict, Verdict::Invalid(why) if why[0].starts_with("GPUDirect Storage was asked for")),
                "{verdict}"
            );
        }
    }

    #[test]
    fn a_late_generator_is_no_finding_about_the_server() {
        let late = judge(|e| {
            e.lag_p99_us = 90_000.0;
            e.steps.iter_mut().for_each(|s| s.backlog_slope = GROWING);
        });
        assert!(matches!(&late, Verdict::Invalid(why) if why.len() == 2), "{late}");
    }

    #[test]
    fn what_drifts_is_not_valid_and_says_how_but_for_a_server_that_cannot_keep_up() {
        let drifting = |e: &mut Evidence| e.drifts = vec!["p50 rises from 20 ms to 183 ms over the repeats".to_owned()];
        assert_invalid(&judge(drifting), "drifts: p50 rises from 20 ms to 183 ms");
        let both = judge(|e| {
            drifting(e);
            e.steps.iter_mut().for_each(|s| s.backlog_slope = GROWING);
        });
        assert!(matches!(&both, Verdict::Saturated(why) if why.len() == 1), "{both}");
    }

    #[test]
    fn growth_by_chance_in_one_repeat_or_of_no_size_is_none() {
        assert_eq!(judge(|e| e.steps[0].backlog_slope = GROWING), Verdict::Valid);
        let small = Interval {
            value: 300.0,
            lo: 200.0,
            hi: 400.0,
        };
        assert_eq!(
            judge(|e| e.steps.iter_mut().for_each(|s| s.backlog_slope = small)),
            Verdict::Valid
        );
    }

    #[test]
    fn the_in_flight_limit_is_invalid_without_a_backlog() {
        assert_invalid(
            &judge(|e| e.steps[1].in_flight_limit_hit = true),
            "in-flight limit hit in 1 of 3",
        );
    }

    #[test]
    fn too_few_samples_are_invalid() {
        assert_invalid(&judge(|e| e.samples = 71), "too few samples: 71 of 72");
        assert_eq!(judge(|e| e.samples = 72), Verdict::Valid);
    }

    /// Healthy open-loop steps of an infinite-server queue, at rates and latencies where edges matter most: the rules
    /// about rates must let (nearly) all of them pass.
    #[test]
    fn healthy_steps_are_not_invalid_by_chance() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut invalid = 0;
        for run in 0..400 {
            let rate = [5.0, 40.0, 300.0][run % 3];
            let mean_s = [0.002, 0.05, 0.4][run / 3 % 3];
            let steps = (0..3).map(|_| queue(&mut rng, rate, mean_s, 4.0)).collect();
            let evidence = Evidence {
                offered_rps: rate,
                steps,
                ..healthy()
            };
            invalid += u32::from(verdict(&evidence, &Limits::default()) != Verdict::Valid);
        }
        assert!(invalid <= 1, "{invalid} of 400 healthy points judged invalid");
    }

    fn queue(rng: &mut ChaCha8Rng, rate: f64, mean_s: f64, window_s: f64) -> StepEvidence {
        let (warmup, mut at) = (2.0, 0.0);
        let (mut scheduled, mut replies, mut in_flight) = (0, 0.0, 0.0);
        loop {
            let gap: f64 = Exp1.sample(rng);
            at += gap / rate;
            if at >= warmup + window_s {
                break;
            }
            let service: f64 = Exp1.sample(rng);
            let done = at + service * mean_s;
            scheduled += u64::from(at >= warmup);
            replies += f64::from(u8::from(done >= warmup && done < warmup + window_s));
            in_flight += (done.min(warmup + window_s) - at.max(warmup)).max(0.0) / window_s;
        }
        StepEvidence {
            window_s,
            scheduled,
            replies,
            mean_in_flight: in_flight,
            ..healthy().steps[0].clone()
        }
    }

    proptest! {
        #[test]
        fn any_evidence_gets_a_verdict_and_every_refusal_a_reason(
            scheduled in 0_u64..2_000, failed in 0_u64..2_000, replies in 0.0_f64..3_000.0, rate in 0.1_f64..500.0,
            lag in 0.0_f64..1e6, slope in -1e6_f64..1e6, hit in any::<bool>(), samples in 0_u64..2_000,
        ) {
            let mut evidence = healthy();
            (evidence.offered_rps, evidence.lag_p99_us, evidence.samples) = (rate, lag, samples);
            for step in &mut evidence.steps {
                step.failed = vec![("timeout".to_owned(), failed.min(scheduled))];
                (step.scheduled, step.replies, step.in_flight_limit_hit) = (scheduled, replies, hit);
                step.backlog_slope = Interval { value: slope, lo: slope - 10.0, hi: slope + 10.0 };
            }
            match verdict(&evidence, &Limits::default()) {
                Verdict::Valid => {}
                Verdict::Saturated(why) | Verdict::Invalid(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}
