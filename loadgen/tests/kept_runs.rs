//! Stored runs in `results/`, by this version and by earlier ones, can still be read: `report` rewrites their reports,
//! which agree with each other. `TIERLAB_CHECK_RUN=FOLDER cargo nextest run -p tierlab-loadgen --test kept_runs` checks
//! the files of any run.

mod agreement;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folders below `results/` with all of some files. Runs of the storage bench have no `summary.csv`.
fn kept(files: &[&str]) -> Vec<PathBuf> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
    let entries = std::fs::read_dir(results).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries
        .filter(|folder| files.iter().all(|file| folder.join(file).is_file()))
        .collect();
    folders.sort();
    folders
}

#[test]
fn every_kept_run_opens() {
    let runs = kept(&["run.json", "summary.csv"]);
    assert!(!runs.is_empty(), "results/ keeps no run");
    for run in runs {
        let text = std::fs::read(run.join("run.json")).unwrap();
        let json: Value = serde_json::from_slice(&text).unwrap();
        assert!(
            json["schema_version"].is_u64(),
            "{} has no schema_version",
            run.display()
        );
        let out = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tierlab-loadgen"))
            .arg("report")
            .arg(&run)
            .arg("--out")
            .arg(out.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        is_brief(&String::from_utf8(output.stdout).unwrap());
        let words = std::fs::read_to_string(out.path().join("report.md")).unwrap();
        let words = words.split_whitespace().count();
        assert!(words <= 800, "{}: report.md has {words} words", run.display());
        assert!(output.status.success(), "{}: {said}", run.display());
        for view in ["summary.csv", "report.md", "report.html"] {
            let bytes = std::fs::metadata(out.path().join(view)).map_or(0, |file| file.len());
            assert!(bytes > 0, "{}: no {view}: {said}", run.display());
        }
        let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
        contents_link_every_section(&page);
        variants_keep_their_looks(&figures(&page));
        break_evens_are_with_the_winner(&page);
        intervals_are_drawn_at_the_pointer_only(&page);
        let mut found = agreement::disagreements(out.path(), &run);
        found.extend(advised(out.path(), &run));
        assert!(found.is_empty(), "{}:\n{}", run.display(), found.join("\n"));
    }
}

/// Fails if the links of the contents are not those of the closed sections.
fn contents_link_every_section(page: &str) {
    let contents = page.split("<nav class=\"contents\"").nth(1).unwrap();
    let links = contents.split("</nav>").next().unwrap().split(" href=\"#").skip(1);
    let links: Vec<&str> = links.map(|link| link.split('"').next().unwrap()).collect();
    let sections = contents.split("<details class=\"part\" id=\"").skip(1);
    let sections: Vec<&str> = sections.map(|section| section.split("\">").next().unwrap()).collect();
    assert!(links.len() > 3 && links == sections, "{links:?} {sections:?}");
}

/// Data of the figures of a page.
fn figures(page: &str) -> Vec<Value> {
    let figures = page.split("<script type=\"application/json\">").skip(1);
    let data = figures.map(|figure| figure.split("</script>").next().unwrap());
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Fails if a variant has another colour, dash or mark in another figure, or if two of a figure share all three.
fn variants_keep_their_looks(figures: &[Value]) {
    let mut looks: BTreeMap<&str, &Value> = BTreeMap::new();
    for figure in figures {
        let mut labels: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for series in figure["series"].as_array().unwrap() {
            let label = series["label"].as_str().unwrap();
            assert_eq!(*looks.entry(label).or_insert(series), series, "{label}");
            let look = format!("{} {} {}", series["colour"], series["dash"], series["marker"]);
            labels.entry(look).or_default().insert(label);
        }
        assert!(labels.values().all(|labels| labels.len() == 1), "{labels:?}");
    }
    assert!(looks.len() > 1, "{looks:?}");
}

/// Fails if break-evens are not those of each other tier with the winner, which is the first line of its chart.
fn break_evens_are_with_the_winner(page: &str) {
    let figures = figures(page);
    let charts = figures.iter().flat_map(|figure| figure["charts"].as_array().unwrap());
    let is_over_hits = |chart: &&Value| {
        chart["title"]
            .as_str()
            .unwrap()
            .contains("over the hit ratio of a cache")
    };
    let mut others = 0;
    for chart in charts.filter(is_over_hits) {
        let numbers = |list: &Value| -> Vec<f64> {
            let numbers = list.as_array().unwrap().iter();
            numbers.map(|number| number.as_f64().unwrap()).collect()
        };
        let winner = &chart["lines"][0];
        let (x, y) = (numbers(&winner["x"]), numbers(&winner["y"]));
        others += chart["lines"].as_array().unwrap().len() - 1;
        for cross in chart["crosses"].as_array().unwrap() {
            let cross = numbers(cross);
            let right = x.iter().position(|x| *x >= cross[0]).unwrap().max(1);
            let part = (cross[0] - x[right - 1]) / (x[right] - x[right - 1]);
            let on_line = y[right - 1] + part * (y[right] - y[right - 1]);
            assert!((on_line / cross[1] - 1.0).abs() < 1e-3, "{cross:?} is not on {winner}");
        }
    }
    let sentences = page.split("<li>").filter(|item| item.contains(" cost the same"));
    assert!(others > 0);
    assert_eq!(sentences.count(), others, "one for each line but the winner's");
}

/// Fails if the script draws intervals of lines that nobody points at.
fn intervals_are_drawn_at_the_pointer_only(page: &str) {
    let (_, draw) = page.split_once("const draw = ").unwrap();
    let (draw, _) = draw.split_once("const drawLimits = ").unwrap();
    let (mut guard, mut guarded) = (None, 0);
    for line in draw.lines() {
        let indent = line.len() - line.trim_start().len();
        guard = guard.filter(|guard| indent > *guard);
        if line.contains("isNear && line.lo") {
            guard = Some(indent);
            guarded += 1;
        }
        let code = line.replace("line.highest", "");
        let draws = code.contains("line.lo") || code.contains("line.hi");
        assert!(guard.is_some() || !draws, "{line}");
    }
    assert!(guarded > 0 && page.contains("near = NONE"));
}

/// Fails if a terminal does not hold the text.
fn is_brief(text: &str) {
    let lines = text.lines().count();
    assert!((8..=25).contains(&lines), "{lines} lines:\n{text}");
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= 100, "{columns} columns: {line}");
    }
    assert!(text.contains("report:  ") && text.contains(" --verbose"), "{text}");
}

