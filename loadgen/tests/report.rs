//! Reports of a synthetic run: files, table, page and comparison.
//!
//! With `TIERLAB_REPORT_TO=DIR` the result folder is left there, for viewing in a browser.

mod fleets;
mod synthetic;

use hdrhistogram::Histogram;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::OnceLock;
use tierlab_analysis::curves::comparison::{Decision, WITHIN};
use tierlab_analysis::record::{DeviceReads, GpuUse, Objective, Percentile, Repeat, Resumption, Run, Verdict};
use tierlab_loadgen::commands::report;
use tierlab_loadgen::store::error::StoreError;
use tierlab_loadgen::store::folder;
use tierlab_report::{Change, Outcome, comparison, table};

fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| synthetic::run(3, 1.0))
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("TIERLAB_REPORT_TO").map_or_else(|| temporary.path().join("run"), PathBuf::from);
    (temporary, dir)
}

#[test]
fn a_folder_reads_back_and_its_summary_can_be_made_again() {
    let (_keep, dir) = folder();
    folder::write(run(), &dir).unwrap();
    let mut read = folder::load(&dir).unwrap();
    for (point, read) in run().points.iter().zip(&read.points) {
        assert_eq!(point.factors, read.factors);
        for (repeat, read) in point.repeats.iter().zip(&read.repeats) {
            assert_eq!(repeat.histograms.latency, read.histograms.latency);
            assert_eq!(repeat.histograms.block_s, read.histograms.block_s);
        }
    }
    let as_measured = serde_json::to_value(&run().points).unwrap();
    for point in &mut read.points {
        point.summary = None;
    }
    tierlab_analysis::summarise(&mut read.points, &run().limits, run().pricing.as_ref());
    assert_eq!(serde_json::to_value(&read.points).unwrap(), as_measured);

    std::fs::remove_file(dir.join("summary.csv")).unwrap();
    let combined = dir.join("combined.html");
    let to = report::Options {
        runs: vec![dir.clone(), dir.clone()],
        combined: Some(combined.clone()),
        ..report::Options::default()
    };
    report::rewrite(&to).unwrap();
    assert!(dir.join("summary.csv").exists());
    assert!(std::fs::read_to_string(combined).unwrap().contains("href=\"#run1\""));
}

#[test]
fn the_csv_has_a_row_per_point_and_says_what_the_histograms_say() {
    let (_keep, dir) = folder();
    folder::write(run(), &dir).unwrap();
    let mut reader = csv::Reader::from_path(dir.join("summary.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| {
        headers
            .iter()
            .position(|header| header == name)
            .unwrap_or_else(|| panic!("{name}"))
    };
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), run().points.len());
    let mut printed = 0;
    for (point, row) in run().points.iter().zip(&rows) {
        let mut merged = Histogram::<u64>::new(3).unwrap();
        for block in point.repeats.iter().flat_map(|repeat| &repeat.histograms.latency) {
            merged.add(block).unwrap();
        }
        let number = |name: &str| row[column(name)].parse::<f64>();
        for (name, percentile) in ["p50", "p90", "p95", "p99", "p999"].iter().zip(Percentile::ALL) {
            let grade = &row[column(&format!("{name}_grade"))];
            assert_eq!(
                grade != "n/a",
                merged.len() >= percentile.samples_needed(),
                "{name} {row:?}"
            );
            let name = format!("{name}_us");
            assert_eq!(number(&name).is_ok(), grade != "n/a", "{name} {row:?}");
            let Ok(us) = number(&name) else { continue };
            let expected = merged.value_at_quantile(percentile.quantile()) as f64;
            assert!((us - expected).abs() <= 1e-5 * us, "{row:?}");
            assert!(number(&format!("{name}_lo")).unwrap() <= us);
            // A rough one has no upper end.
            assert_eq!(
                number(&format!("{name}_hi")).is_ok_and(|hi| us <= hi),
                grade == "solid",
                "{row:?}"
            );
        }
        let mean = merged.mean();
        assert!((number("mean_us").unwrap() / mean - 1.0).abs() < 1e-3, "{row:?}");
        assert_eq!(number("max_us").unwrap().round(), merged.max() as f64);
        printed += usize::from(number("p99_us").is_ok());
        assert_eq!(number("samples").unwrap() as u64, merged.len());
    }
    assert!(printed >= 3, "{printed} of {} have a p99", rows.len());
}

