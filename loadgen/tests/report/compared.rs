//! Comparisons of two runs.

use crate::{answered, run, scale, synthetic};
use hdrhistogram::Histogram;
use std::process::Command;
use tierlab_analysis::curves::comparison::{Decision, WITHIN};
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Driven, Interval, MeetsObjective, Objective, Percentile, Question, Run, StreamFigure,
    Verdict,
};
use tierlab_report::{Change, Outcome, comparison};

#[test]
fn comparing_finds_a_slower_tier_and_blames_no_other() {
    let same = comparison(run(), run(), WITHIN);
    assert_eq!(same.outcome(), Outcome::NoRegression, "{}", same.text());
    assert!(same.text().contains("0 worse, 0 better"));

    let slower = comparison(run(), &synthetic::run(3, 1.6), WITHIN);
    assert_eq!(slower.outcome(), Outcome::Regression);
    let wrong: Vec<_> = slower
        .changes
        .iter()
        .filter(|change| change.decision == Decision::Worse && !change.point.contains("s3"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(slower.markdown().contains("| WORSE") && slower.markdown().contains("| B / A over repeats "));
    // Every figure of the comparison is listed, with the smallest detectable difference.
    for what in ["p50", "p95", "p99", "mean", "errors", "good/s", "$/10k", "highest rate"] {
        assert!(slower.changes.iter().any(|change| change.what == what), "{what}");
    }
    let p50 = |change: &&Change| change.what == "p50" && change.decision == Decision::Worse;
    let found = slower.changes.iter().find(p50).unwrap();
    assert!(found.could_find.is_some_and(|share| share > 0.0), "{found:?}");

    let [mut first, mut second] = [run().clone(), run().clone()];
    first.config_sha256.insert("x/t.rows".to_owned(), "aa".to_owned());
    assert!(!comparison(&first, &second, WITHIN).text().contains("the data differ"));
    second.config_sha256.insert("y/t.rows".to_owned(), "bb".to_owned());
    let other_data = comparison(&first, &second, WITHIN).text();
    assert!(
        other_data.contains("the data differ, t.rows aa and t.rows bb"),
        "{other_data}"
    );
    second.config_sha256.insert("y/t.rows".to_owned(), "aa".to_owned());
    assert!(!comparison(&first, &second, WITHIN).text().contains("the data differ"));

    let mut nothing = run().clone();
    nothing.points.clear();
    assert_eq!(comparison(run(), &nothing, WITHIN).outcome(), Outcome::NothingInCommon);
}

#[test]
fn compare_exits_with_1_for_a_regression_and_with_3_if_it_cannot_tell() {
    let place = tempfile::tempdir().unwrap();
    let mut unpriced = run().clone();
    unpriced.pricing = None;
    // Summaries are made again from the evidence, as by `report`.
    let mut stale = run().clone();
    stale.points.iter_mut().for_each(|point| point.summary = None);
    for (name, run) in [
        ("a", run()),
        ("stale", &stale),
        ("slower", &synthetic::run(3, 1.6)),
        ("unpriced", &unpriced),
    ] {
        synthetic::write(run, &place.path().join(name)).unwrap();
    }
    let code = |b: &str| {
        let mut compare = Command::new(env!("CARGO_BIN_EXE_tierlab-loadgen"));
        compare.args(["compare", "a", b]).current_dir(place.path());
        compare.output().unwrap().status.code()
    };
    let codes = ["a", "stale", "slower", "unpriced", "missing"].map(code);
    assert_eq!(codes, [Some(0), Some(0), Some(1), Some(3), Some(2)]);
}

#[test]
fn open_loops_beside_closed_loops_leave_nothing_undecided() {
    let beside = |rps: f64| {
        let mut run = run().clone();
        let mut point = run.points[0].clone();
        let (users, think_time) = (4, "no think time".to_owned());
        point.factors.driven = Some(Driven::BesideClosedLoop { users, think_time });
        point.factors.offered_rps = rps;
        run.points.push(point);
        run
    };
    let compared = comparison(&beside(213.0), &beside(204.0), WITHIN);
    assert_eq!(compared.outcome(), Outcome::NoRegression, "{}", compared.text());
    assert!(compared.text().contains("its rate is measured"), "{}", compared.text());
}

#[test]
fn an_interval_that_bounds_nothing_is_not_shown() {
    let mut compared = comparison(run(), run(), WITHIN);
    let wide = &mut compared.changes[0];
    wide.difference = Some(Interval::new(0.52, 1e-30, 4e31));
    wide.could_find = Some(4e31);
    let text = compared.text();
    assert!(
        text.contains("0.52 ") && !text.contains("0.52 [") && !text.contains("000000"),
        "{text}"
    );
}

#[test]
fn a_percentile_decided_by_its_slow_requests_shows_them() {
    let mut compared = comparison(run(), run(), WITHIN);
    for decision in [Decision::Worse, Decision::Better, Decision::Undecided] {
        let change = &mut compared.changes[0];
        change.decision = decision;
        change.difference = Some(Interval::new(1.0, 0.5, 2.0));
        change.slower_than = Some((6_960.0, 0.055, 0.007));
        let text = compared.text();
        let is_shown = text.contains("above 6.96 ms");
        assert_eq!(is_shown, decision != Decision::Undecided, "{text}");
    }
}

#[test]
fn a_run_that_was_stopped_is_no_proof_that_nothing_got_worse() {
    let mut stopped = run().clone();
    stopped.interrupted = true;
    stopped.points.truncate(2);
    let compared = comparison(run(), &stopped, WITHIN);
    assert_eq!(compared.outcome(), Outcome::Undecided, "{}", compared.text());
    assert!(compared.text().contains("the run was stopped before it"));
    // Points that one run's plan did not ask for cannot be compared either, whichever run it is.
    stopped.interrupted = false;
    for (a, b, reason) in [(run(), &stopped, "only in A"), (&stopped, run(), "only in B")] {
        let compared = comparison(a, b, WITHIN);
        assert_eq!(compared.outcome(), Outcome::Undecided, "{}", compared.text());
        assert!(compared.text().contains(reason), "{}", compared.text());
    }
}

/// Run of one point of ten repeats of 600 requests, of which one in `slow` takes 319 ms and the others around 20 ms.
fn ten_repeats(slow: usize, factor: f64) -> Run {
    let mut run = run().clone();
    (run.slo, run.pricing) = (None, None);
    run.points.truncate(1);
    let first = run.points[0].repeats[0].clone();
    run.points[0].repeats = (0..10)
        .map(|index: u32| {
            let us = |request: usize| match (request + index as usize) % slow {
                0 => 319_000,
                rest => ((15_000 + (rest * 7_919) % 10_000) as f64 * factor) as u64,
            };
            let requests: Vec<usize> = (0..600).collect();
            let blocks = requests.chunks(100).map(|block| {
                let mut histogram = Histogram::<u64>::new(3).unwrap();
                block.iter().for_each(|request| histogram.record(us(*request)).unwrap());
                histogram
            });
            let mut repeat = first.clone();
            (repeat.index, repeat.seed) = (index, index.into());
            repeat.histograms.latency = blocks.collect();
            repeat
        })
        .collect();
    tierlab_analysis::conclude(&mut run);
    run.points[0].summary.as_mut().unwrap().verdict = Verdict::Valid;
    run
}

/// Nothing is dropped since its percentile is not printed: the comparison rests on the repeats.
#[test]
fn percentiles_are_compared_whether_or_not_they_are_printed() {
    let mut hidden = ten_repeats(1_000_000, 1.0);
    let summary = hidden.points[0].summary.as_mut().unwrap();
    (summary.p50_us, summary.p95_us, summary.p99_us) = (None, None, None);
    for (other, expected) in [
        (ten_repeats(1_000_000, 1.0), Outcome::NoRegression),
        (ten_repeats(1_000_000, 1.1), Outcome::Regression),
        (ten_repeats(50, 1.0), Outcome::Regression),
        (ten_repeats(85, 1.0), Outcome::Regression),
    ] {
        let compared = comparison(&hidden, &other, WITHIN);
        assert_eq!(compared.outcome(), expected, "{}", compared.text());
    }
}

/// A server that failed requests in A and holds the load in B.
#[test]
fn fewer_failures_are_something_to_compare() {
    let held = ten_repeats(1_000_000, 1.0);
    let mut failing = held.clone();
    for repeat in &mut failing.points[0].repeats {
        repeat.errors = [("503".to_owned(), 200)].into();
    }
    failing.points[0].summary.as_mut().unwrap().verdict = Verdict::Saturated(vec!["503".to_owned()]);
    let compared = comparison(&failing, &held, WITHIN);
    assert_eq!(compared.count(Decision::Better), 1, "{}", compared.text());
    assert_eq!(compared.outcome(), Outcome::Undecided, "{}", compared.text());
    assert!(!compared.text().contains("Nothing to compare"), "{}", compared.text());
}

#[test]
fn failures_that_a_plan_allows_are_still_more_failures() {
    let failing = |failed: u64| {
        let mut run = ten_repeats(1_000_000, 1.0);
        run.limits.error_share = 0.5;
        for repeat in &mut run.points[0].repeats {
            repeat.scheduled = 1_000;
            repeat.errors = [("503".to_owned(), failed)].into();
        }
        run
    };
    let errors = |failed| {
        let changes = comparison(&failing(10), &failing(failed), WITHIN).changes;
        changes.iter().find(|change| change.what == "errors").unwrap().decision
    };
    assert_eq!([errors(20), errors(100)], [Decision::Equivalent, Decision::Worse]);
}

#[test]
fn a_single_repeat_tells_no_difference() {
    let single = || {
        let mut run = ten_repeats(1_000_000, 1.0);
        run.points[0].repeats.truncate(1);
        run
    };
    let compared = comparison(&single(), &single(), WITHIN);
    assert_eq!(compared.outcome(), Outcome::Undecided, "{}", compared.text());
}

#[test]
fn what_only_one_run_has_is_undecided() {
    let of_a = run();
    let mut unpriced = of_a.clone();
    unpriced.pricing = None;
    let mut silent = of_a.clone();
    silent.points[0].repeats[1].histograms.latency.clear();
    let mut invalid = of_a.clone();
    invalid.points[0].summary.as_mut().unwrap().verdict = Verdict::Invalid(vec!["sent late".to_owned()]);
    let mut other_objective = of_a.clone();
    other_objective.slo = None;
    for (changed, says) in [
        (unpriced, "$/10k"),
        (silent, "p99"),
        (invalid, "sent late"),
        (other_objective, "the objectives differ"),
    ] {
        for (a, b) in [(of_a, &changed), (&changed, of_a)] {
            let compared = comparison(a, b, WITHIN);
            assert_eq!(compared.outcome(), Outcome::Undecided, "{says}: {}", compared.text());
            let undecided = |change: &Change| change.what == says && change.decision == Decision::Undecided;
            let named = compared.changes.iter().any(undecided);
            assert!(named || compared.text().contains(says), "{says}: {}", compared.text());
        }
    }
}

#[test]
fn other_prices_are_named_as_a_cause_of_other_costs() {
    let note = "the prices differ, and so may every $/10k";
    assert!(!comparison(run(), run(), WITHIN).text().contains(note));
    let mut dearer = run().clone();
    for source in &mut dearer.pricing.as_mut().unwrap().sources {
        *source = source.replace("$0.2/h", "$0.3/h");
    }
    assert!(comparison(run(), &dearer, WITHIN).text().contains(note));
}

#[test]
fn a_point_that_is_saturated_in_both_is_compared_by_its_throughput() {
    let saturated = |share: f64| {
        let mut run = ten_repeats(1_000_000, 1.0);
        for repeat in &mut run.points[0].repeats {
            repeat.achieved_rps *= share * (1.0 + 0.001 * f64::from(repeat.index));
        }
        run.points[0].summary.as_mut().unwrap().verdict = Verdict::Saturated(vec!["backlog".to_owned()]);
        run
    };
    let outcome = |share| comparison(&saturated(1.0), &saturated(share), WITHIN).outcome();
    assert_eq!(outcome(1.0), Outcome::NoRegression);
    assert_eq!(outcome(0.8), Outcome::Regression);
}

#[test]
fn a_highest_rate_that_one_run_alone_has_is_not_dropped() {
    let mut slow = run().clone();
    for point in &mut slow.points {
        point
            .repeats
            .iter_mut()
            .for_each(|repeat| scale(&mut repeat.histograms.latency, 1_000.0));
    }
    tierlab_analysis::conclude(&mut slow);
    let highest = |a: &Run, b: &Run| -> Vec<Decision> {
        let changes = comparison(a, b, WITHIN).changes;
        let rates = changes.iter().filter(|change| change.what == "highest rate");
        rates.map(|change| change.decision).collect()
    };
    assert!(highest(run(), &slow).contains(&Decision::Worse));
    assert!(highest(&slow, run()).contains(&Decision::Better));
}

#[test]
fn a_comparison_is_a_document_too() {
    let text = comparison(run(), &synthetic::run(3, 1.6), WITHIN).json();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&json["schema_version"], &json["outcome"]),
        (&1.into(), &"regression".into())
    );
    let figures = json["figures"].as_array().unwrap();
    let p50 = figures.iter().find(|figure| figure["figure"] == "p50").unwrap();
    assert!(
        p50["values"][0].as_f64().unwrap() > 0.0 && p50["difference"]["lo"].is_number(),
        "{p50}"
    );
    assert!(figures.iter().any(|figure| figure["decision"] == "worse"));
}

