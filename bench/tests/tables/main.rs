//! Runs over tables as a process, over real folders, an embedded S3 and emulated storage: what they leave, what they say, and what they refuse.

mod caching;
mod layouts;
mod offline;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// On the disk below the project's target folder: a temporary folder may lie in memory, where nothing is direct.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn configs() -> PathBuf {
    project().join("configs")
}

/// The bench with a plan. It begins in the project: ONNX Runtime is looked for from here, as from a checkout.
fn command(mode: &str, folder: &Path, plan: &str) -> Command {
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    std::fs::create_dir_all(folder.join("scratch")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command
        .current_dir(project())
        .arg(mode)
        .arg(folder.join("plan.toml"))
        .arg("--scratch")
        .arg(folder.join("scratch"))
        .arg("--out")
        .arg(folder.join("out"))
        .stdin(Stdio::null());
    command
}

fn run(mode: &str, folder: &Path, plan: &str) -> Output {
    command(mode, folder, plan).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `run.json` of a run that ended well, whose answer a terminal holds and whose `report.md` is short.
fn run_json(folder: &Path, output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", stderr(output));
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.lines().count() <= 25, "{answer}");
    for line in answer.lines().filter(|line| !line.starts_with("report:  ")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let words = output_file(folder, "report.md").split_whitespace().count();
    assert!(words <= 800, "report.md has {words} words");
    let page = output_file(folder, "report.html");
    let (first_screen, sections) = page.split_once("<nav class=\"contents\"").unwrap();
    assert!(first_screen.contains("class=\"said\"") && first_screen.contains("class=\"brief ranking\""));
    assert!(sections.contains("<a href=\"#part0\">Findings</a>") && sections.contains("id=\"part0\""));
    let text = std::fs::read(folder.join("out/run.json")).unwrap();
    let run_json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for key in ["name", "interrupted", "environment", "tiers", "repeats", "plan"] {
        assert!(!run_json[key].is_null(), "{key}");
    }
    run_json
}

fn output_file(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join("out").join(name)).unwrap()
}

fn assert_nothing_is_left(folder: &Path) {
    let left: Vec<PathBuf> = std::fs::read_dir(folder.join("scratch"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Each plan ends with 2, and the message names the plan or a file of it, and what is wrong.
fn assert_refused(mode: &str, cases: Vec<(String, &str)>) {
    for (text, what) in cases {
        let folder = folder();
        let output = run(mode, folder.path(), &text);
        assert_eq!(output.status.code(), Some(2), "{what}: {}", stderr(&output));
        assert!(stderr(&output).contains(what), "{what}: {}", stderr(&output));
        assert!(stderr(&output).contains("plan.toml"), "{what}: {}", stderr(&output));
        assert_nothing_is_left(folder.path());
    }
}
