//! The storage bench as a process on the stand-in: what it measures, and its verdict on the way that was asked for.

#[path = "../../storage/tests/standin/mod.rs"]
mod standin;

use serde_json::Value;
use standin::StandIn;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder to measure in, and the stand-in.
struct Harness {
    root: TempDir,
    standin: StandIn,
}

impl Harness {
    fn new() -> Self {
        // Below the project's target folder rather than in memory, so that there are direct reads.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let standin = StandIn::build();
        Self { root, standin }
    }
}

fn bench(harness: &Harness, path: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let config = harness.root.path().join("tier.toml");
    let text = format!(
        "kind = \"gds\"\nroot = \"{}\"\npath = \"{path}\"",
        harness.root.path().display()
    );
    std::fs::write(&config, text).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"))
        .arg("--tier")
        .arg(config)
        .args([
            "--seconds",
            "0.3",
            "--warmup",
            "0.05",
            "--size",
            "1MiB",
            "--block",
            "64KiB",
            "--json",
        ])
        .args(arguments)
        .env("LD_LIBRARY_PATH", harness.standin.folder())
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn every_path_is_measured_to_the_device_and_to_the_host() {
    let harness = Harness::new();
    for (path, via) in [
        ("gds", "gds"),
        ("compat", "cufile-posix"),
        ("bounce", "bounce"),
        ("bounce-direct", "bounce-direct"),
        ("pageable", "pageable"),
    ] {
        for arguments in [&["--into", "device"][..], &[]] {
            let output = bench(&harness, path, &[], arguments);
            let report = json(&output);
            let took = report["via"].as_str().unwrap();
            assert!(
                took == via || (path == "bounce-direct" && took == "bounce"),
                "{path}: {report}"
            );
            assert!(report["calls"].as_u64().unwrap() > 0);
            assert_eq!(report["invalid"], Value::Null, "{path}: {report}");
            assert!(output.status.success());
        }
    }
}

#[test]
fn a_run_that_asked_for_gds_and_got_posix_is_invalid() {
    let harness = Harness::new();
    for (name, value) in [("STANDIN_WAY", "2"), ("STANDIN_STATS_CODE", "5030")] {
        let output = bench(&harness, "gds", &[(name, value)], &["--into", "device"]);
        let report = json(&output);
        assert_eq!(report["via"], "cufile-posix");
        let why = report["invalid"].as_str().unwrap();
        assert!(
            why.contains("GPUDirect Storage was requested") && why.contains("missing:"),
            "{why}"
        );
        assert_eq!(output.status.code(), Some(1), "an invalid run is no success");
    }
}

#[test]
fn a_tier_without_device_memory_says_so() {
    let harness = Harness::new();
    let output = bench(
        &harness,
        "gds",
        &[],
        &["--into", "device", "--set", "kind=nvme", "--set", "path=x"],
    );
    assert_eq!(output.status.code(), Some(2));
    let config = harness.root.path().join("nvme.toml");
    std::fs::write(
        &config,
        format!("kind = \"nvme\"\nroot = \"{}\"", harness.root.path().display()),
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"))
        .args(["--into", "device", "--size", "1MiB", "--tier"])
        .arg(config)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--into") && text.contains("device memory"), "{text}");
}