#[test]
fn verdicts_tell_saturation_from_a_broken_measurement() {
    let verdict = |tier: &str, rps: f64| {
        let point = run()
            .points
            .iter()
            .find(|p| p.factors.tier == tier && p.factors.offered_rps == rps);
        point.unwrap().summary.as_ref().unwrap().verdict.clone()
    };
    assert_eq!(verdict("nvme", 400.0), Verdict::Valid);
    assert!(matches!(verdict("s3", 800.0), Verdict::Saturated(_)));
    assert!(matches!(verdict("nfs", 800.0), Verdict::Saturated(why) if why.iter().any(|why| why.contains("× 503"))));
}

#[test]
fn the_table_fits_a_terminal_and_says_what_matters() {
    let table = table(run());
    let tables = table.split("Latency runs").next().unwrap();
    let widest = tables.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 160, "{widest} columns");
    assert!(tables.contains("s3 (emulated)") && tables.contains("saturated") && tables.contains("n/a"));
    let sentence = |who: &str| table.lines().find(|line| line.starts_with(who)).unwrap();
    // The tier's wait is far above everything else, and only its own figure depends on the random numbers.
    let batch = sentence("• s3 (emulated) cold batch: ");
    assert!(
        batch.contains(" at 20 rps is ") && batch.contains("tier wait"),
        "{batch}"
    );
    assert!(batch.contains("tier wait with the device or its far side"), "{batch}");
    let warm = sentence("• nvme warm 10 % realtime: ");
    assert!(
        warm.contains("of their rows came from the cache, 72 % of all"),
        "{warm}"
    );
    assert!(table.contains("Self-check failed: send lag p99"));
}

#[test]
fn the_page_is_self_contained_and_escapes_what_others_wrote() {
    let (_keep, dir) = folder();
    folder::write(run(), &dir).unwrap();
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("synthetic, not a measurement &lt;&amp;&quot;&gt;"));
    assert!(page.contains("&lt;/script&gt;&lt;b&gt;not bold&lt;/b&gt;") && !page.contains("<b>not bold"));
    for loads in ["src=", "<link", "@import", "url(", "fetch("] {
        assert!(!page.contains(loads), "the page loads something: {loads}");
    }
    for number in ["NaN", "inf,", "Infinity"] {
        assert!(!page.contains(number), "{number} in the page");
    }
    assert_eq!(page.matches("<script>").count(), 1);
}

/// Returns the run with foreign text after every text of one field; `None` if the project itself sets the field's
/// texts.
fn with_hostile(field: &str, said: &str) -> Option<Run> {
    fn say(value: &mut serde_json::Value, is_field: bool, field: &str, said: &str) {
        match value {
            serde_json::Value::String(text) if is_field => text.push_str(said),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|item| say(item, is_field, field, said)),
            serde_json::Value::Object(fields) => fields
                .iter_mut()
                .for_each(|(name, value)| say(value, is_field || name == field, field, said)),
            _ => {}
        }
    }
    let mut json = serde_json::to_value(run()).unwrap();
    say(&mut json, false, field, said);
    let mut changed: Run = serde_json::from_value(json).ok()?;
    for (point, whole) in changed.points.iter_mut().zip(&run().points) {
        for (repeat, whole) in point.repeats.iter_mut().zip(&whole.repeats) {
            repeat.histograms = whole.histograms.clone();
        }
    }
    Some(changed)
}

#[test]
fn nothing_that_a_run_says_is_markup() {
    fn fields(value: &serde_json::Value, names: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
            serde_json::Value::Object(all) => all.iter().for_each(|(name, value)| {
                names.insert(name.clone());
                fields(value, names);
            }),
            _ => {}
        }
    }
    let mut names = BTreeSet::new();
    fields(&serde_json::to_value(run()).unwrap(), &mut names);
    let mut shown = BTreeSet::new();
    for name in &names {
        let Some(run) = with_hostile(name, "<u>\"'&") else {
            continue;
        };
        let page = tierlab_report::page(&[&run]);
        for raw in ["<u>", "u>\""] {
            assert!(!page.contains(raw), "{name} as {raw}");
        }
        if page.contains("&lt;u&gt;&quot;") {
            shown.insert(name.as_str());
        }
    }
    for name in ["name", "tier", "model", "plan_toml", "measured"] {
        assert!(shown.contains(name), "{name} is not among {shown:?}");
    }
}

