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
fn command(mode: &str, place: &Path, plan: &str) -> Command {
    std::fs::write(place.join("plan.toml"), plan).unwrap();
    std::fs::create_dir_all(place.join("scratch")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command
        .current_dir(project())
        .arg(mode)
        .arg(place.join("plan.toml"))
        .arg("--scratch")
        .arg(place.join("scratch"))
        .arg("--out")
        .arg(place.join("out"))
        .stdin(Stdio::null());
    command
}

fn run(mode: &str, place: &Path, plan: &str) -> Output {
    command(mode, place, plan).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `run.json` of a run that ended well.
fn kept(place: &Path, ended: &Output) -> serde_json::Value {
    assert!(ended.status.success(), "{}", said(ended));
    let text = std::fs::read(place.join("out/run.json")).unwrap();
    let kept: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for key in ["name", "interrupted", "environment", "tiers", "repeats", "plan"] {
        assert!(!kept[key].is_null(), "{key}");
    }
    kept
}

fn output_file(place: &Path, name: &str) -> String {
    std::fs::read_to_string(place.join("out").join(name)).unwrap()
}

fn assert_nothing_is_left(place: &Path) {
    let left: Vec<PathBuf> = std::fs::read_dir(place.join("scratch"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Each plan ends with 2, and the message names the plan or a file of it, and what is wrong.
fn assert_refused(mode: &str, cases: Vec<(String, &str)>) {
    for (text, what) in cases {
        let place = folder();
        let ended = run(mode, place.path(), &text);
        assert_eq!(ended.status.code(), Some(2), "{what}: {}", said(&ended));
        assert!(said(&ended).contains(what), "{what}: {}", said(&ended));
        assert!(said(&ended).contains("plan.toml"), "{what}: {}", said(&ended));
        assert_nothing_is_left(place.path());
    }
}
