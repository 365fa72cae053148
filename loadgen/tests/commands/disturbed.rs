//! Steps beside a busy foreign process, through the real binary.

use crate::program::{NullEndpoint, Workdir, run};
use serde_json::Value;
use std::process::{Child, Command};

/// A busy loop that is no child of the load generator; ended when dropped.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        Self::doing("while :; do :; done")
    }

    fn doing(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures with only a CPU limit.
fn measured(limit: &str) -> (Workdir, Value, String, String) {
    measured_with(&format!("foreign_cpu_share = {limit}\nforeign_disk_bytes_per_s = 1e12"))
}

/// A window with three times the looks at the machine that a judgement needs.
fn measured_with(limits: &str) -> (Workdir, Value, String, String) {
    measured_by("", limits)
}

/// Same, with more keys of the plan.
fn measured_by(keys: &str, limits: &str) -> (Workdir, Value, String, String) {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 3.0\ndrain_s = 0.5\n\
         max_in_flight = 16\n{keys}[limits]\n{limits}\nsteal_share = 1\n\
         foreign_network_bytes_per_s = 1e12\nforeign_io_pressure = 1\nforeign_memory_pressure = 1\n\
         [[load]]\nmode = \"realtime\"\nrates = [100]\n"
    ));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = place.run_json();
    (place, run, ended.stdout, ended.stderr)
}

#[test]
fn a_step_beside_a_stranger_is_made_again_and_then_invalid() {
    let _stranger = Stranger::start();
    let (place, run, table, said) = measured("0.0");
    assert_eq!(
        said.matches("waiting for a quiet machine").count(),
        1,
        "in vain once: {said}"
    );
    assert!(said.contains("the machine is busy: measuring anyway"), "{said}");
    let point = &run["points"][0];
    let [repeat] = point["repeats"].as_array().unwrap().as_slice() else {
        panic!("{point}");
    };
    assert_eq!(repeat["attempt"], 2);
    let by = repeat["disturbed"].as_str().unwrap();
    assert!(
        by.starts_with("foreign processes used") && by.ends_with("(limit 0 %)"),
        "{by}"
    );
    assert_eq!(repeat["disturbed_before"].as_array().unwrap().len(), 2);
    let machine = &repeat["machine"];
    assert!(
        machine["samples"].as_u64().unwrap() >= 10 && machine["foreign_cpu_share"].as_f64().unwrap() > 0.0,
        "{machine}"
    );
    let verdict = point["summary"]["verdict"].to_string();
    assert!(
        verdict.contains("invalid") && verdict.contains("disturbed in 1 of 1 repeats"),
        "{verdict}"
    );
    assert!(
        table.contains("1 of 1 steps disturbed: foreign processes used"),
        "{table}"
    );
    let kept = std::fs::read_dir(place.path("results/r/hdr")).unwrap();
    assert_eq!(kept.count(), 3, "every attempt is kept");
}

#[test]
fn a_plan_that_measures_once_neither_waits_nor_repeats_and_says_that_it_was_disturbed() {
    let _stranger = Stranger::start();
    let (_place, run, table, said) = measured_by("measure_once = true\n", "foreign_cpu_share = 0.0");
    assert!(!said.contains("quiet"), "{said}");
    let repeat = &run["points"][0]["repeats"][0];
    assert!(
        repeat["attempt"].is_null() && repeat["disturbed"].is_string(),
        "{repeat}"
    );
    assert!(
        table.contains("1 of 1 steps disturbed: foreign processes used"),
        "{table}"
    );
}

#[test]
fn without_a_limit_a_stranger_is_seen_and_let_be() {
    let _stranger = Stranger::start();
    let (_place, run, table, said) = measured("1");
    assert!(!said.contains("quiet"), "{said}");
    let repeat = &run["points"][0]["repeats"][0];
    assert!(repeat["disturbed"].is_null() && repeat["attempt"].is_null(), "{repeat}");
    assert!(repeat["machine"]["foreign_cpu_share"].as_f64().unwrap() > 0.0);
    assert!(!table.contains("steps disturbed"), "{table}");
}

#[test]
fn a_step_beside_foreign_disk_traffic_is_disturbed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let written = folder.path().join("written");
    let script = format!(
        "while :; do dd if=/dev/zero of={} bs=1M count=64 oflag=direct 2>&-; done",
        written.display()
    );
    let _stranger = Stranger::doing(&script);
    // On a machine so busy that the watch itself waits for a CPU, a step has too few looks to be judged.
    let is_judged = |run: &Value| run["points"][0]["repeats"][0]["machine"]["samples"].as_u64() >= Some(11);
    let attempts = (0..3).map(|_| measured_with("foreign_cpu_share = 1\nforeign_disk_bytes_per_s = 1e6"));
    let judged = attempts.into_iter().find(|(_, run, ..)| is_judged(run));
    let (_place, run, table, _) = judged.expect("three steps with fewer than 11 looks at the machine");
    let repeat = &run["points"][0]["repeats"][0];
    let machine = &repeat["machine"];
    let unseen = machine["unseen"].to_string();
    if unseen.contains("disk traffic") {
        assert!(
            table.contains("disk traffic") && repeat["disturbed"].is_null(),
            "{table}"
        );
        return;
    }
    let by = repeat["disturbed"].as_str().unwrap();
    assert!(
        by.starts_with("foreign disk traffic was") && by.ends_with("(limit 1 MB/s)"),
        "{by}"
    );
    let [foreign, all] = ["foreign_disk_bytes_per_s", "disk_bytes_per_s"].map(|key| machine[key].as_f64().unwrap());
    assert!(foreign > 1e6 && foreign <= all, "{machine}");
    assert!(table.contains("`foreign_disk_bytes_per_s`"), "{table}");
}
