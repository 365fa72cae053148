//! Files of a run, read back, and its reports: table, CSV, page and Markdown.

use crate::{answered, run, run_folder, synthetic};
use hdrhistogram::Histogram;
use std::collections::BTreeSet;
use tierlab_analysis::record::{
    AnswerOutcome, Driven, InstancePrice, MeetsObjective, Mode, Percentile, Run, SloOutcome, Verdict,
};
use tierlab_loadgen::commands::report;
use tierlab_loadgen::error::StoreError;
use tierlab_loadgen::store::folder;
use tierlab_report::table;

#[test]
fn a_folder_reads_back_and_its_summary_can_be_made_again() {
    let (_keep, dir) = run_folder();
    synthetic::write(run(), &dir).unwrap();
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
    let to = report::ReportOptions {
        runs: vec![dir.clone(), dir.clone()],
        combined: Some(combined.clone()),
        ..report::ReportOptions::default()
    };
    report::rewrite(&to).unwrap();
    assert!(dir.join("summary.csv").exists());
    assert!(std::fs::read_to_string(combined).unwrap().contains("href=\"#run1\""));
}

#[test]
fn the_csv_has_a_row_per_point_and_says_what_the_histograms_say() {
    let (_keep, dir) = run_folder();
    synthetic::write(run(), &dir).unwrap();
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
            // An estimate without an interval has no ends.
            let lo = number(&format!("{name}_lo"));
            assert!(lo.map_or(grade == "rough", |lo| lo <= us), "{row:?}");
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
    assert!(batch.contains("tier wait in the device or the remote store"), "{batch}");
    let warm = sentence("• nvme warm 10 % realtime: ");
    assert!(
        warm.contains("of their blocks came from the cache, 72 % of all"),
        "{warm}"
    );
    assert!(table.contains("Self-check failed: send lag p99"));
}

#[test]
fn the_page_is_self_contained_and_escapes_what_others_wrote() {
    let (_keep, dir) = run_folder();
    synthetic::write(run(), &dir).unwrap();
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
    let (_keep, dir) = run_folder();
    synthetic::write(run(), &dir).unwrap();
    let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
    // One card for each of three tiers, two caches and two modes.
    assert_eq!(page.matches("class=\"heat\"").count(), 12);
    assert_eq!(page.matches("\"title\":\"latency that a share").count(), 2);
    assert!(page.contains("highest rate with p99 &lt; 20 ms") && page.contains("≥ 800 rps"));
    assert!(page.contains("imaginary.disk, $0.300/h, unchecked"));
    assert!(page.contains("\"crosses\":[[") && page.contains("cost the same at a hit ratio of"));
    // An instance that no variant is priced on and that is the cheapest for no tier is left out.
    let mut other = run().clone();
    let pricing = other.pricing.as_mut().unwrap();
    pricing.instances.push(InstancePrice {
        name: "imaginary.dear".to_owned(),
        usd_per_hour: 1e3,
        checked: false,
    });
    for names in pricing.instances_by_tier.values_mut() {
        names.push("imaginary.dear".to_owned());
    }
    assert!(!tierlab_report::page(&[&other]).contains("imaginary.dear"));
    // If misses are free, no cache is worth its price at any hit ratio.
    let mut free = run().clone();
    let pricing = free.pricing.as_mut().unwrap();
    pricing.usd_per_request.clear();
    pricing.usd_per_byte.clear();
    let page = tierlab_report::page(&[&free]);
    assert!(!page.contains("over the hit ratio of a cache") && !page.contains("at every hit ratio"));
}