#[test]
fn replies_that_stream_are_compared_by_their_first_event_and_gaps() {
    let streaming = |ttft: f64| {
        let mut run = ten_repeats(1_000_000, 1.0);
        for repeat in &mut run.points[0].repeats {
            let of = |factor: f64| {
                let mut blocks = repeat.histograms.latency.clone();
                scale(&mut blocks, factor);
                blocks
            };
            repeat.histograms.streams = [(StreamFigure::Ttft, of(ttft)), (StreamFigure::Gap, of(0.1))].into();
        }
        run
    };
    let compared = comparison(&streaming(0.5), &streaming(0.8), WITHIN);
    let decided = |what| {
        compared
            .changes
            .iter()
            .find(|change| change.what == what)
            .unwrap()
            .decision
    };
    assert_eq!(compared.outcome(), Outcome::Regression, "{}", compared.text());
    for (what, decision) in [
        ("p99", Decision::Equivalent),
        ("ttft p50", Decision::Worse),
        ("ttft p99", Decision::Worse),
        ("gap p50", Decision::Equivalent),
        ("gap p99", Decision::Equivalent),
    ] {
        assert_eq!(decided(what), decision, "{what}: {}", compared.text());
    }
    let other = comparison(&streaming(0.5), &ten_repeats(1_000_000, 1.0), WITHIN);
    assert_eq!(other.outcome(), Outcome::Undecided, "{}", other.text());
}

