//! Evidence of steps, and of a measured run.

use super::{candidate, question, settled};
use crate::decision::StepEvidence;
use crate::decision::answer::{showing, shown_at};
use crate::decision::curve::{Grid, HighestRate};
use crate::decision::from_run::step;
use crate::decision::lab::{Lab, LabVerdict};
use crate::record::{
    AnswerOutcome, Factors, Histograms, Limits, MeetsObjective, Mode, Point, Purpose, Question, Repeat, SentRequests,
    ServerDelta,
};
use crate::statistics::percentile::histogram;

#[test]
fn steps_at_one_rate_speak_for_others_and_failures_break_an_objective() {
    let question = question();
    let likely = |steps: &[(f64, f64, usize)], rps: f64| {
        let all = [candidate("a", 1.0, steps)];
        let lab = Lab::new(&question, &all);
        lab.statuses[0].curve.at_least(&lab.grid, rps)
    };
    let clean = likely(&[(200.0, 0.0, 8)], 200.0);
    assert!(clean > 0.98 && likely(&[(200.0, 0.0, 8)], 100.0) >= clean, "{clean}");
    let beyond = likely(&[(200.0, 0.0, 8)], 400.0);
    assert!(beyond < 0.9 && likely(&[(200.0, 0.3, 3)], 250.0) < 0.02, "{beyond}");
    let mut failing = candidate("a", 1.0, &[(200.0, 0.0, 8)]);
    for step in &mut failing.steps {
        step.failed = 20.0;
    }
    let all = [failing];
    let lab = Lab::new(&question, &all);
    assert!(lab.statuses[0].curve.at_least(&lab.grid, 200.0) < 0.02 && !lab.statuses[0].rate_points[0].likely_met());
}

#[test]
fn without_a_usable_step_no_variant_is_the_most_likely_one() {
    let question = question();
    let mut all = settled();
    for step in all.iter_mut().flat_map(|candidate| &mut candidate.steps) {
        step.usable = Err("disturbed".to_owned());
    }
    let lab = Lab::new(&question, &all);
    assert!(lab.leader().is_some(), "the prior alone prefers one");
    let verdict = LabVerdict::of(&lab);
    assert_eq!((verdict.outcome, verdict.best), (AnswerOutcome::Undecided, None));
    for status in &lab.statuses {
        let known = (status.outcome, status.estimate, status.lo, status.hi.is_infinite());
        assert_eq!(known, (MeetsObjective::Unknown, None, 0.0, true));
    }
}

/// A point at 100/s with one step.
fn measured(repeat: Repeat) -> Point {
    let factors = Factors {
        variant: String::new(),
        tier: "t".into(),
        cache: "off".into(),
        cache_share: 0.0,
        model: "m".into(),
        mode: Mode::Realtime,
        batch_size: 1,
        offered_rps: 100.0,
        arrivals: "poisson".into(),
        keys: "uniform".into(),
        mix: None,
        driven: None,
    };
    Point {
        factors,
        repeats: vec![repeat],
        summary: None,
    }
}

#[test]
fn the_p99_beside_a_demand_is_of_its_rate_or_a_higher_one() {
    let at = |rps: f64| {
        let requests = (10.0 * rps) as usize;
        let mut point = measured(Repeat {
            window_s: 10.0,
            scheduled: requests as u64,
            completed: requests as u64,
            achieved_rps: rps,
            histograms: Histograms {
                latency: vec![histogram(&vec![10_000; requests])],
                lag: vec![histogram(&vec![10; requests])],
                ..Histograms::default()
            },
            ..Repeat::empty()
        });
        point.factors.offered_rps = rps;
        point.summary = Some(crate::summary(&point, &Limits::default(), None));
        point
    };
    // 900 requests are too few for a p99.
    let points = [at(90.0), at(200.0), at(400.0)];
    let shown = |has_demand, rps| shown_at(&points.each_ref(), has_demand, rps).map(|point| point.factors.offered_rps);
    let with_demand = [80.0, 200.0, 210.0, 500.0].map(|rps| shown(true, rps));
    assert_eq!(with_demand, [Some(200.0), Some(200.0), Some(400.0), None]);
    assert_eq!(shown(false, 210.0), Some(200.0));
}

#[test]
fn a_variant_that_misses_the_objective_is_not_shown_where_it_looked_met() {
    let question = question();
    let lowest = Lab::new(&question, &[]).rates[0];
    let mut all = [candidate("a", 1.0, &[(lowest, 0.9, 6)])];
    // Fresh steps, which do not choose, from before the server broke.
    let fresh = candidate("a", 1.0, &[(400.0, 0.0, 10)]).steps;
    let fresh = fresh.into_iter().map(|step| StepEvidence {
        purpose: Purpose::Confirm,
        ..step
    });
    all[0].steps.extend(fresh);
    let lab = Lab::new(&question, &all);
    assert_eq!(lab.statuses[0].outcome, MeetsObjective::NotMet);
    let points = [lowest, 400.0].map(|rps| {
        let mut point = measured(Repeat::empty());
        point.factors.offered_rps = rps;
        point
    });
    let shown = showing(&lab, 0, &points.each_ref());
    assert!(shown.len() == 1 && std::ptr::eq(shown[0], &points[0]), "{shown:?}");
}

