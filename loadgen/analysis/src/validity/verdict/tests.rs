//! Each rule alone, and their combinations.

use super::*;
use crate::record::{
    AgentStart, ClosedLoopFigures, DeviceReads, DriverFigures, Interval, Outcome, Pool, Repeat, Sample, ServerDelta,
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};

/// Evidence of 200 rps on a server that answers in about 5 ms, three windows of 5 s.
fn healthy() -> Evidence<'static> {
    let step = Repeat {
        window_s: 5.0,
        scheduled: 1_000,
        achieved_rps: 200.0,
        mean_in_flight: 1.0,
        backlog_slope: Interval {
            value: 10.0,
            lo: -90.0,
            hi: 110.0,
        },
        ..Repeat::empty()
    };
    Evidence {
        offered_rps: 200.0,
        arrivals_cv: 1.0,
        samples: 3_000,
        p50_us: 5_000.0,
        p99_us: 20_000.0,
        lag_p99_us: 300.0,
        drifts: Vec::new(),
        steps: vec![step; 3].into(),
    }
}

const CLOSED_LOOP: Driven = Driven::ClosedLoop {
    users: 1,
    think_time: String::new(),
};

fn step_of_journey() -> Driven {
    Driven::Journey {
        name: "journey".to_owned(),
        step: Some("step".to_owned()),
    }
}

fn verdict(evidence: &Evidence<'_>, limits: &Limits) -> Verdict {
    super::judge(evidence, limits).0
}

fn judge(change: impl FnOnce(&mut Evidence<'_>)) -> Verdict {
    let mut evidence = healthy();
    change(&mut evidence);
    verdict(&evidence, &Limits::default())
}

#[track_caller]
fn assert_saturated(verdict: &Verdict, reason: &str) {
    assert!(
        matches!(verdict, Verdict::Saturated(reasons) if reasons.len() == 1 && reasons[0].contains(reason)),
        "{verdict}"
    );
}

/// Makes latency grow in every repeat, and replies fall behind.
fn grow(evidence: &mut Evidence<'_>) {
    for step in evidence.steps.to_mut() {
        (step.backlog_slope, step.achieved_rps) = (GROWING, 180.0);
    }
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
    let skewed = |us: f64| {
        move |e: &mut Evidence<'_>| {
            let agent = "agent b:1".to_owned();
            let start = AgentStart {
                agent,
                offset_us: 0.0,
                uncertainty_us: us,
                late_us: 0.0,
                requests: 1,
            };
            e.steps.to_mut()[1].agents = vec![start];
        }
    };
    assert_eq!(judge(skewed(2_000.0)), Verdict::Valid);
    let found = judge(skewed(2_001.0));
    assert_invalid(&found, "in 1 of 3 repeats: agent b:1 started within 2.0 ms");
}

#[test]
fn a_healthy_point_is_valid() {
    assert_eq!(judge(|_| ()), Verdict::Valid);
}

#[test]
fn a_disturbed_point_is_invalid_and_not_saturated() {
    let by = "foreign processes used 46 % of the CPUs (limit 10 %)";
    let disturb = |e: &mut Evidence<'_>| e.steps.to_mut()[1].disturbed = Some(by.to_owned());
    let found = judge(disturb);
    assert_invalid(&found, &format!("disturbed in 1 of 3 repeats: {by}"));
    let growing = judge(|e| {
        disturb(e);
        grow(e);
    });
    assert!(matches!(growing, Verdict::Invalid(_)), "{growing}");
}

#[test]
fn a_closed_loop_is_not_held_against_a_rate() {
    let mut evidence = healthy();
    evidence.offered_rps = 0.0;
    evidence.lag_p99_us = 0.0;
    for step in evidence.steps.to_mut() {
        (step.in_flight_limit_hit, step.achieved_rps, step.backlog_slope) = (true, 140.0, GROWING);
    }
    let figures = |own_us: f64| ClosedLoopFigures {
        ended_rps: 200.0,
        mean_response_us: 5_000.0,
        mean_pause_us: 2_000.0 + own_us,
        mean_think_us: 2_000.0,
    };
    let limits = Limits::default();
    let mut judge = |change: fn(&mut Repeat), own_us| {
        for step in evidence.steps.to_mut() {
            change(step);
            step.driver = DriverFigures::ClosedLoop {
                closed_loop: figures(own_us),
                goose: None,
            };
        }
        judge_driven(Some(&CLOSED_LOOP), &evidence, &limits)
    };
    let unchanged = |_: &mut Repeat| ();
    assert_eq!(judge(unchanged, 900.0), (Verdict::Valid, vec![]));
    let (verdict, faults) = judge(unchanged, 1_100.0);
    assert_eq!(faults, [Fault::Late]);
    assert_invalid(&verdict, "paused 1.1 ms longer");
    let failed = |step: &mut Repeat| step.errors = [("503".to_owned(), 100)].into();
    assert_eq!(judge(failed, 0.0).1, [Fault::Errors]);
}

