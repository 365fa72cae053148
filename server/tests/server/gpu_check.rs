//! `scripts/gpu-check` on a machine without a GPU: its refusal, and a whole run on the stand-in for NVIDIA's libraries, labelled
//! as such. Nothing here is evidence about hardware.

use crate::harness::root;
use crate::standin::StandIn;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

/// Seconds after which a run is ended.
const PATIENCE_S: &str = "240";

fn gpu_check(folder: &Path, arguments: &[&str]) -> Output {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tierlab-server")).parent().unwrap();
    for name in ["loadgen", "models", "storage-bench"] {
        let binary = binaries.join(format!("tierlab-{name}"));
        assert!(
            binary.is_file(),
            "no {}: build the binaries first (cargo build --workspace --bins, as `make unit` does)",
            binary.display()
        );
    }
    Command::new("timeout")
        .args([PATIENCE_S, "scripts/gpu-check", "--bin"])
        .arg(binaries)
        .arg("--out")
        .arg(folder.join("out"))
        .arg("--disk")
        .arg(folder.join("disk"))
        .args(arguments)
        .current_dir(root())
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_a_gpu_it_is_one_message_with_everything_that_was_looked_for() {
    if Path::new("/dev/nvidiactl").exists() {
        eprintln!("a GPU is here: nothing is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = gpu_check(folder.path(), &[]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for named in [
        "libcuda.so.1",
        "libcufile.so.0",
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "/dev/nvidia-fs0",
        "LD_LIBRARY_PATH",
    ] {
        assert!(stderr.contains(named), "no {named} in {stderr}");
    }
    assert_eq!(stderr.matches("gpu-check: ").count(), 1, "one message: {stderr}");
    assert_eq!(stderr.matches("Searched:").count(), 1, "one list: {stderr}");
    assert!(
        output.stdout.is_empty() && !folder.path().join("out").exists(),
        "no result of nothing"
    );
}

#[test]
fn the_stand_in_is_refused_unless_it_is_asked_for() {
    let (folder, standin) = (tempfile::tempdir().unwrap(), StandIn::build());
    let libraries = standin.folder().display().to_string();
    let output = gpu_check(folder.path(), &["--libraries", &libraries]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("stand-in") && stderr.contains("no GPU"), "{stderr}");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn on_the_stand_in_it_runs_to_its_end_and_says_so_everywhere() {
    let (folder, standin) = (tempfile::tempdir().unwrap(), StandIn::build());
    let libraries = standin.folder().display().to_string();
    let short = [
        "--largest",
        "64KiB",
        "--seconds",
        "0.5",
        "--repeats",
        "1",
        "--step",
        "1",
        "--model-size",
        "small",
    ];
    let output = gpu_check(
        folder.path(),
        &[&["--stand-in", "--libraries", libraries.as_str()], &short[..]].concat(),
    );
    let out = folder.path().join("out");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    // Missing parts of ONNX Runtime's CPU library and this Python are named, and nothing else is missing.
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    let skipped = read("skipped.txt");
    for line in skipped.lines() {
        let is_missing_part = line.starts_with("peers: ")
            || line.starts_with("sweep: ctr on cuda")
            || line.starts_with("sweep: vision on cuda");
        assert!(is_missing_part, "{line}");
    }
    assert_eq!(
        skipped.matches("`runtime.provider = \"cuda\"` cannot be used").count(),
        3,
        "{skipped}"
    );
    let mark = "STAND-IN, NO GPU";
    for (what, text) in [
        ("environment.txt", read("environment.txt")),
        ("paths.md", read("paths.md")),
        ("stdout", stdout),
    ] {
        assert!(text.contains(mark), "{what} should say {mark}:\n{text}");
    }
    let paths = read("paths.csv");
    let rows: Vec<Vec<&str>> = paths.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 2 * 5 * 3, "{paths}");
    assert!(rows.iter().all(|row| row[8] == "valid stand-in"), "{paths}");
    let ways: BTreeSet<(&str, &str)> = rows.iter().map(|row| (row[1], row[4])).collect();
    assert!(
        ways.contains(&("gds", "gds")) && ways.contains(&("compat", "cufile-posix")),
        "{ways:?}"
    );
    for model in ["vision", "ctr"] {
        let run: Value = serde_json::from_str(&read(&format!("sweep-{model}-cpu/run.json"))).unwrap();
        let points = run["points"].as_array().unwrap().len();
        assert_eq!(points, if model == "ctr" { 3 } else { 1 });
        let gpu = &run["points"][0]["repeats"][0]["server"]["gpus"][0]["name"];
        assert!(gpu.as_str().unwrap().contains("stand-in (no GPU)"), "{gpu}");
    }
}
