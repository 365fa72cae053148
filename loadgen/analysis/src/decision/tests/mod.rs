//! Tests of the rule with small hand-made evidence.

mod evidence;

use super::answer::order;
use super::highest_rates::highest_rates;
use super::lab::{Lab, LabVerdict};
use super::rate_points::steps_for_p99;
use super::{Candidate, Next, Phase, Probe, StepEvidence, StopReason, Time, next, why};
use crate::record::{
    AnswerOutcome, CostTerms, Demand, MeetsObjective, Minimise, Mode, Objective, Percentile, Purpose, Question,
};
use proptest::prelude::*;

const TIME: Time = Time {
    spent_s: 0.0,
    step_s: 2.0,
};

/// p99 below 40 ms at 700/s, instances filled to 70 %: the rates that matter are 500, 333, 250, …
fn question() -> Question {
    Question {
        objectives: vec![Objective::Percentile {
            percentile: Percentile::P99,
            limit_us: 40_000.0,
        }],
        error_share: 0.001,
        demand: Some(Demand {
            average_rps: 350.0,
            peak_rps: 700.0,
        }),
        minimise: Minimise::UsdPerMonth,
        mode: Mode::Realtime,
        batch_size: 1,
        budget_s: 1_000.0,
        confidence: 0.95,
        tie: 0.05,
        utilisation: 0.7,
        least_instances: 2,
        highest_rps: 600.0,
    }
}

fn step(rps: f64, slow_share: f64) -> StepEvidence {
    StepEvidence {
        rps,
        purpose: Purpose::Explore,
        requests: 1_000.0,
        slow: vec![(1_000.0 * slow_share).round()],
        failed: 0.0,
        dependence: 1.0,
        usable: Ok(()),
        saturated: slow_share > 0.5,
        tier_requests_per_inference: Some(1.0),
        tier_bytes_per_inference: Some(100.0),
        quantile_us: vec![if slow_share > 0.01 { 80_000.0 } else { 20_000.0 }],
        block: 0,
    }
}

fn candidate(name: &str, usd_per_hour: f64, steps: &[(f64, f64, usize)]) -> Candidate {
    let repeated = steps
        .iter()
        .flat_map(|&(rps, slow, times)| std::iter::repeat_n(step(rps, slow), times));
    Candidate {
        variant: name.into(),
        terms: Some(CostTerms {
            usd_per_instance_hour: usd_per_hour,
            ..CostTerms::default()
        }),
        steps: repeated.collect(),
    }
}

fn block(next: Next) -> (Phase, Vec<Probe>) {
    match next {
        Next::Block { phase, probes } => (phase, probes),
        Next::Stop(reason) => panic!("{reason}"),
    }
}

/// Two candidates, the first of which is certainly cheaper.
fn settled() -> Vec<Candidate> {
    vec![
        candidate("a", 1.0, &[(500.0, 0.0, 20)]),
        candidate("b", 1.0, &[(500.0, 0.9, 6), (250.0, 0.0, 10)]),
    ]
}

#[test]
fn it_scouts_and_then_asks_where_a_step_tells_most() {
    let mut all = vec![candidate("a", 1.0, &[]), candidate("b", 1.0, &[])];
    let (phase, probes) = block(next(&question(), &all, &TIME));
    let low = probes[0].rps;
    assert!(phase == Phase::Scout && probes.len() == 2 && probes.iter().all(|probe| probe.rps < 130.0));
    for candidate in &mut all {
        candidate.steps.push(step(low, 0.0));
    }
    let (phase, probes) = block(next(&question(), &all, &TIME));
    assert_eq!(phase, Phase::Decide);
    assert!(
        !probes.is_empty() && probes.iter().all(|probe| probe.rps > low && probe.rps <= 4.0 * low),
        "{probes:?}"
    );
}