#[test]
fn the_markdown_says_the_same_and_escapes_what_others_wrote() {
    let (_keep, dir) = run_folder();
    synthetic::write(run(), &dir).unwrap();
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
fn the_cost_at_a_rate_above_the_highest_is_a_lower_bound() {
    let cost = |highest_rps: f64| {
        let mut run = answered::run(AnswerOutcome::Decided);
        let best = &mut run.answer.as_mut().unwrap().ranking[0];
        (best.highest_rps, best.highest_rps_lo) = (Some(highest_rps), Some(0.9 * highest_rps));
        best.highest_rps_hi = Some(1.1 * highest_rps);
        let text = tierlab_report::markdown(&run);
        let line = text.lines().find(|line| line.starts_with("- nvme cold realtime: "));
        let mark = "highest rate under the objective ";
        line.and_then(|line| line.split(mark).nth(1)).unwrap().to_owned()
    };
    assert!(cost(90.0).starts_with("90 rps: at least $"), "{}", cost(90.0));
    assert!(cost(100.0).starts_with("100 rps: $"), "{}", cost(100.0));
    assert!(cost(110.0).starts_with("110 rps: at most $"), "{}", cost(110.0));
}

#[test]
fn an_unknown_highest_rate_is_not_called_none_beside_the_others() {
    let page = tierlab_report::page(&[&answered::run(AnswerOutcome::Undecided)]);
    let (_, table) = page.split_once("against the fastest</th>").unwrap();
    let table = table.split("</table>").next().unwrap();
    let row = |variant: &str| table.split("<tr").find(|row| row.contains(variant)).unwrap();
    assert!(row("s3-standard").contains("none"), "{}", row("s3-standard"));
    assert!(!row("nfs").contains("none"), "{}", row("nfs"));
}

#[test]
fn a_curve_outside_of_the_question_has_no_rate_under_its_objective() {
    let batch = run().points.iter().filter(|point| {
        let factors = &point.factors;
        (factors.tier.as_str(), factors.cache.as_str(), factors.mode) == ("nvme", "cold", Mode::Batch)
    });
    let batch = batch.cloned().map(|mut point| {
        "nvme".clone_into(&mut point.factors.variant);
        point
    });
    let mut run = answered::run(AnswerOutcome::Decided);
    run.points.extend(batch);
    run.slo = None;
    let text = table(&run);
    let sentence = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    let asked = sentence("• nvme cold realtime: ");
    assert!(
        asked.contains("; highest rate under the objective 812 rps: "),
        "{asked}"
    );
    let other = sentence("• nvme cold batch: ");
    assert!(
        other.contains("; highest valid rate ") && !other.contains("under the objective"),
        "{other}"
    );
}

#[test]
fn an_open_end_of_a_highest_rate_is_unknown_and_no_number() {
    // The search went from 20/s to 800/s.
    let page = |lo: f64, hi: f64| {
        let mut run = run().clone();
        for slo in run.findings.iter_mut().filter_map(|finding| finding.slo.as_mut()) {
            slo.outcome = SloOutcome::Found;
            if let Some(highest) = &mut slo.highest_rps {
                (highest.lo, highest.hi) = (lo, hi);
            }
        }
        tierlab_report::page(&[&run])
    };
    assert!(page(10.0, 790.0).contains("[10–790]"));
    for (lo, hi, number, says) in [
        (0.0, 790.0, "[0–790]", "(unknown between 20 and 790/s)"),
        (30.0, 800.0, "[30–800]", "(unknown between 30 and 800/s)"),
    ] {
        let page = page(lo, hi);
        assert!(page.contains(says) && !page.contains(number), "{says}");
    }
}

#[test]
fn a_variant_that_misses_the_objective_is_not_the_fastest() {
    let fastest = |run: &Run| {
        let page = tierlab_report::page(&[run]);
        let (_, table) = page.split_once("against the fastest</th>").unwrap();
        let table = table.split("</table>").next().unwrap();
        table.matches(">fastest<").count()
    };
    let mut run = answered::run(AnswerOutcome::Decided);
    assert_eq!(fastest(&run), 1);
    for ranked in &mut run.answer.as_mut().unwrap().ranking {
        ranked.outcome = MeetsObjective::NotMet;
    }
    assert!(!tierlab_report::page(&[&run]).contains(">fastest<"));
}

#[test]
fn only_a_variant_within_the_tie_margin_costs_the_same() {
    let mut run = answered::run(AnswerOutcome::Undecided);
    let is_said = |usd: f64| {
        run.answer.as_mut().unwrap().ranking[1].usd_per_month = Some(usd);
        tierlab_report::markdown(&run).contains("costs the same within")
    };
    assert_eq!([66.0, 130.0, 134.0, 158.0].map(is_said), [false, true, true, false]);
}

#[test]
fn thin_runs_have_a_report_too() {
    let (_keep, dir) = run_folder();
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
        synthetic::write(thin, &dir).unwrap();
        folder::load(&dir).unwrap();
        let page = std::fs::read_to_string(dir.join("report.html")).unwrap();
        let text = table(thin);
        assert!(page.contains("stopped early") && text.contains("stopped before its last point"));
        // A stop leaves points with fewer repeats than others.
        assert!(text.contains("may have fewer repeats than planned") && !text.contains("are complete"));
        assert!(!page.contains("NaN") && !text.contains("NaN"));
    }
    assert!(tierlab_report::page(&[&single]).contains("<span>1 point, "));
    let summary = silent.points[0].summary.as_ref().unwrap();
    assert!(summary.p50_us.is_none() && summary.usd_per_10k.is_none());
    assert_eq!(
        summary.verdict,
        Verdict::Invalid(vec!["no requests in the window".to_owned()])
    );
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
    synthetic::write(&small, dir).unwrap();
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
}

#[test]
fn an_open_loop_that_a_stop_left_out_is_not_blamed_on_the_closed_loop_alone() {
    let mut stopped = run().clone();
    stopped.points.truncate(1);
    let (users, think_time) = (4, "0 ms".to_owned());
    stopped.points[0].factors.driven = Some(Driven::ClosedLoop { users, think_time });
    stopped.interrupted = true;
    let text = table(&stopped);
    assert!(text.contains("closed, 4 users"), "{text}");
    assert!(text.contains("open: not measured, as the run stopped or"), "{text}");
}

#[test]
fn a_run_of_an_earlier_version_still_reads() {
    let (_keep, dir) = run_folder();
    let mut old = run().clone();
    old.selfcheck.clear();
    synthetic::write(&old, &dir).unwrap();
    let file = dir.join("run.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(json.as_object_mut().unwrap().remove("certificates").is_some());
    // A field of one of several hosts, which later versions no longer write.
    json["host"] = serde_json::json!({ "number": 0, "of": 2 });
    std::fs::write(&file, json.to_string()).unwrap();
    let read = folder::load(&dir).unwrap();
    assert!(read.certificates.is_empty());
    assert!(table(&read).contains("This run has no self-check; `tierlab-loadgen selfcheck` makes one"));
}