#[test]
fn rates_under_different_objectives_are_not_compared_and_other_plans_are_named() {
    let mut other = run().clone();
    let slo = other.slo.as_mut().unwrap();
    slo.objective = Objective::Percentile {
        percentile: Percentile::P99,
        limit_us: 200_000.0,
    };
    other.protocol = "grpc".to_owned();
    other.plan_toml = format!("more = 1\n{}", run().plan_toml);
    tierlab_analysis::conclude(&mut other);
    let compared = comparison(run(), &other, WITHIN);
    assert!(compared.changes.iter().all(|change| change.what != "highest rate"));
    for says in ["the objectives differ", "over http, B over grpc", "the plans differ"] {
        assert!(compared.text().contains(says), "{says}: {}", compared.text());
    }
}

/// Runs of a lab in A and, after a change of its answer, in B; their highest rates by curve.
fn labs(change: impl Fn(&mut Answer)) -> [Run; 2] {
    let lab = answered::run(AnswerOutcome::Decided);
    let mut other = lab.clone();
    change(other.answer.as_mut().unwrap());
    [lab, other]
}

fn highest_rate(a: &Run, b: &Run, variant: &str) -> Change {
    let changes = comparison(a, b, WITHIN).changes.into_iter();
    let start = format!("{variant} ");
    let mut rates = changes.filter(|change| change.what == "highest rate" && change.point.starts_with(&start));
    rates.next().unwrap()
}