#[test]
fn it_decides_between_the_leader_and_its_rival_then_confirms_on_fresh_steps() {
    let mut open = vec![
        candidate("a", 1.0, &[(31.25, 0.0, 1), (500.0, 0.0, 1)]),
        candidate("b", 1.0, &[(31.25, 0.0, 1), (250.0, 0.0, 1), (500.0, 0.9, 1)]),
        candidate("dear", 50.0, &[(31.25, 0.0, 1), (500.0, 0.0, 1)]),
    ];
    // Requests in bursts: one step is weak evidence.
    for step in open.iter_mut().flat_map(|candidate| &mut candidate.steps) {
        step.dependence = 40.0;
    }
    let (phase, probes) = block(next(&question(), &open, &TIME));
    assert!(phase == Phase::Decide && !probes.is_empty(), "{probes:?}");
    assert!(
        probes
            .iter()
            .all(|probe| probe.candidate != 2 && probe.purpose == Purpose::Explore),
        "{probes:?}"
    );

    let mut all = settled();
    let (phase, probes) = block(next(&question(), &all, &TIME));
    assert!(phase == Phase::Confirm && probes.len() == 3, "{probes:?}");
    let confirm = probes[0];
    assert!(confirm.candidate == 0 && confirm.purpose == Purpose::Confirm);
    let fresh = |slow: f64| StepEvidence {
        purpose: Purpose::Confirm,
        ..step(confirm.rps, slow)
    };
    all[0].steps.extend(vec![fresh(0.0); 3]);
    // Each of the two instances carries 350/s of 700/s.
    let is_shown = |probe: &Probe| probe.candidate == 0 && probe.rps == 350.0;
    let (phase, probes) = block(next(&question(), &all, &TIME));
    assert!(
        phase == Phase::AtDemand && probes.len() == 3 && probes.iter().all(is_shown),
        "{probes:?}"
    );
    assert_eq!(probes[0].purpose, Purpose::Confirm);
    let at_demand = StepEvidence {
        rps: 350.0,
        ..fresh(0.0)
    };
    all[0].steps.extend(vec![at_demand; 3]);
    assert_eq!(block(next(&question(), &all, &TIME)).0, Phase::Charts);
    let mut otherwise = settled();
    otherwise[0].steps.extend(vec![fresh(0.9); 3]);
    let (phase, probes) = block(next(&question(), &otherwise, &TIME));
    assert!(
        phase == Phase::Decide && probes[0].candidate == 0 && probes[0].rps == confirm.rps,
        "{probes:?}"
    );
}

#[test]
fn a_p99_is_measured_until_it_can_be_printed() {
    let steps = |rps: f64, requests: f64, count: usize| {
        let step = StepEvidence {
            requests,
            ..step(rps, 0.0)
        };
        vec![step; count]
    };
    let measured = [steps(214.0, 450.0, 2), steps(300.0, 450.0, 16), steps(429.0, 10.0, 7)].concat();
    // 10 of 1,000 requests lie beyond it.
    assert_eq!(steps_for_p99(&measured, 300.0), 3);
    assert_eq!(steps_for_p99(&measured, 429.0), 0, "100 steps are too many");
    assert_eq!(steps_for_p99(&measured, 100.0), 0);
    // Unusable steps show nothing.
    let disturbed: Vec<StepEvidence> = steps(250.0, 450.0, 3)
        .into_iter()
        .map(|step| StepEvidence {
            usable: Err("foreign load".into()),
            ..step
        })
        .collect();
    assert_eq!(steps_for_p99(&disturbed, 250.0), 0);
}

