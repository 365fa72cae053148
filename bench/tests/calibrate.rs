//! `calibrate` as a process: what it records of a tier whose law is known, what a replay of it says, how mistakes end.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const SIZES: [u64; 2] = [4096, 65_536];
const DEPTHS: [u64; 2] = [1, 4];

/// A service that takes 4 ms for the first byte, then 6.5 MB/s: 64 KiB take some 14 ms, at any depth.
const TIER: &str = "kind = \"memory\"\n[emulated]\nconnection_bytes_per_s = 6_553_600\n\
                    latency = { distribution = \"lognormal\", median_us = 4000, sigma = 0 }\n";

fn program(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command.args(arguments).output().unwrap()
}

fn calibrate(folder: &Path, out: &Path, more: &[&str]) -> Output {
    let tier = folder.join("tier.toml");
    let mut arguments = vec![
        "calibrate",
        "--tier",
        tier.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ];
    arguments.extend([
        "--place",
        "a test bench",
        "--blocks",
        "4KiB,64KiB",
        "--depths",
        "1,4",
        "--rounds",
        "2",
    ]);
    arguments.extend(["--seconds", "0.25", "--warmup", "0.02", "--size", "1MiB"]);
    arguments.extend(more);
    program(&arguments)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The latency that the service takes by its law, in microseconds.
fn law_us(bytes: u64) -> f64 {
    4000.0 + bytes as f64 / 6.5536
}

/// Far more than waking takes on any machine: what is held here is what was recorded of what, not how fast the machine is.
fn is_about(us: f64, law_us: f64) -> bool {
    us >= law_us * 0.99 && us < law_us * 3.0 + 50_000.0
}

#[test]
fn the_expected_time_includes_the_pauses_between_rounds() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tier.toml"), TIER).unwrap();
    let out = folder.path().join("profile.toml");
    let output = calibrate(folder.path(), &out, &["--every", "3s"]);
    assert!(output.status.success(), "{}", stderr(&output));
    // Four points in each of two rounds; a round takes 3 s.
    let text = stderr(&output);
    assert!(text.contains("repeats: 8, about 6s"), "{text}");
}

#[test]
fn a_tier_is_recorded_and_replayed_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tier.toml"), TIER).unwrap();
    let out = folder.path().join("profile.toml");
    let output = calibrate(folder.path(), &out, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        stdout.contains("recorded memory of \"a test bench\"") && stdout.contains("64 KiB"),
        "{stdout}"
    );
    let profile: toml::Table = std::fs::read_to_string(&out).unwrap().parse().unwrap();
    let points = profile["points"].as_array().unwrap();
    assert_eq!(points.len(), SIZES.len() * DEPTHS.len());
    let shares = profile["shares"].as_array().unwrap();
    let median = shares.iter().position(|share| share.as_float() == Some(0.5)).unwrap();
    for point in points {
        let bytes = u64::try_from(point["bytes"].as_integer().unwrap()).unwrap();
        let us = point["latency_us"][median].as_float().unwrap();
        assert!(is_about(us, law_us(bytes)), "{bytes} bytes: {us}");
        assert!(point["calls"].as_integer().unwrap() > 0);
    }
    assert_eq!(profile["rounds"].as_array().unwrap().len(), 2);
    let client = profile["origin"]["environment"]["client"].as_str().unwrap();
    assert!(client.starts_with("tierlab-storage-bench "), "{client}");

    // Over a tier of this process that takes nothing by itself.
    let memory = folder.path().join("memory.toml");
    std::fs::write(&memory, "kind = \"memory\"\n").unwrap();
    let set = format!("emulated.profile={}", out.display());
    let replayed = program(&[
        "--tier",
        memory.to_str().unwrap(),
        "--set",
        &set,
        "--size",
        "1MiB",
        "--block",
        "64KiB",
        "--depth",
        "4",
        "--seconds",
        "0.3",
        "--warmup",
        "0.1",
        "--json",
    ]);
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    let report: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let us = report["p50_us"].as_f64().unwrap();
    assert!(is_about(us, law_us(65_536)), "{report}");
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.starts_with("emulated: recorded memory of \"a test bench\", 20"),
        "{note}"
    );
    assert!(note.ends_with("itself emulated: custom"), "{note}");
}