#[test]
fn labs_with_other_questions_are_not_compared_by_their_answers() {
    let changes: [fn(&mut Question); 2] = [
        |question| question.error_share = 0.01,
        |question| {
            question.objectives = vec![Objective::Percentile {
                percentile: Percentile::P99,
                limit_us: 50_000.0,
            }];
        },
    ];
    for change in changes {
        let [a, b] = labs(|answer| change(&mut answer.question));
        let compared = comparison(&a, &b, WITHIN);
        assert!(compared.changes.iter().all(|change| change.what != "highest rate"));
        let says = "highest rates: the objectives differ, p99 < 20 ms, errors < 0.1 % and p99 < ";
        assert_eq!(compared.text().matches(says).count(), 1, "{}", compared.text());
    }
}

#[test]
fn a_variant_that_no_longer_meets_the_objective_is_worse() {
    let [a, b] = labs(|answer| {
        let nvme = &mut answer.ranking[0];
        nvme.outcome = MeetsObjective::NotMet;
        (nvme.highest_rps, nvme.highest_rps_lo, nvme.highest_rps_hi) = (None, None, None);
    });
    assert_eq!(highest_rate(&a, &b, "nvme").decision, Decision::Worse);
    assert_eq!(highest_rate(&b, &a, "nvme").decision, Decision::Better);
    // Missed only above the other's highest rate.
    let mut slow = a.clone();
    let nvme = &mut slow.answer.as_mut().unwrap().ranking[0];
    (nvme.highest_rps, nvme.highest_rps_lo, nvme.highest_rps_hi) = (Some(50.0), Some(40.0), Some(60.0));
    assert_eq!(highest_rate(&slow, &b, "nvme").decision, Decision::Undecided);
}