#[test]
fn it_stops_where_time_does_and_where_none_meets() {
    let spent = Time { spent_s: 999.0, ..TIME };
    let open = vec![
        candidate("a", 1.0, &[(31.25, 0.0, 1)]),
        candidate("b", 1.0, &[(31.25, 0.0, 1)]),
    ];
    assert_eq!(next(&question(), &open, &spent), Next::Stop(StopReason::Budget));
    // Decided, but there is no time to confirm it.
    assert_eq!(next(&question(), &settled(), &spent), Next::Stop(StopReason::Budget));
    // While the answer is open, time to confirm is reserved.
    let scarce = Time {
        spent_s: 1_000.0 - 2.0 * 4.0,
        ..TIME
    };
    assert_eq!(block(next(&question(), &open, &scarce)).1.len(), 1);
    let scarcer = Time {
        spent_s: 1_000.0 - 2.0 * 3.0,
        ..TIME
    };
    assert_eq!(next(&question(), &open, &scarcer), Next::Stop(StopReason::Budget));
    let low = Lab::new(&question(), &open).rates[0];
    let none = vec![
        candidate("a", 1.0, &[(low, 0.9, 6)]),
        candidate("b", 1.0, &[(low, 0.9, 6)]),
    ];
    assert_eq!(next(&question(), &none, &TIME), Next::Stop(StopReason::NoneMeets));
}

#[test]
fn a_rate_tried_in_vain_three_times_is_left() {
    let none = [candidate("a", 1.0, &[])];
    let low = block(next(&question(), &none, &TIME)).1[0].rps;
    let disturbed = StepEvidence {
        usable: Err("foreign load".into()),
        ..step(low, 0.0)
    };
    let mut all = vec![candidate("a", 1.0, &[(low, 0.0, 1)]), candidate("b", 1.0, &[])];
    all[1].steps = vec![disturbed.clone(); 2];
    let (phase, probes) = block(next(&question(), &all, &TIME));
    assert!(phase == Phase::Scout && probes.len() == 1 && probes[0].candidate == 1);
    all[1].steps.push(disturbed);
    let (phase, probes) = block(next(&question(), &all, &TIME));
    assert!(
        phase == Phase::Decide && probes.iter().all(|probe| probe.candidate == 0 || probe.rps != low),
        "{probes:?}"
    );
}

#[test]
fn a_rate_tried_in_vain_is_tried_again_after_steps_of_other_rates() {
    let question = question();
    let mut all = [candidate("a", 1.0, &[])];
    let rates = Lab::new(&question, &all).rates;
    let (low, high) = (rates[0], *rates.last().unwrap());
    let disturbed = StepEvidence {
        usable: Err("foreign load".into()),
        ..step(high, 0.0)
    };
    let is_stuck = |all: &[Candidate]| Lab::new(&question, all).point_at(0, high).unwrap().is_stuck();
    all[0].steps = vec![disturbed.clone(); 3];
    all[0].steps.extend(vec![step(low, 0.0); 5]);
    assert!(is_stuck(&all));
    all[0].steps.push(step(low, 0.0));
    assert!(!is_stuck(&all));
    // Each further attempt in vain takes more of them.
    all[0].steps.push(disturbed);
    all[0].steps.extend(vec![step(low, 0.0); 7]);
    assert!(is_stuck(&all));
    all[0].steps.push(step(low, 0.0));
    assert!(!is_stuck(&all));
}

#[test]
fn bounds_hold_below_and_above_and_costs_change_with_instances() {
    let all = settled();
    let question = question();
    let lab = Lab::new(&question, &all);
    let [a, b] = &lab.statuses[..] else { panic!() };
    let two = *lab.rates.last().unwrap();
    assert!((two - 500.0).abs() < 1e-6);
    assert_eq!((a.lo, a.outcome), (two, MeetsObjective::Met));
    assert!(a.hi.is_infinite() && b.lo > 240.0 && b.lo < b.hi && b.hi < two, "{b:?}");
    // 700 at 70 % of 500: two instances; b needs three or four.
    let hourly = |instances: f64| instances * 730.0;
    assert!((a.upper - hourly(2.0)).abs() < 1e-6 && (a.lower - hourly(2.0)).abs() < 1e-6);
    assert!(
        (b.lower - hourly(3.0)).abs() < 1e-6 && (b.upper - hourly(4.0)).abs() < 1e-6,
        "{b:?}"
    );
    assert_eq!(lab.decided(), Some(0));
    // Failures break an objective that the latency meets.
    let mut failing = candidate("a", 1.0, &[(500.0, 0.0, 20)]);
    for step in &mut failing.steps {
        step.failed = 50.0;
    }
    let all = [failing];
    assert!(Lab::new(&question, &all).statuses[0].hi <= 500.1);
}