/// Differences of `advise` from a folder's `answer.json`, for the run's own question.
fn advised(views: &Path, run: &Path) -> Vec<String> {
    let Ok(answer) = std::fs::read(views.join("answer.json")) else {
        return Vec::new();
    };
    let output = Command::new(env!("CARGO_BIN_EXE_tierlab-loadgen"))
        .arg("advise")
        .arg(run)
        .arg("--json")
        .output()
        .unwrap();
    let [answer, advised] = [&answer, &output.stdout].map(|text| serde_json::from_slice(text).unwrap());
    agreement::between(&answer, &advised)
}

#[test]
fn every_kept_answer_agrees_with_the_files_beside_it() {
    let answers = kept(&["answer.json", "summary.csv", "report.md"]);
    assert!(!answers.is_empty(), "results/ keeps no answer with its report");
    for folder in answers {
        let found = agreement::disagreements(&folder, &folder);
        assert!(found.is_empty(), "{}:\n{}", folder.display(), found.join("\n"));
    }
}

#[test]
fn a_named_run_agrees_with_itself() {
    let Some(run) = std::env::var_os("TIERLAB_CHECK_RUN").map(PathBuf::from) else {
        return;
    };
    let mut found = agreement::disagreements(&run, &run);
    found.extend(advised(&run, &run));
    assert!(found.is_empty(), "{}:\n{}", run.display(), found.join("\n"));
}