#[test]
fn a_step_that_few_journeys_came_to_says_nothing_of_all() {
    let limits = Limits::default();
    let mut evidence = healthy();
    let step = step_of_journey();
    assert_eq!(judge_driven(Some(&step), &evidence, &limits), (Verdict::Valid, vec![]));
    for step in evidence.steps.to_mut() {
        (step.scheduled, step.achieved_rps) = (500, 100.0);
    }
    let (verdict, faults) = judge_driven(Some(&step), &evidence, &limits);
    assert_eq!(faults, [Fault::Schedule]);
    assert_invalid(&verdict, "only 1500 of 3000 journeys");
}

#[test]
fn no_repeats_and_no_requests_are_invalid() {
    assert_invalid(&judge(|e| e.steps.to_mut().clear()), "no requests");
    assert_invalid(
        &judge(|e| e.steps.to_mut().iter_mut().for_each(|s| s.scheduled = 0)),
        "no requests",
    );
}

#[test]
fn replies_that_fall_behind_are_saturation_and_those_of_an_earlier_queue_are_not() {
    let replies = |each: [f64; 6]| {
        judge(|e| {
            e.steps = vec![e.steps[0].clone(); 6].into();
            e.samples = 6_000;
            e.steps
                .to_mut()
                .iter_mut()
                .zip(each)
                .for_each(|(s, replies)| s.achieved_rps = replies / s.window_s);
        })
    };
    assert_saturated(&replies([950.0, 955.0, 945.0, 950.0, 952.0, 948.0]), "off by -5.0 %");
    assert_invalid(
        &replies([1_050.0, 1_055.0, 1_045.0, 1_050.0, 1_052.0, 1_048.0]),
        "off by +5.0 %",
    );
    assert_eq!(replies([993.0; 6]), Verdict::Valid);
    assert_eq!(
        replies([850.0, 1_010.0, 1_000.0, 930.0, 1_020.0, 990.0]),
        Verdict::Valid,
        "chance"
    );
    // Few repeats do not show a growing queue by their replies alone, but they do beside another sign.
    let few = |e: &mut Evidence<'_>| {
        e.steps
            .to_mut()
            .iter_mut()
            .for_each(|s| (s.achieved_rps, s.mean_in_flight) = (190.0, 30.0));
    };
    assert_eq!(judge(few), Verdict::Valid);
    let drifting = judge(|e| {
        few(e);
        e.drifts = vec!["p50 rises".to_owned()];
    });
    assert_saturated(&drifting, "off by -5.0 %");
    let full = judge(|e| {
        few(e);
        e.steps.to_mut()[0].in_flight_limit_hit = true;
    });
    assert!(matches!(full, Verdict::Saturated(_)), "{full}");
    // Few requests: one more or fewer at the edge is more than a percent, and no fault.
    let slow = judge(|e| {
        e.offered_rps = 8.0;
        e.samples = 120;
        e.steps
            .to_mut()
            .iter_mut()
            .for_each(|s| (s.scheduled, s.achieved_rps) = (40, 7.7));
    });
    assert_eq!(slow, Verdict::Valid);
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

fn judge_faults(evidence: &Evidence<'_>, limits: &Limits) -> Vec<Fault> {
    super::judge(evidence, limits).1
}

#[test]
fn wrong_replies_are_errors_with_an_example() {
    let verdict = judge(|e| {
        e.steps.to_mut()[1].errors = [("wrong-reply".to_owned(), 1_000)].into();
        e.steps.to_mut()[1].achieved_rps = 0.0;
        e.steps.to_mut()[1].examples = [("wrong-reply".to_owned(), "the reply is an error: `no`".to_owned())].into();
    });
    assert_saturated(&verdict, "1000 × wrong-reply, as: the reply is an error: `no`; limit");
}

