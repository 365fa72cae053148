//! Stored runs in `results/`, by this version and by earlier ones, can still be read: `report` rewrites their reports,
//! which agree with each other. `TIERLAB_CHECK_RUN=FOLDER cargo nextest run -p tierlab-loadgen --test kept_runs` checks
//! the files of any run.

mod agreement;

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
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
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
        let mut found = agreement::disagreements(out.path(), &run);
        found.extend(advised(out.path(), &run));
        assert!(found.is_empty(), "{}:\n{}", run.display(), found.join("\n"));
    }
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