#[test]
fn a_late_step_that_missed_the_objective_is_evidence_of_nothing() {
    let late = |lag_us: u64, latency_us: u64| {
        let point = measured(Repeat {
            window_s: 10.0,
            scheduled: 1_000,
            completed: 1_000,
            achieved_rps: 100.0,
            histograms: Histograms {
                latency: vec![histogram(&[latency_us; 1_000])],
                lag: vec![histogram(&[lag_us; 1_000])],
                ..Histograms::default()
            },
            ..Repeat::empty()
        });
        step(&question(), &Limits::default(), &point, &point.repeats[0])
    };
    // An objective met despite the lag is met.
    assert_eq!(late(20_000, 30_000).usable, Ok(()));
    let missed = late(50_000, 60_000);
    assert!(
        missed.usable.as_ref().is_err_and(|why| why.contains("sent late")),
        "{missed:?}"
    );
    let question = question();
    let clean = candidate("a", 1.0, &[(100.0, 0.0, 12)]);
    let mut with_missed = clean.clone();
    with_missed.steps.push(missed);
    let [clean, with_missed] = [[clean], [with_missed]].map(|all| {
        let status = Lab::new(&question, &all).statuses.remove(0);
        (status.lo, status.hi, status.missed, status.outcome)
    });
    assert_eq!(with_missed, clean);
}

#[test]
fn a_failed_request_misses_an_objective_once_and_is_no_queue_that_grows() {
    // 60 % fail with 503 at once, 2 % are too slow.
    let latencies: Vec<u64> = (0..400).map(|i| if i < 20 { 60_000 } else { 10_000 }).collect();
    let repeat = Repeat {
        window_s: 10.0,
        scheduled: 1_000,
        completed: 400,
        errors: [("503".to_owned(), 600)].into(),
        achieved_rps: 40.0,
        histograms: Histograms {
            latency: vec![histogram(&latencies)],
            lag: vec![histogram(&[10; 1_000])],
            failed: vec![histogram(&[400; 600])],
            ..Histograms::default()
        },
        ..Repeat::empty()
    };
    let point = measured(repeat);
    let limits = Limits::default();
    let evidence = step(&question(), &limits, &point, &point.repeats[0]);
    assert_eq!((evidence.slow[0], evidence.failed), (620.0, 600.0));
    assert_eq!((evidence.usable, evidence.saturated), (Ok(()), false));
    // A step in which all requests failed is evidence too.
    let mut none_good = point.repeats[0].clone();
    (none_good.completed, none_good.achieved_rps) = (0, 0.0);
    none_good.errors = [("503".to_owned(), 1_000)].into();
    none_good.histograms.latency = vec![histogram(&[])];
    let evidence = step(&question(), &limits, &point, &none_good);
    assert_eq!((evidence.slow[0], evidence.usable), (1_000.0, Ok(())));
}

#[test]
fn storage_is_used_by_the_request_whatever_its_rows_count_as() {
    let used = |inferences_per_request: f64, batch_size: u32| {
        let point = measured(Repeat {
            sent: Some(SentRequests {
                inferences_per_request,
                mean_rows: Some(8.0),
                ..SentRequests::default()
            }),
            server: Some(ServerDelta {
                inferences: 1_000.0,
                tier_requests: 2_000.0,
                ..ServerDelta::default()
            }),
            ..Repeat::empty()
        });
        let asked = Question {
            batch_size,
            ..question()
        };
        let evidence = step(&asked, &Limits::default(), &point, &point.repeats[0]);
        // A month pays for the batch size in every request.
        evidence.tier_requests_per_inference.unwrap() * f64::from(batch_size)
    };
    assert_eq!([used(8.0, 1), used(1.0, 1), used(8.0, 8), used(1.0, 8)], [16.0; 4]);
}

#[test]
fn the_estimand_is_the_mean_share_and_not_that_of_the_median_step() {
    let question = question();
    // Three quarters of the steps have no slow requests, the others 4 %: 1 % in all.
    let mixed = |rps: f64| {
        let mut one = candidate("a", 1.0, &[(rps, 0.0, 30), (rps, 0.04, 10)]);
        one.steps
            .extend(candidate("a", 1.0, &[(0.6 * rps, 0.0, 8), (1.4 * rps, 0.6, 2)]).steps);
        [one]
    };
    let all = mixed(250.0);
    let lab = Lab::new(&question, &all);
    let status = &lab.statuses[0];
    let estimate = status.estimate.unwrap();
    assert!((estimate / 250.0 - 1.0).abs() < 0.05, "{estimate}");
    assert!(
        status.lo < 250.0 && status.hi > 250.0 && status.width() < 1.4,
        "{status:?}"
    );
}

#[test]
fn an_interval_lies_between_the_rates_of_the_grid() {
    let grid = Grid::covering(&[100.0, 400.0]);
    let prior = HighestRate::prior(&grid);
    let (lo, hi) = prior.interval(&grid, 0.3);
    assert!((prior.exceeded(&grid, 0.5) - prior.median(&grid).unwrap()).abs() < 1e-9);
    assert!(lo < hi && prior.exceeded(&grid, 0.3) == hi, "{lo} {hi}");
    // The mass of the top rate alone has no upper end; the mass of no rate gives none.
    assert!(prior.exceeded(&grid, 0.01).is_infinite() && prior.exceeded(&grid, 0.99) == 0.0);
}