#[test]
fn failed_requests_are_not_counted_again_as_missing_replies() {
    let failed = |limit: f64| {
        let mut evidence = healthy();
        for step in evidence.steps.to_mut() {
            step.errors = [("503".to_owned(), 30), ("timeout".to_owned(), 20)].into();
            step.achieved_rps = 190.0;
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
    assert_saturated(
        &failed(0.01),
        "5.00 % of the requests failed (90 × 503, 60 × timeout; limit 1.00 %)",
    );
}

#[test]
fn failures_are_the_servers_in_spite_of_a_late_send_and_unknown_on_a_disturbed_machine() {
    let failed = |e: &mut Evidence<'_>| {
        for step in e.steps.to_mut() {
            (step.errors, step.achieved_rps) = ([("503".to_owned(), 1_000)].into(), 0.0);
        }
        e.samples = 0;
    };
    assert_saturated(&judge(failed), "100.00 % of the requests failed");
    let late = judge(|e| {
        failed(e);
        e.lag_p99_us = 90_000.0;
    });
    assert!(matches!(&late, Verdict::Saturated(why) if why.len() == 2), "{late}");
    let disturbed = judge(|e| {
        failed(e);
        e.steps.to_mut()[0].disturbed = Some("a compiler ran".to_owned());
    });
    assert!(
        matches!(&disturbed, Verdict::Invalid(why) if why.len() == 2),
        "{disturbed}"
    );
    let mut evidence = healthy();
    failed(&mut evidence);
    for driven in [CLOSED_LOOP, step_of_journey()] {
        let (verdict, faults) = judge_driven(Some(&driven), &evidence, &Limits::default());
        assert!(matches!(verdict, Verdict::Saturated(_)), "{verdict}");
        assert_eq!(faults, [Fault::Errors]);
    }
}

#[test]
fn a_schedule_that_does_not_hold_the_rate_is_invalid() {
    let scheduled = |n: u64| {
        judge(|e| {
            for s in e.steps.to_mut() {
                (s.scheduled, s.achieved_rps) = (n, n as f64 / s.window_s);
            }
        })
    };
    assert_invalid(
        &scheduled(900),
        "the schedule has 2700 requests, but the rate requires 3000",
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
    let saturated = judge(grow);
    assert!(matches!(&saturated, Verdict::Saturated(why) if why[0].contains("50 ms per second in 3 of 3")));
    // Its consequences are symptoms, not faults of the measurement.
    let hit = judge(|e| {
        e.lag_p99_us = 90_000.0;
        for step in e.steps.to_mut() {
            (step.backlog_slope, step.in_flight_limit_hit, step.achieved_rps) = (GROWING, true, 120.0);
        }
    });
    assert!(matches!(&hit, Verdict::Saturated(why) if why.len() == 4), "{hit}");
}

#[test]
fn replies_far_behind_are_saturation_in_few_repeats_and_a_latency_beyond_the_warm_up_is_none() {
    // A server that answers the newest first: the latency of most requests does not grow.
    let behind = |repeats: usize, start_fill: f64| {
        judge(|e| {
            let step = Repeat {
                achieved_rps: 120.0,
                mean_in_flight: 200.0,
                start_fill,
                ..e.steps[0].clone()
            };
            e.steps = vec![step; repeats].into();
        })
    };
    for repeats in [2, 3, 10] {
        assert_saturated(&behind(repeats, 0.0), "achieved rate off by -40.0 %");
        assert_eq!(behind(repeats, 400.0), Verdict::Valid);
    }
}

#[test]
fn a_plans_own_connections_may_all_be_busy_but_the_generator_may_not_be_late() {
    let pooled = |own_lag_p99_us, slope: Interval| {
        judge(|e| {
            e.lag_p99_us = 90_000.0;
            for step in e.steps.to_mut() {
                step.in_flight_limit_hit = true;
                step.backlog_slope = slope;
                step.achieved_rps = if slope == GROWING { 120.0 } else { 200.0 };
                step.pool = Some(Pool {
                    connections: 16,
                    own_lag_p99_us,
                });
            }
        })
    };
    let flat = healthy().steps[0].backlog_slope;
    assert_eq!(pooled(1_900, flat), Verdict::Valid);
    assert_invalid(&pooled(2_500, flat), "sent late: send lag p99 2.5 ms");
    let saturated = pooled(300, GROWING);
    assert!(
        matches!(&saturated, Verdict::Saturated(why) if why.iter().any(|why| why.contains("all 16 `connections` busy"))),
        "{saturated}"
    );
    assert!(matches!(pooled(2_500, GROWING), Verdict::Invalid(_)));
}

#[test]
fn reads_by_another_way_than_was_asked_for_are_invalid_even_where_the_server_is_saturated() {
    let fallen_short = |slope: Interval| {
        judge(|e| {
            let device_reads = DeviceReads {
                path: "gds".to_owned(),
                requests: 1.0,
                ..DeviceReads::default()
            };
            e.steps.to_mut()[1].server = Some(ServerDelta {
                device_reads: Some(device_reads),
                ..ServerDelta::default()
            });
            e.steps.to_mut().iter_mut().for_each(|s| s.backlog_slope = slope);
        })
    };
    for slope in [Interval::default(), GROWING] {
        let verdict = fallen_short(slope);
        assert!(
            matches!(&verdict, Verdict::Invalid(why) if why[0].starts_with("GPUDirect Storage was requested")),
            "{verdict}"
        );
    }
}

#[test]
fn a_late_generator_is_no_finding_about_the_server() {
    let late = judge(|e| {
        e.lag_p99_us = 90_000.0;
        grow(e);
    });
    assert!(matches!(&late, Verdict::Invalid(why) if why.len() == 3), "{late}");
}

#[test]
fn what_drifts_is_not_valid_and_says_how_but_for_a_server_that_cannot_keep_up() {
    let drifting = |e: &mut Evidence<'_>| e.drifts = vec!["p50 rises from 20 ms to 183 ms over the repeats".to_owned()];
    assert_invalid(&judge(drifting), "drifts: p50 rises from 20 ms to 183 ms");
    let both = judge(|e| {
        drifting(e);
        grow(e);
    });
    assert!(
        matches!(&both, Verdict::Saturated(why) if why.iter().all(|why| !why.contains("drifts"))),
        "{both}"
    );
}

#[test]
fn growth_by_chance_in_one_repeat_or_of_no_size_is_none() {
    assert_eq!(judge(|e| e.steps.to_mut()[0].backlog_slope = GROWING), Verdict::Valid);
    let small = Interval {
        value: 300.0,
        lo: 200.0,
        hi: 400.0,
    };
    assert_eq!(
        judge(|e| e.steps.to_mut().iter_mut().for_each(|s| s.backlog_slope = small)),
        Verdict::Valid
    );
}

#[test]
fn a_schedule_of_bursts_may_hold_more_or_fewer_requests() {
    let scheduled = |arrivals_cv: f64| {
        judge(|e| {
            e.arrivals_cv = arrivals_cv;
            for step in e.steps.to_mut() {
                (step.scheduled, step.achieved_rps) = (800, 160.0);
            }
        })
    };
    assert_invalid(
        &scheduled(1.0),
        "the schedule has 2400 requests, but the rate requires 3000",
    );
    assert_eq!(scheduled(3.0), Verdict::Valid);
}

#[test]
fn the_in_flight_limit_is_invalid_without_a_backlog() {
    assert_invalid(
        &judge(|e| e.steps.to_mut()[1].in_flight_limit_hit = true),
        "in-flight limit hit in 1 of 3",
    );
}

#[test]
fn too_few_samples_are_invalid() {
    assert_invalid(&judge(|e| e.samples = 71), "too few samples: 71 of 72");
    assert_eq!(judge(|e| e.samples = 72), Verdict::Valid);
}

/// Healthy open-loop steps of an infinite-server queue, at rates and latencies at which edges matter most: the rules
/// about rates must pass (nearly) all of them.
#[test]
fn healthy_steps_are_not_invalid_by_chance() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut invalid = 0;
    for run in 0..400 {
        let rate = [5.0, 40.0, 300.0][run % 3];
        let mean_s = [0.002, 0.05, 0.4][run / 3 % 3];
        let steps: Vec<Repeat> = (0..3).map(|_| queue(&mut rng, rate, mean_s, 4.0)).collect();
        let evidence = Evidence {
            offered_rps: rate,
            steps: steps.into(),
            ..healthy()
        };
        invalid += u32::from(verdict(&evidence, &Limits::default()) != Verdict::Valid);
    }
    assert!(invalid <= 1, "{invalid} of 400 healthy points judged invalid");
}

fn queue(rng: &mut ChaCha8Rng, rate: f64, mean_s: f64, window_s: f64) -> Repeat {
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
    Repeat {
        window_s,
        scheduled,
        achieved_rps: replies / window_s,
        mean_in_flight: in_flight,
        ..healthy().steps[0].clone()
    }
}

/// Creates a step at 300/s on one server with exponential service that begins empty, with its latencies.
fn one_server(rng: &mut ChaCha8Rng, utilisation: f64, window_s: f64) -> (Repeat, Vec<u64>) {
    let (rate, warmup_s) = (300.0, 0.2);
    let spans = [(0.0, warmup_s), (warmup_s, window_s)];
    let mut due: Vec<f64> = spans
        .iter()
        .flat_map(|&(from, length)| std::iter::repeat_n((from, length), (rate * length).round() as usize))
        .map(|(from, length)| from + length * rng.random_range(0.0..1.0))
        .collect();
    due.sort_by(f64::total_cmp);
    let (mut free, mut samples, mut replies) = (0.0_f64, Vec::new(), 0);
    for due in due {
        let service: f64 = Exp1.sample(rng);
        free = free.max(due) + service * utilisation / rate;
        replies += u32::from(free >= warmup_s && free < warmup_s + window_s);
        samples.push(Sample {
            due_us: (1e6 * due) as u64,
            sent_us: (1e6 * due) as u64,
            done_us: (1e6 * free) as u64,
            outcome: Outcome::Ok,
            timings: None,
        });
    }
    let window = (1e6 * warmup_s) as u64..(1e6 * (warmup_s + window_s)) as u64;
    let mean_in_flight = crate::validity::laws::by_stays(&samples, &window);
    samples.retain(|sample| sample.due_us >= window.start);
    let step = Repeat {
        window_s,
        scheduled: samples.len() as u64,
        achieved_rps: f64::from(replies) / window_s,
        mean_in_flight,
        backlog_slope: crate::backlog_slope(&samples),
        ..healthy().steps[0].clone()
    };
    (step, samples.iter().map(Sample::latency_us).collect())
}

/// `tierlab-dev coverage` has the whole table, drifts included.
#[test]
fn a_queue_at_95_percent_is_valid_and_one_at_105_percent_is_saturated() {
    for (repeats, window_s) in [(10, 1.5), (3, 5.0)] {
        let verdicts = |utilisation: f64| {
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let mut count = [0_u32; 3];
            for _ in 0..200 {
                let (steps, latencies): (Vec<Repeat>, Vec<Vec<u64>>) = (0..repeats)
                    .map(|_| one_server(&mut rng, utilisation, window_s))
                    .unzip();
                let mut latencies = latencies.concat();
                latencies.sort_unstable();
                let evidence = Evidence {
                    offered_rps: 300.0,
                    samples: latencies.len() as u64,
                    p50_us: latencies[latencies.len() / 2] as f64,
                    steps: steps.into(),
                    ..healthy()
                };
                count[match verdict(&evidence, &Limits::default()) {
                    Verdict::Valid => 0,
                    Verdict::Saturated(_) => 1,
                    Verdict::Invalid(_) => 2,
                }] += 1;
            }
            count
        };
        let [valid, ..] = verdicts(0.95);
        // 95 %, less two standard deviations of 200 trials.
        assert!(valid >= 184, "{repeats} × {window_s} s: {valid} of 200 are valid");
        let [_, saturated, invalid] = verdicts(1.05);
        assert!(
            invalid <= 2 && saturated >= 170,
            "{saturated} of 200 are saturated, {invalid} invalid"
        );
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
        for step in evidence.steps.to_mut() {
            step.errors = [("timeout".to_owned(), failed.min(scheduled))].into();
            (step.scheduled, step.achieved_rps, step.in_flight_limit_hit) = (scheduled, replies / step.window_s, hit);
            step.backlog_slope = Interval { value: slope, lo: slope - 10.0, hi: slope + 10.0 };
        }
        match verdict(&evidence, &Limits::default()) {
            Verdict::Valid => {}
            Verdict::Saturated(why) | Verdict::Invalid(why) => prop_assert!(!why.is_empty()),
        }
    }
}