#[test]
fn the_fastest_is_found_by_its_percentile() {
    let question = Question {
        minimise: Minimise::P99,
        ..question()
    };
    let rps = Lab::new(&question, &[]).rates[0];
    let with = |name: &str, us: f64| {
        let mut one = candidate(name, 1.0, &[(rps, 0.0, 20)]);
        for (index, step) in one.steps.iter_mut().enumerate() {
            step.quantile_us = vec![us * (1.0 + 0.01 * (index % 5) as f64)];
        }
        one
    };
    assert_eq!(rps, 350.0);
    let all = [with("slow", 30_000.0), with("fast", 15_000.0)];
    assert_eq!(Lab::new(&question, &all).decided(), Some(1));
    let all = [with("a", 20_000.0), with("b", 18_500.0)];
    let lab = Lab::new(&question, &all);
    assert!(lab.leader() == Some(1) && lab.statuses[1].percentile.is_some());
}

#[test]
fn of_variants_that_miss_the_objective_the_closest_comes_first() {
    let question = question();
    let low = Lab::new(&question, &[]).rates[0];
    let with = |name: &str, us: f64, failed: f64| {
        let mut one = candidate(name, 1.0, &[(low, 0.9, 6)]);
        for step in &mut one.steps {
            (step.quantile_us, step.failed) = (vec![us], failed);
        }
        one
    };
    let all = [
        with("far", 900_000.0, 0.0),
        with("failing", 20_000.0, 900.0),
        with("near", 60_000.0, 0.0),
    ];
    let lab = Lab::new(&question, &all);
    let verdict = LabVerdict::of(&lab);
    assert_eq!(verdict.outcome, AnswerOutcome::None);
    assert_eq!(order(&lab, &verdict), [2, 0, 1]);
}

/// Adds clean confirming steps wherever the rule asks for them.
fn confirmed(question: &Question, mut all: Vec<Candidate>) -> Vec<Candidate> {
    while let Next::Block {
        phase: Phase::Confirm,
        probes,
    } = next(question, &all, &TIME)
    {
        for probe in probes {
            let fresh = StepEvidence {
                purpose: Purpose::Confirm,
                ..step(probe.rps, 0.0)
            };
            all[probe.candidate].steps.push(fresh);
        }
    }
    all
}

#[test]
fn an_answer_that_later_steps_contradict_is_open_again() {
    let question = question();
    let mut all = confirmed(&question, settled());
    assert_eq!(
        LabVerdict::of(&Lab::new(&question, &all)).outcome,
        AnswerOutcome::Decided
    );
    // One step has more slow requests than all steps together are allowed, at the rate that makes the candidate the
    // best.
    let rps = 1_000.0 / 3.0;
    all[0].steps.push(step(rps, 0.52));
    let lab = Lab::new(&question, &all);
    let verdict = LabVerdict::of(&lab);
    assert!(
        verdict.outcome == AnswerOutcome::Undecided && lab.statuses[0].lo < rps,
        "{verdict:?}"
    );
    assert!(!why::open_questions(&lab, &verdict, 1.0).is_empty());
    let (phase, probes) = block(next(&question, &all, &TIME));
    let again = probes.iter().filter(|probe| (probe.rps - rps).abs() < 1e-6);
    assert!(phase == Phase::Decide && again.count() == 3, "{probes:?}");
    // If that is the only rate that would serve, the objective is not known to be met.
    let one = Question {
        highest_rps: 350.0,
        least_instances: 3,
        minimise: Minimise::P99,
        ..question
    };
    let rps = Lab::new(&one, &[]).rates[0];
    let mut all = vec![candidate("a", 1.0, &[(rps, 0.0, 20)])];
    assert_eq!(Lab::new(&one, &all).statuses[0].outcome, MeetsObjective::Met);
    all[0].steps.push(step(rps, 0.52));
    assert_ne!(Lab::new(&one, &all).statuses[0].outcome, MeetsObjective::Met);
}