#[test]
fn the_page_draws_the_whole_distribution_and_prices_what_the_objective_allows() {
    let (_keep, dir) = folder();
    folder::write(run(), &dir).unwrap();
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    // One card for each of three tiers, two caches and two modes.
    assert_eq!(page.matches("class=\"heat\"").count(), 12);
    assert_eq!(page.matches("\"title\":\"latency that a share").count(), 2);
    assert!(page.contains("highest rate with p99 &lt; 20 ms") && page.contains("≥ 800 rps"));
    assert!(page.contains("imaginary.disk, $0.300/h, unchecked"));
    assert!(page.contains("\"crosses\":[[") && page.contains("cost the same at a hit ratio of"));
}

#[test]
fn the_markdown_says_the_same_and_escapes_what_others_wrote() {
    let (_keep, dir) = folder();
    folder::write(run(), &dir).unwrap();
    let text = std::fs::read_to_string(dir.join("report.md")).unwrap();
    assert!(
        text.starts_with("# synthetic, not a measurement &lt;&amp;\"&gt;\n"),
        "{text}"
    );
    for said in [
        "| variant | highest rate | at | p50 | p99 | $/10k | dominant part |",
        "| s3 (emulated) warm 10 % realtime×1 | none |",
        " tier wait |",
        "Self-check failed: send lag p99 at 2,000 rps",
    ] {
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    assert!(!text.contains("NaN"));
    // Every row of a table has as many cells as its head.
    let mut columns = None;
    for line in text.lines() {
        let cells = line.replace("\\|", "").matches('|').count();
        match columns {
            _ if cells == 0 => columns = None,
            None => columns = Some(cells),
            Some(columns) => assert_eq!(cells, columns, "{line}"),
        }
    }
}

#[test]
fn thin_runs_have_a_report_too() {
    let (_keep, dir) = folder();
    let mut empty = run().clone();
    empty.points.clear();
    (empty.noise_floor, empty.pricing, empty.interrupted) = (None, None, true);

    let mut single = empty.clone();
    single.points = run().points[..1].to_vec();
    single.points[0].repeats.truncate(1);
    let mut silent = single.clone();
    let repeat = &mut silent.points[0].repeats[0];
    repeat.histograms = tierlab_analysis::record::Histograms {
        block_s: 1.0,
        ..Default::default()
    };
    (repeat.scheduled, repeat.achieved_rps) = (0, 0.0);
    repeat.bands.clear();
    let mut unsummarised = single.clone();
    unsummarised.points[0].summary = None;
    tierlab_analysis::summarise(&mut single.points, &single.limits, None);
    tierlab_analysis::summarise(&mut silent.points, &silent.limits, run().pricing.as_ref());

    for thin in [&empty, &single, &silent, &unsummarised] {
        folder::write(thin, &dir).unwrap();
        folder::load(&dir).unwrap();
        let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
        let text = table(thin);
        assert!(page.contains("stopped early") && text.contains("stopped before its last point"));
        assert!(!page.contains("NaN") && !text.contains("NaN"));
    }
    let summary = silent.points[0].summary.as_ref().unwrap();
    assert!(summary.p50_us.is_none() && summary.usd_per_10k.is_none());
    assert_eq!(
        summary.verdict,
        Verdict::Invalid(vec!["no requests in the window".to_owned()])
    );
}

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
    assert!(slower.markdown().contains("| WORSE"));
    // Every figure of the comparison is listed, with the smallest detectable difference.
    for what in ["p50", "p95", "p99", "mean", "errors", "good/s", "$/10k", "highest rate"] {
        assert!(slower.changes.iter().any(|change| change.what == what), "{what}");
    }
    let p50 = |change: &&Change| change.what == "p50" && change.decision == Decision::Worse;
    let found = slower.changes.iter().find(p50).unwrap();
    assert!(found.could_find.is_some_and(|share| share > 0.0), "{found:?}");

    let mut nothing = run().clone();
    nothing.points.clear();
    assert_eq!(comparison(run(), &nothing, WITHIN).outcome(), Outcome::NothingInCommon);
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
        (other_objective, "under different objectives"),
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
    for says in [
        "under different objectives",
        "over http, B over grpc",
        "the plans differ",
    ] {
        assert!(compared.text().contains(says), "{says}: {}", compared.text());
    }
}