#[test]
fn a_highest_rate_has_its_bounds_and_a_lower_bound_is_no_limit() {
    let with = |variant: usize, [rps, lo, hi]: [Option<f64>; 3]| {
        labs(|answer| {
            let ranked = &mut answer.ranking[variant];
            (ranked.highest_rps, ranked.highest_rps_lo, ranked.highest_rps_hi) = (rps, lo, hi);
        })
    };
    // 812/s [780–850] in A.
    let [a, b] = with(0, [Some(771.4), Some(750.0), Some(790.0)]);
    let change = highest_rate(&a, &b, "nvme");
    let difference = change.difference.unwrap();
    assert_eq!(change.decision, Decision::Undecided);
    assert_eq!((difference.lo, difference.hi), (750.0 / 850.0, 790.0 / 780.0));
    assert_eq!(highest_rate(&a, &a, "nvme").decision, Decision::Equivalent);
    // At least 780/s in A, and 780/s in B.
    let [a, b] = with(1, [Some(780.0), Some(750.0), Some(790.0)]);
    let change = highest_rate(&a, &b, "nvme-cached");
    assert_eq!(
        (change.values, change.decision),
        (Some((780.0, 780.0)), Decision::Undecided)
    );
    assert_eq!(change.difference.unwrap().lo, 0.0);
    assert_eq!(highest_rate(&b, &a, "nvme-cached").decision, Decision::Undecided);
    assert_eq!(highest_rate(&a, &a, "nvme-cached").decision, Decision::Equivalent);
}

#[test]
fn runs_that_cannot_tell_are_undecided_and_not_the_same() {
    let mut first = run().clone();
    first.slo = None;
    tierlab_analysis::conclude(&mut first);
    let mut other = first.clone();
    // Other arrivals, and repeats that lie far apart: 24 % more on average, by chance or not.
    for point in &mut other.points {
        for (repeat, factor) in point.repeats.iter_mut().zip([0.95, 1.2, 1.6]) {
            repeat.seed += 1;
            scale(&mut repeat.histograms.latency, factor);
        }
    }
    tierlab_analysis::conclude(&mut other);
    let comparison = comparison(&first, &other, WITHIN);
    assert_eq!(comparison.outcome(), Outcome::Undecided, "{}", comparison.text());
    let text = comparison.text();
    assert!(
        text.contains("undecided") && text.contains("more repeats narrow it"),
        "{text}"
    );
    assert!(
        text.contains("repeats with the same seeds were paired at 0 of"),
        "{text}"
    );
}

#[test]
fn a_point_that_the_server_no_longer_holds_is_a_regression_and_one_that_was_not_measured_is_undecided() {
    let told = |verdict: Verdict| {
        let mut lost = run().clone();
        let point = lost
            .points
            .iter_mut()
            .find(|point| tierlab_analysis::curves::is_valid(point))
            .unwrap();
        point.summary.as_mut().unwrap().verdict = verdict;
        let comparison = comparison(run(), &lost, WITHIN);
        (comparison.outcome(), comparison.text())
    };
    let why = || vec!["because".to_owned()];
    let (outcome, text) = told(Verdict::Saturated(why()));
    assert_eq!(outcome, Outcome::Regression);
    assert!(
        text.contains("no longer held: nvme cold realtime ctr ×1 at 100 rps: saturated: because"),
        "{text}"
    );
    let (outcome, text) = told(Verdict::Invalid(why()));
    assert_eq!(outcome, Outcome::Undecided, "{text}");
    assert!(
        text.contains("not compared: nvme cold realtime ctr ×1 at 100 rps: in B invalid: because"),
        "{text}"
    );
}