#[test]
fn rates_above_the_measured_ones_do_not_decide() {
    let question = question();
    let at = |rps: f64| {
        let mut all = vec![
            candidate("a", 1.0, &[(rps, 0.0, 20)]),
            candidate("b", 1.0, &[(rps, 0.0, 20)]),
        ];
        for candidate in &mut all {
            let fresh = StepEvidence {
                purpose: Purpose::Confirm,
                ..step(rps, 0.0)
            };
            candidate.steps.extend(vec![fresh; 5]);
        }
        all
    };
    let outcome = |all: &[Candidate]| LabVerdict::of(&Lab::new(&question, all)).outcome;
    assert_eq!(outcome(&at(500.0)), AnswerOutcome::Decided);
    // At 499/s three instances are needed, at 500/s two.
    let all = at(499.0);
    let lab = Lab::new(&question, &all);
    let verdict = LabVerdict::of(&lab);
    assert_eq!(verdict.outcome, AnswerOutcome::Undecided);
    let reasons = super::why::open_questions(&lab, &verdict, 2.0);
    assert!(
        reasons.iter().any(|open| open.what.contains("above 499/s")),
        "{reasons:?}"
    );
}

#[test]
fn of_the_tie_the_least_expensive_that_is_confirmed_is_named() {
    let question = question();
    let prices = |first: f64, second: f64| {
        let steps = [(500.0, 0.0, 40)];
        vec![candidate("first", first, &steps), candidate("second", second, &steps)]
    };
    let all = confirmed(&question, prices(1.03, 1.0));
    let best = |all: &[Candidate]| LabVerdict::of(&Lab::new(&question, all)).best;
    assert_eq!(best(&all), Some(1));
    // The dearer candidate is confirmed, and the cheaper one not yet.
    let mut all = confirmed(&question, prices(1.0, 1.03));
    all[1].terms.as_mut().unwrap().usd_per_instance_hour = 0.99;
    let lab = Lab::new(&question, &all);
    let verdict = LabVerdict::of(&lab);
    assert!(verdict.best == Some(0) && verdict.confirmed, "{verdict:?}");
    assert!(why::why(&lab, &verdict, 0).starts_with("within the tie margin of second"));
    // By instances both are equally good, and dollars decide.
    let instances = Question {
        minimise: Minimise::Instances,
        ..question.clone()
    };
    assert_eq!(Lab::new(&instances, &prices(1.5, 1.0)).decided(), Some(1));
}

