//! A sweep's exit codes, JUnit file and baseline, and sweeps without a plan.

use crate::program::{BINARY, NullEndpoint, Workdir, interrupt, run, run_until};
use std::fs;
use std::process::Command;

/// One load, three times, whatever else the machine does.
const PLAN: &str = "name = \"judged\"\nmodel = \"m\"\nseed = 3\nrepeats = 3\nwarmup_s = 0.1\nstep_s = 1.0\ndrain_s = 1.0\n\
    max_in_flight = 128\n[[load]]\nmode = \"realtime\"\nrates = [100]\n[limits]\nforeign_cpu_share = 1.0\nsteal_share = 1.0\n\
    foreign_disk_bytes_per_s = 1e12\nforeign_network_bytes_per_s = 1e12\n\
    foreign_io_pressure = 1.0\nforeign_memory_pressure = 1.0\nlag_us = 1000000\nlag_share_of_p99 = 1.0\n";

#[test]
fn objectives_invalid_points_and_a_baseline_have_exit_codes() {
    // Most of the latency is the endpoint's own, so that a busy machine changes it little.
    let endpoint = NullEndpoint::with(&["--service-us", "2000"]);
    let place = Workdir::new(PLAN);
    let measured = |name: &str, more: &[&str]| {
        let _ = fs::remove_dir_all(place.path("results").join(name));
        let mut command = Command::new(BINARY);
        command
            .arg("sweep")
            .arg(place.path("plan.toml"))
            .args(["--url", &endpoint.url]);
        command.arg("--out").arg(place.path("results")).args(["--name", name]);
        command.arg("--junit").arg(place.path("points.xml")).args(more);
        command.env("XDG_STATE_HOME", place.path("state"));
        run(command)
    };
    // Even so, it may drift, and is measured again.
    let judged = |name: &str, more: &[&str]| {
        let mut attempts = (0..5).map(|_| measured(name, more));
        let steady = attempts.find(|ended| !ended.stderr.contains("drifts: "));
        steady.expect("five measurements on a busy machine")
    };
    // A share of requests is decided where a percentile of few independent ones has no upper end.
    let met = judged("met", &["--slo", "90 % within 60 s", "--fail-on", "slo"]);
    assert_eq!(met.code, Some(0), "{}", met.stderr);
    let cases = fs::read_to_string(place.path("points.xml")).unwrap();
    assert!(
        cases.contains("at 100 rps, 90 % within 60 s") && cases.contains("tests=\"1\" failures=\"0\""),
        "{cases}"
    );

    let missed = judged("missed", &["--slo", "90 % within 1 us", "--fail-on", "slo,invalid"]);
    assert_eq!(missed.code, Some(4), "{}", missed.stderr);
    assert!(missed.stderr.contains("not met: "), "{}", missed.stderr);
    // Goodput is that of the objective, whose limit has no part in the verdict.
    for (name, share) in [("met", 1.0), ("missed", 0.0)] {
        let file = place.path("results").join(name).join("run.json");
        let kept: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(kept["points"][0]["summary"]["goodput_share"], share, "{name}");
        assert!(kept["limits"].get("objective_us").is_none(), "{}", kept["limits"]);
    }
    let cases = fs::read_to_string(place.path("points.xml")).unwrap();
    assert!(cases.contains("tests=\"2\" failures=\"1\""), "{cases}");
    // An objective alone is shown, and fails nothing.
    let shown = judged("shown", &["--slo", "p50 < 1 us"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);

    // 300 requests are too few for a p99.9.
    let open = judged("open", &["--slo", "p99.9 < 60 s", "--fail-on", "slo"]);
    assert_eq!(open.code, Some(3), "{}", open.stderr);
    assert!(open.stderr.contains("too few samples"), "{}", open.stderr);

    let baseline = place.path("results/met");
    let compared = judged("compared", &["--baseline", baseline.to_str().unwrap()]);
    assert!(compared.stdout.contains("compared with"), "{}", compared.stdout);
    assert!(matches!(compared.code, Some(0 | 1 | 3)), "{}", compared.stderr);
    for (more, wanted) in [
        (&["--baseline", "none"][..], "none"),
        (&["--fail-on", "slo"], "--slo 'p99 < 50 ms'"),
        (&["--slo", "fast"], "is not an objective"),
    ] {
        let refused = judged("refused", more);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{}", refused.stderr);
    }
}

#[test]
fn an_invalid_point_does_not_decide_for_its_own_reason() {
    let endpoint = NullEndpoint::start();
    // Any send is late.
    let plan = PLAN.replace(
        "lag_us = 1000000\nlag_share_of_p99 = 1.0",
        "lag_us = 0\nlag_share_of_p99 = 0.000001",
    );
    let plan = plan.replace("repeats = 3", "repeats = 1");
    let place = Workdir::new(&plan.replace("rates = [100]", "rates = [200]"));
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--slo", "p50 < 60 s", "--fail-on", "slo"]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let is_late = ended.stderr.contains("sent late: ") && ended.stderr.contains("not decided: invalid: ");
    assert!(is_late && !ended.stderr.contains("its interval"), "{}", ended.stderr);
}

#[test]
fn a_sweep_needs_no_plan() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new("");
    let sweep = |more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["sweep", "--url", &endpoint.url]).args(more);
        command.arg("--out").arg(place.path("results")).args(["--name", "r"]);
        command.env("XDG_STATE_HOME", place.path("state"));
        command
    };
    let nothing = run(sweep(&[]));
    assert_eq!(nothing.code, Some(2), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("--model NAME --rate RPS"), "{}", nothing.stderr);
    // The first of five steps is enough here: a busy machine repeats each.
    let ended = run_until(sweep(&["--model", "m", "--rate", "300"]), "[1/5]", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let run = place.run_json();
    assert_eq!(run["points"][0]["factors"]["offered_rps"], 300.0);
    assert!(run["plan_toml"].as_str().unwrap().contains("model = \"m\""), "{run}");
}
