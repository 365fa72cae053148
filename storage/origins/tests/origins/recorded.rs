//! A bucket recorded and replayed, all of it processes: the origin's, and the storage bench's twice.

use crate::process::{Origin, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_tierlab-origin")).with_file_name("tierlab-storage-bench");
    assert!(
        program.is_file(),
        "no {}: build the binaries first (cargo build --workspace --bins, as `make unit` does)",
        program.display()
    );
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn a_calibrated_bucket_is_replayed_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let bucket = folder.path().join("bucket");
    std::fs::create_dir(&bucket).unwrap();
    let origin = Origin::start(&["--s3-root", text(&bucket), "--bucket", "bucket"]);
    let (tier, memory, out) = (
        folder.path().join("s3.toml"),
        folder.path().join("memory.toml"),
        folder.path().join("profile.toml"),
    );
    // A service in front, so that the recording does not depend on this machine alone.
    let service = "latency = { distribution = \"empirical\", quantiles = [[0.75, 5000], [0.76, 20000]] }";
    let toml = format!(
        "kind = \"s3\"\nbucket = \"bucket\"\nendpoint = \"{}\"\nallow_http = true\nanonymous = true\n[emulated]\n{service}\n",
        origin.says("s3")
    );
    std::fs::write(&tier, toml).unwrap();
    std::fs::write(&memory, "kind = \"memory\"\n").unwrap();
    bench(&[
        "calibrate",
        "--tier",
        text(&tier),
        "--out",
        text(&out),
        "--place",
        "loopback",
        "--blocks",
        "4KiB,64KiB",
        "--depths",
        "1,4",
        "--rounds",
        "2",
        "--seconds",
        "0.4",
        "--warmup",
        "0.05",
        "--size",
        "1MiB",
    ]);
    // The bucket is gone; its profile is not.
    drop(origin);
    let set = format!("emulated.profile={}", out.display());
    let replayed = bench(&[
        "--tier",
        text(&memory),
        "--set",
        &set,
        "--size",
        "1MiB",
        "--block",
        "4KiB",
        "--depth",
        "4",
        "--seconds",
        "2",
        "--warmup",
        "0.1",
        "--json",
    ]);
    let report: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let us = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    // Three of four reads take 5 ms and more, the fourth 20 ms and more: wide enough for any machine, and the order is held.
    assert!(us("p50_us") >= 4900.0 && us("p50_us") < 19_000.0, "{report}");
    assert!(us("p95_us") >= 19_000.0, "{report}");
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("recorded s3 of \"loopback\""), "{note}");
    assert_eq!(report["tier"], "memory");
}