#[test]
fn the_time_that_is_left_goes_to_the_rates_at_which_variants_break() {
    let question = Question {
        highest_rps: 5_000.0,
        least_instances: 1,
        budget_s: 400.0,
        ..question()
    };
    let knees = [1_500.0, 700.0];
    let mut all = vec![candidate("a", 1.0, &[]), candidate("b", 1.1, &[])];
    let mut time = TIME;
    while let Next::Block { probes, .. } = next(&question, &all, &time) {
        for probe in probes {
            let slow = (0.0099 * (probe.rps / knees[probe.candidate]).powi(16)).min(0.9);
            all[probe.candidate].steps.push(StepEvidence {
                purpose: probe.purpose,
                ..step(probe.rps, slow)
            });
            time.spent_s += TIME.step_s;
        }
    }
    let lab = Lab::new(&question, &all);
    assert!(time.spent_s <= question.budget_s + TIME.step_s && lab.decided() == Some(0));
    for (estimate, knee) in highest_rates(&lab).iter().zip(knees) {
        let is_known = estimate.lo <= knee && knee <= estimate.hi;
        assert!(is_known && !estimate.is_bound, "{estimate:?} for {knee}");
    }
    let first = highest_rates(&lab)[0];
    assert!(first.hi <= 1.4 * first.lo, "{first:?}");
    // Without a step above the rates that matter there is no upper end.
    let lab_all = settled();
    let settled = Lab::new(&question, &lab_all);
    let [a, b] = highest_rates(&settled)[..] else { panic!() };
    assert!(a.is_bound && a.hi.is_infinite() && !b.is_bound);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any evidence: probabilities lie in [0, 1], a lower rate is at least as likely met as a higher one, certain
    /// statements agree, and the order of steps within a block does not matter.
    #[test]
    fn no_evidence_breaks_the_rule(
        shares in prop::collection::vec(prop::collection::vec((0_usize..12, 0.0_f64..0.05, 1_usize..14), 0..6), 2..5),
        prices in prop::collection::vec(0.5_f64..3.0, 5),
    ) {
        let question = question();
        let rates = Lab::new(&question, &[]).rates;
        let mut all: Vec<Candidate> = shares.iter().zip(prices).enumerate().map(|(index, (steps, usd))| {
            let steps: Vec<(f64, f64, usize)> = steps
                .iter()
                .map(|&(rate, slow, times)| (rates[rate % rates.len()], if slow < 0.02 { 0.0 } else { slow * 10.0 }, times))
                .collect();
            candidate(&format!("v{index}"), usd, &steps)
        }).collect();
        let lab = Lab::new(&question, &all);
        for (status, probability) in lab.statuses.iter().zip(&lab.p_best) {
            prop_assert!(status.lower <= status.upper * (1.0 + 1e-9), "{status:?}");
            prop_assert!(status.lo < status.hi && (-1e-9..=1.0 + 1e-9).contains(probability));
            let likely: Vec<f64> = rates.iter().map(|rps| status.curve.at_least(&lab.grid, *rps)).collect();
            prop_assert!(likely.is_sorted_by(|a, b| a >= b) && likely[0] <= 1.0 + 1e-9, "{likely:?}");
            prop_assert!((status.curve.mass.iter().sum::<f64>() + status.curve.never_met - 1.0).abs() < 1e-6);
        }
        if let Some(best) = lab.decided() {
            for rival in 0..all.len() {
                prop_assert!(rival == best || lab.beats(rival, best) <= 1.0 - question.confidence + 1e-9);
            }
        }
        let before = lab.p_best.clone();
        for one in &mut all {
            one.steps.reverse();
        }
        // Sums in another order differ in their last digits, so equal probabilities may swap order.
        let turned = Lab::new(&question, &all);
        for (one, other) in before.iter().zip(&turned.p_best) {
            prop_assert!((one - other).abs() < 1e-6, "{one} {other}");
        }
    }
}

#[test]
fn what_holds_far_above_the_rates_that_matter_holds_at_them() {
    for (average_rps, peak_rps) in [(5.0, 10.0), (0.0005, 0.001)] {
        let little = Question {
            demand: Some(Demand { average_rps, peak_rps }),
            least_instances: 1,
            ..question()
        };
        let all = [
            candidate("a", 1.0, &[(100.0, 0.0, 2), (300.0, 0.0, 5), (500.0, 0.0, 20)]),
            candidate("b", 1.0, &[(500.0, 0.9, 6)]),
        ];
        let lab = Lab::new(&little, &all);
        let outcomes = [0, 1].map(|index| lab.statuses[index].outcome);
        assert_eq!(outcomes, [MeetsObjective::Met, MeetsObjective::Unknown], "{peak_rps}");
        let needed = peak_rps / 0.7;
        assert!(
            (lab.statuses[0].lo - needed).abs() < 1e-6 * needed,
            "{:?}",
            lab.statuses[0].lo
        );
        assert!(lab.statuses[0].hi.is_infinite() && lab.leader() == Some(0));
    }
}