#[test]
fn errors_of_the_tier_are_counted_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let failing = format!("{TIER}errors = [{{ kind = \"unavailable\", rate = 0.2, after_ms = 1 }}]\nseed = 5\n");
    std::fs::write(folder.path().join("tier.toml"), failing).unwrap();
    let out = folder.path().join("profile.toml");
    let output = calibrate(folder.path(), &out, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let profile: toml::Table = std::fs::read_to_string(&out).unwrap().parse().unwrap();
    let error = &profile["errors"][0];
    assert_eq!(error["kind"].as_str(), Some("unavailable"));
    let rate = error["rate"].as_float().unwrap();
    // Of some hundred reads and more one in five: five standard errors and more on each side.
    assert!((0.05..0.45).contains(&rate), "{rate}");
    // A tier that does nothing but fail is no tier to record.
    let dead = format!("{TIER}errors = [{{ kind = \"unavailable\", rate = 0.9, after_ms = 1 }}]\nretries = 0\n");
    std::fs::write(folder.path().join("tier.toml"), dead).unwrap();
    let none = folder.path().join("none.toml");
    let output = calibrate(folder.path(), &none, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("emulated unavailable") && !none.exists(),
        "{}",
        stderr(&output)
    );
}

#[test]
fn mistakes_are_named_and_nothing_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tier.toml"), TIER).unwrap();
    let there = folder.path().join("there.toml");
    std::fs::write(&there, "kept").unwrap();
    let fresh = folder.path().join("fresh.toml");
    for (out, more, named) in [
        (&there, &[][..], "there.toml exists"),
        (&folder.path().join("profile.json"), &[], ".toml"),
        (&fresh, &["--blocks", "0"], "--blocks"),
        (&fresh, &["--blocks", "2MiB"], "--blocks"),
        (&fresh, &["--depths", "0"], "depths"),
        (&fresh, &["--seconds", "0"], "--seconds"),
        (&fresh, &["--every", "2days"], "--every"),
        (&fresh, &["--place", "a\tb"], "--place"),
        (&fresh, &["--set", "speed=3"], "speed"),
    ] {
        // A flag that is given twice is refused by itself: those of the test go in the place of the usual ones.
        let tier = folder.path().join("tier.toml");
        let mut arguments = vec![
            "calibrate",
            "--tier",
            tier.to_str().unwrap(),
            "--out",
            out.to_str().unwrap(),
        ];
        if !more.contains(&"--place") {
            arguments.extend(["--place", "x"]);
        }
        if !more.contains(&"--blocks") {
            arguments.extend(["--blocks", "4KiB"]);
        }
        arguments.extend(["--size", "1MiB"]);
        arguments.extend(more);
        let output = program(&arguments);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{more:?}: {}", stderr(&output));
    }
    assert_eq!(std::fs::read_to_string(&there).unwrap(), "kept");
    assert!(!fresh.exists());
    // A folder that is not there is named before the measurement.
    let output = calibrate(folder.path(), &folder.path().join("none/p.toml"), &[]);
    let text = stderr(&output);
    assert!(text.contains("none/p.toml") && !text.contains("repeats"), "{text}");
    // A profile that is damaged names itself and the place.
    std::fs::write(&fresh, "schema = 1\nshares = [0.0, 0.5]\n").unwrap();
    let set = format!("emulated.profile={}", fresh.display());
    let memory = folder.path().join("tier.toml");
    let output = program(&[
        "--tier",
        memory.to_str().unwrap(),
        "--set",
        "emulated.latency=",
        "--set",
        &set,
        "--seconds",
        "0.1",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("fresh.toml"), "{}", stderr(&output));
}