#[test]
fn an_emulated_variant_is_emulated_whatever_its_server_says() {
    let mut run = run().clone();
    let factors = &run.points[0].factors;
    let name = factors.label().to_owned();
    let variant = serde_json::json!({
        "name": name, "tier": factors.tier, "origin": "emulated, s3-standard-2025, over real", "emulated": "s3-standard-2025",
        "cache": factors.cache, "cache_share": factors.cache_share
    });
    run.variants = vec![serde_json::from_value(variant).unwrap()];
    run.environment
        .origins
        .insert(name.clone(), "real; O_DIRECT".to_owned());
    let text = table(&run);
    let says = format!("not measured on a service: {name} (emulated s3-standard-2025)");
    assert!(text.contains(&says), "{text}");
    let csv = String::from_utf8(tierlab_report::summary_csv(&run).unwrap()).unwrap();
    let row = csv.lines().nth(1).unwrap();
    assert!(row.starts_with(&format!("{name},emulated,")), "{row}");
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
        text.contains("undecided") && text.contains("more repeats narrow the interval"),
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

/// Every latency of some histograms, longer by a factor.
fn scale(blocks: &mut [Histogram<u64>], factor: f64) {
    for block in blocks {
        let mut scaled = Histogram::<u64>::new(3).unwrap();
        for step in block.iter_recorded() {
            let us = (step.value_iterated_to() as f64 * factor).round() as u64;
            scaled.record_n(us.max(1), step.count_at_value()).unwrap();
        }
        *block = scaled;
    }
}

/// The run with one point of it changed.
fn with(change: impl Fn(usize, &mut Repeat)) -> Run {
    let mut run = run().clone();
    run.slo = None;
    for (index, repeat) in run.points[0].repeats.iter_mut().enumerate() {
        change(index, repeat);
    }
    tierlab_analysis::conclude(&mut run);
    run
}

fn everywhere(run: &Run) -> [String; 3] {
    let (_keep, dir) = folder();
    folder::write(run, &dir).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    [table(run), read("report.md"), read("report.html")]
}

#[test]
fn a_latency_that_drifts_is_not_valid_and_every_report_shows_how() {
    let drifting = with(|index, repeat| scale(&mut repeat.histograms.latency, [1.0, 3.0, 9.0][index]));
    let summary = drifting.points[0].summary.as_ref().unwrap();
    assert!(
        matches!(&summary.verdict, Verdict::Invalid(why) if why[0].starts_with("drifts: p50 is ")),
        "{}",
        summary.verdict
    );
    for text in everywhere(&drifting) {
        assert!(text.contains("drifts: p50 is ") && text.contains(" ▁▅█"), "{text}");
    }
    // Valid points stay valid.
    assert!(run().points[0].summary.as_ref().unwrap().drifts.is_empty());
}

#[test]
fn repeats_of_before_and_after_a_run_was_gone_on_with_do_not_pool_where_they_differ() {
    let mut other = with(|index, repeat| scale(&mut repeat.histograms.latency, [1.0, 2.2, 2.2][index]));
    other.resumed.push(Resumption {
        at: "2026-11-20T12:00:30Z".to_owned(),
        finished_steps: 30,
        differences: Vec::new(),
    });
    let text = table(&other);
    assert!(
        text.contains("up to repeat 1 and")
            && text.contains("between the two the run was resumed (2026-11-20T12:00:30Z)"),
        "{text}"
    );
}

#[test]
fn a_rate_that_only_the_plan_set_is_a_lower_bound_and_its_cost_an_upper_one() {
    let mut plain = run().clone();
    plain.slo = None;
    tierlab_analysis::conclude(&mut plain);
    let texts = everywhere(&plain);
    for text in [&texts[0], &texts[2]] {
        assert!(text.contains("highest valid rate ≥ 800 rps: at most $"), "{text}");
        // s3 saturates below the plan's highest rate: that is the server's own.
        assert!(text.contains("highest valid rate 400 rps: $"), "{text}");
    }
    assert!(
        texts[1].contains("| ≥ 800/s |") && texts[1].contains(" | ≤ $"),
        "{}",
        texts[1]
    );
    assert!(texts[2].contains("at ≥ 800 rps") && texts[2].contains("<td class=\"n\" data-label=\"$/10k\">≤ $"));
    // With an objective that the highest rate asked keeps to, likewise.
    let [table, _, page] = everywhere(run());
    for text in [table, page] {
        assert!(text.contains("≥ 800 rps: at most $"), "{text}");
    }
}

#[test]
fn a_valid_rate_above_one_that_is_not_is_no_highest_valid_rate() {
    let mut broken = run().clone();
    broken.slo = None;
    tierlab_analysis::conclude(&mut broken);
    let middle = &mut broken.points[1];
    assert_eq!(middle.factors.offered_rps, 400.0);
    middle.summary.as_mut().unwrap().verdict = Verdict::Invalid(vec!["sent late".to_owned()]);
    let findings = tierlab_analysis::findings(&broken.points, None, &broken.limits);
    assert_eq!(findings[0].highest_valid_rps, Some(100.0));
}

#[test]
fn stages_above_the_latency_are_a_caution_and_not_a_share() {
    let lies = with(|_, repeat| {
        for band in &mut repeat.bands {
            let excess = 21.5 * band.mean_us;
            for (name, us) in &mut band.parts_us {
                match name.as_str() {
                    "infer" => *us += excess,
                    "network" => *us -= excess,
                    _ => {}
                }
            }
        }
    });
    for text in everywhere(&lies) {
        assert!(text.contains("its Server-Timing is wrong"), "{text}");
        assert!(!text.contains("2249 %") && !text.contains("2150 %"), "{text}");
    }
}

#[test]
fn a_server_that_does_not_tell_its_stages_did_not_fail() {
    let mut silent = run().clone();
    silent
        .points
        .retain(|point| point.repeats.iter().all(|repeat| repeat.errors.is_empty()));
    for repeat in silent.points.iter_mut().flat_map(|point| &mut point.repeats) {
        for band in &mut repeat.bands {
            let told = band.parts_us.iter().filter(|(name, _)| name != "send_lag");
            let told = told.map(|(_, us)| us).sum();
            band.parts_us.retain(|(name, _)| name == "send_lag");
            band.parts_us.push(("untold".to_owned(), told));
        }
    }
    tierlab_analysis::conclude(&mut silent);
    for text in everywhere(&silent) {
        assert!(
            text.contains("not told by the server") && !text.contains("failed, no timing"),
            "{text}"
        );
    }
}

#[test]
fn damaged_and_foreign_folders_are_refused_by_name() {
    let (_keep, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let dir = dir.path();
    let error = folder::load(dir).unwrap_err().to_string();
    assert!(error.contains("run.json"), "{error}");

    let mut small = run().clone();
    small.points.truncate(1);
    small.noise_floor = None;
    folder::write(&small, dir).unwrap();
    let json = std::fs::read_to_string(dir.join("run.json")).unwrap();
    std::fs::write(
        dir.join("run.json"),
        json.replacen("\"schema_version\": 1", "\"schema_version\": 99", 1),
    )
    .unwrap();
    assert!(matches!(folder::load(dir), Err(StoreError::Schema { found: 99, .. })));

    std::fs::write(dir.join("run.json"), json.replace("hdr/nvme", "../nvme")).unwrap();
    assert!(matches!(folder::load(dir), Err(StoreError::HdrFile(_))));

    std::fs::write(dir.join("run.json"), &json).unwrap();
    std::fs::write(dir.join(&small.points[0].repeats[0].hdr_file), "nonsense").unwrap();
    assert!(matches!(folder::load(dir), Err(StoreError::Entry { .. })));

    small.points[0].repeats[1].hdr_file = small.points[0].repeats[0].hdr_file.clone();
    assert!(matches!(folder::write(&small, dir), Err(StoreError::HdrFile(_))));
}

#[test]
fn gpus_have_a_section_where_a_server_saw_any_and_a_broken_promise_of_gds_is_invalid() {
    let page = |run: &Run| {
        let (_keep, dir) = folder();
        folder::write(run, &dir).unwrap();
        std::fs::read_to_string(dir.join("report.html")).unwrap()
    };
    assert!(!page(run()).contains("<h2>GPUs</h2>"));
    let mut with = run().clone();
    for repeat in &mut with.points[0].repeats {
        let server = repeat.server.as_mut().unwrap();
        server.session_seconds = [
            ("compute", 5.0),
            ("queue_wait", 0.5),
            ("storage_wait", 2.5),
            ("no_requests", 2.0),
        ]
        .map(|(state, seconds)| (state.to_owned(), seconds))
        .into();
        server.gpus = vec![GpuUse {
            busy_s: 0.4 * repeat.window_s,
            energy_j: 2.0 * server.inferences,
            ..GpuUse::default()
        }];
        server.device_reads = Some(DeviceReads {
            path: "gds".into(),
            missing: "nvidia-fs".into(),
            counted: true,
            posix: 7.0,
            peer_to_peer: 35.0,
            requests: 42.0,
            ..DeviceReads::default()
        });
    }
    with.points[0].summary = None;
    tierlab_analysis::summarise(&mut with.points, &with.limits, None);
    let summary = with.points[0].summary.as_ref().unwrap();
    let time = summary.gpu_time.unwrap();
    let near = |share: f64, want: f64| (share - want).abs() < 1e-9;
    assert!(
        near(time.busy, 0.4) && near(time.storage_wait, 0.25) && near(time.no_requests, 0.2),
        "{time:?}"
    );
    assert!(near(time.copy_and_host, 0.1) && near(time.queue_wait, 0.05), "{time:?}");
    assert!(near(summary.joules_per_inference.unwrap(), 2.0));
    assert!(
        matches!(&summary.verdict, Verdict::Invalid(why) if why[0].contains("7 of 42 reads went through POSIX")),
        "{}",
        summary.verdict
    );
    let html = page(&with);
    assert!(html.contains("<h2>GPUs</h2>") && html.contains("<td>gds</td>"));
}

#[test]
fn a_run_of_an_earlier_version_still_reads() {
    let (_keep, dir) = folder();
    let mut old = run().clone();
    old.selfcheck.clear();
    folder::write(&old, &dir).unwrap();
    let file = dir.join("run.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(json.as_object_mut().unwrap().remove("certificates").is_some());
    // A field of one of several hosts, which later versions no longer write.
    json["host"] = serde_json::json!({ "number": 0, "of": 2 });
    std::fs::write(&file, json.to_string()).unwrap();
    let read = folder::load(&dir).unwrap();
    assert!(read.certificates.is_empty());
    assert!(table(&read).contains("There is no self-check with this run; `tierlab-loadgen selfcheck` makes one"));
}

#[test]
fn where_only_the_median_is_common_to_all_it_stands_once() {
    let (_keep, dir) = folder();
    let heads = |run: &Run| {
        folder::write(run, &dir).unwrap();
        let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
        let head = page.split("class=\"brief\"").nth(1).unwrap();
        let count = |name: &str| {
            head.split("</thead>")
                .next()
                .unwrap()
                .matches(&format!(">{name}<"))
                .count()
        };
        (
            count("p50"),
            count("p95"),
            count("p99"),
            head.split("</table>").next().unwrap().to_owned(),
        )
    };
    assert!(matches!(heads(run()), (1, _, _, _)));
    let mut few = run().clone();
    for summary in few.points.iter_mut().filter_map(|point| point.summary.as_mut()) {
        (summary.p95_us, summary.p99_us) = (None, None);
    }
    let (p50, p95, p99, table) = heads(&few);
    assert_eq!((p50, p95, p99), (1, 0, 0));
    // As many cells as heads in every row.
    let heads = table.matches("<th").count() - table.matches("<thead").count();
    for row in table
        .split("<tbody")
        .nth(1)
        .unwrap()
        .split("</tr>")
        .filter(|row| row.contains("<td"))
    {
        assert_eq!(row.matches("<td").count(), heads, "{row}");
    }
}