#[test]
fn of_those_that_are_as_good_the_one_with_the_least_is_the_answer() {
    // The dearer candidate, within the tie margin, is known slightly better.
    let all = [
        candidate("dearer", 1.03, &[(500.0, 0.0, 40)]),
        candidate("a", 1.0, &[(500.0, 0.0, 20)]),
    ];
    let question = question();
    let lab = Lab::new(&question, &all);
    assert!(
        lab.p_best.iter().all(|probability| *probability >= lab.threshold()),
        "{:?}",
        lab.p_best
    );
    assert_eq!(lab.decided(), Some(1));
}

#[test]
fn what_costs_nothing_is_set_beside_others_in_words_and_not_by_a_factor() {
    let steps = [(500.0, 0.0, 20)];
    for (prices, says) in [
        ([0.0, 0.0], "as much as a"),
        ([0.0, 2.0], "more than a, which costs nothing"),
    ] {
        let all = [candidate("a", prices[0], &steps), candidate("b", prices[1], &steps)];
        let question = question();
        let lab = Lab::new(&question, &all);
        let verdict = LabVerdict {
            best: Some(0),
            ..LabVerdict::of(&lab)
        };
        let why = why::why(&lab, &verdict, 1);
        assert!(why.starts_with(says) && !why.contains("NaN"), "{why}");
        assert!(lab.p_best.iter().all(|probability| probability.is_finite()) && lab.decided().is_some());
        assert!(lab.statuses.iter().all(|status| status.score.is_sign_positive()));
    }
}

#[test]
fn a_ratio_of_two_variants_is_the_least_that_their_intervals_allow() {
    let (question, all) = (question(), settled());
    let mut lab = Lab::new(&question, &all);
    let verdict = LabVerdict {
        best: Some(0),
        ..LabVerdict::of(&lab)
    };
    // Two instances against three or four.
    let said = why::why(&lab, &verdict, 1);
    assert!(said.starts_with("at least 50 % more than a: "), "{said}");
    // If the intervals touch, there is no ratio.
    lab.statuses[1].lower = lab.statuses[0].upper * 0.98;
    let said = why::why(&lab, &verdict, 1);
    assert!(said.starts_with("within the tie margin of a, or more: "), "{said}");
    lab.statuses[1].lower = lab.statuses[0].upper * 0.5;
    let said = why::why(&lab, &verdict, 1);
    assert!(said.starts_with("meets the objective at "), "{said}");
}

#[test]
fn a_variant_that_passes_names_a_rate_even_if_its_interval_is_open() {
    let question = question();
    let all = [candidate("a", 1.0, &[(500.0, 0.0, 20)])];
    let mut lab = Lab::new(&question, &all);
    assert_eq!(lab.statuses[0].outcome, MeetsObjective::Met);
    lab.statuses[0].lo = 0.0;
    let said = why::why(&lab, &LabVerdict::of(&lab), 0);
    assert!(said.contains("meets the objective at"), "{said}");
}

#[test]
fn what_does_not_meet_the_objective_is_never_the_best() {
    let mut seen = 0;
    let cases = [1.0, 0.1, 0.05, 0.03, 0.02].map(|share| [1, 2, 3, 5, 7, 30].map(|times| (share, times)));
    for count in 1..10 {
        for (share, times) in cases.into_iter().flatten() {
            let all: Vec<Candidate> = (0..count)
                .map(|_| candidate("a", 1.0, &[(37.0, share, times), (100.0, share, times)]))
                .collect();
            let question = question();
            let lab = Lab::new(&question, &all);
            let verdict = LabVerdict::of(&lab);
            let is_out = |index: usize| lab.statuses[index].outcome == MeetsObjective::NotMet;
            assert!(!verdict.best.is_some_and(is_out), "{count} {share} {times}");
            if verdict.outcome == AnswerOutcome::Undecided && (0..count).all(is_out) {
                seen += 1;
                assert!(!why::open_questions(&lab, &verdict, 1.0).is_empty());
            }
        }
    }
    assert!(seen > 0, "no such case was tried");
}
