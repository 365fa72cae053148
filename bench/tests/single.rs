//! The storage bench as a process: what it prints, what it leaves behind, how it ends.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs the bench on an nvme tier over `root`, for a short time.
fn bench(root: &Path, arguments: &[&str]) -> Output {
    let mut command = command(root);
    command.args(["--seconds", "0.3", "--warmup", "0.1"]);
    command.args(arguments).output().unwrap()
}

fn command(root: &Path) -> Command {
    let config = root.join("tier.toml");
    std::fs::write(&config, format!("kind = \"nvme\"\nroot = \"{}\"", root.display())).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command.arg("--tier").arg(config);
    command
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn it_measures_its_own_object_and_removes_it() {
    let root = folder();
    let arguments = [
        "--size", "2MiB", "--block", "512", "--ranges", "8", "--depth", "4", "--json",
    ];
    let report = json(&bench(root.path(), &arguments));
    assert_eq!(report["object_bytes"], 2 << 20);
    assert_eq!(report["workload"]["ranges_per_call"], 8);
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    let calls = number("calls");
    assert!(calls > 0.0);
    let ranges = number("iops") * number("window_s");
    assert!((ranges - calls * 8.0).abs() < 1e-3 * ranges);
    assert!((number("mb_per_s") * 1e6 - number("iops") * 512.0).abs() < 1e-3 * number("mb_per_s") * 1e6);
    assert!(["direct", "page-cache"].contains(&report["via"].as_str().unwrap()));
    assert!(number("p50_us") <= number("max_us"));
    assert!(!root.path().join("storage-bench").exists());
}

#[test]
fn an_interrupt_of_the_warm_up_is_named() {
    let root = folder();
    let mut command = command(root.path());
    command.args(["--size", "64KiB", "--warmup", "60"]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let written = root.path().join("storage-bench");
    let is_written = || std::fs::read_dir(&written).is_ok_and(|mut objects| objects.next().is_some());
    let until = Instant::now() + Duration::from_secs(30);
    while !is_written() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    std::thread::sleep(Duration::from_millis(200));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("interrupted: the figures cover 0.0 s"), "{message}");
    assert!(!written.exists());
}

#[test]
fn a_cache_that_holds_everything_answers_everything() {
    let root = folder();
    let report = json(&bench(root.path(), &["--size", "64KiB", "--cache", "1MiB", "--json"]));
    assert!(report["cache_hit_ratio"].as_f64().unwrap() > 0.9, "{report}");
    assert!(report["via"].as_str().unwrap().starts_with("memory"));
}

#[test]
fn an_object_that_is_there_is_measured_and_kept() {
    let root = folder();
    std::fs::write(root.path().join("rows"), [7; 10_000]).unwrap();
    let output = bench(
        root.path(),
        &["--object", "rows", "--pattern", "sequential", "--block", "4KiB"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no `{name}` in\n{text}")).trim()
    };
    assert_eq!(
        (value("tier"), value("object"), value("object_bytes")),
        ("nvme", "rows", "10000")
    );
    assert_eq!(
        (value("workload_pattern"), value("workload_block_bytes")),
        ("sequential", "4096")
    );
    assert_eq!(value("workload_ranges_per_call"), "1");
    assert!(value("p50_us").parse::<f64>().unwrap() > 0.0);
    assert_eq!(std::fs::read(root.path().join("rows")).unwrap(), [7; 10_000]);
}

#[test]
fn mistakes_are_named_and_told_by_exit_code() {
    let root = folder();
    std::fs::write(root.path().join("small"), [7; 100]).unwrap();
    for (arguments, code, named) in [
        (&["--set", "depth=3"][..], 2, "depth"),
        (&["--set", "queue_depth=0"], 2, "queue_depth"),
        (&["--block", "0"], 2, "--block"),
        (&["--block", "3 feet"], 2, "feet"),
        (&["--seconds", "0"], 2, "--seconds"),
        (&["--cache", "100"], 2, "cache.capacity_bytes"),
        (&["--object", "absent"], 1, "absent"),
        (&["--object", "small"], 2, "--block"),
        (&["--object", "../x"], 2, "../x"),
        (&["--set", "root=/no/such/folder"], 1, "/no/such/folder"),
    ] {
        let output = bench(root.path(), arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn name_version_and_help_are_the_binarys_own() {
    let stdout = |flag: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"))
            .arg(flag)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{flag}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = format!("tierlab-storage-bench {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(stdout("--version").starts_with(&version), "{}", stdout("--version"));
    assert!(stdout("--help").contains("Usage: tierlab-storage-bench"));
}
