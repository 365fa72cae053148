//! `lab` with a question, and `advise`, through the real binary: null endpoints that serve one request at a time, each
//! variant with its own service time, so that the truth is known.

use crate::agreement;
use crate::lab::{lab, lab_place};
use crate::program::{BINARY, Workdir, interrupt, read_json, run, run_until};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// 2 ms for the variant `fast`, 60 ms for `slow`: at 100 requests a second the first is idle most of the time, and the second falls
/// behind for ever.
const SERVER: &str = r#"#!/bin/sh
echo "server $* ${TIERLAB_LOG-}" >> "$(dirname "$0")/calls"
case "$*" in
  *telemetry.variant=slow*) exec BINARY null-endpoint --service-us 60000 ;;
  *) exec BINARY null-endpoint --service-us 2000 ;;
esac
"#;
// Without limits on foreign activity, which is irrelevant here.
const PLAN: &str = r#"
name = "asked"
model = "m"
seed = 3
warmup_s = 0.1
step_s = 0.5
drain_s = 0.2
max_in_flight = 64
prices = "prices.toml"
instance = "box"
[limits]
foreign_cpu_share = 1.0
steal_share = 1.0
foreign_disk_bytes_per_s = 1e12
foreign_network_bytes_per_s = 1e12
foreign_io_pressure = 1
foreign_memory_pressure = 1
lag_us = 400000
[question]
slo = ["p95 < 500 ms", "errors < 50 %"]
demand_rps = 70
minimise = "instances"
budget = "60s"
max_rate = 100
[[variant]]
name = "slow"
tier = "s3"
[[variant]]
name = "fast"
tier = "nvme"
[lab]
work = "work"
server_config = "server.toml"
ready_timeout_s = 30
[lab.data]
rows = 10
"#;

/// One kind of instance, which covers both tiers.
fn prices(usd_per_hour: f64) -> String {
    format!(
        "[instances.box]\nusd_per_hour = {usd_per_hour:?}\nmemory_gib = 8\nlocal_disk = true\nprovider = \"P\"\nregion = \"r\"\n\
         as_of = \"2026-01\"\nchecked = true\nsource = \"https://example.org\"\n[tiers]\ns3 = \"included\"\nnvme = \"included\"\n"
    )
}

fn place(plan: &str) -> Workdir {
    let place = lab_place(plan);
    fs::write(place.path("prices.toml"), prices(1.0)).unwrap();
    let server = place.path("bin/tierlab-server");
    fs::write(&server, SERVER.replace("BINARY", BINARY)).unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    place
}

#[test]
#[allow(clippy::too_many_lines, reason = "several checks of one run, which takes a minute")]
fn a_question_is_answered_and_another_one_asked_of_the_same_run() {
    let place = place(PLAN);
    let mut command = lab(&place, "first");
    command
        .env("TIERLAB_LOG", "a-filter-of-others")
        .args(["--until", "answered", "--fail-on", "unmet,undecided", "--junit"])
        .arg(place.path("answer.xml"));
    let ended = run(command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let answer = read_json(&place.path("results/first/answer.json"));
    assert_eq!(
        (&answer["outcome"], &answer["best"]),
        (&"decided".into(), &"fast".into()),
        "{answer}"
    );
    assert_eq!(answer["ranking"][0]["variant"], "fast");
    assert_eq!(answer["ranking"][0]["outcome"], "met");
    assert_eq!(answer["ranking"][0]["instances"], 1);
    // The p99 of 70/s, or of a higher rate if the machine spoiled those steps.
    assert!(answer["ranking"][0]["at_rps"].as_f64() >= Some(70.0), "{answer}");
    let spent_s = answer["spent_s"].as_f64().unwrap();
    assert!(spent_s <= 60.0, "{answer}");
    let ending = format!("decided after {spent_s:.0} s");
    assert!(ended.stderr.contains(&ending), "{ending}: {}", ended.stderr);
    assert!(!ended.stderr.contains("curves and percentiles"), "{}", ended.stderr);
    let opens: String = ended.stdout.lines().take(2).collect();
    assert!(
        opens.starts_with("Use fast") && opens.contains("p95 < 500 ms"),
        "{}",
        ended.stdout
    );
    let junit = fs::read_to_string(place.path("answer.xml")).unwrap();
    assert!(junit.contains("fast") && junit.contains("slow"), "{junit}");
    let calls = fs::read_to_string(place.path("bin/calls")).unwrap();
    assert!(
        calls.contains("telemetry.variant=slow") && calls.contains("--tier s3"),
        "{calls}"
    );
    assert!(!calls.contains("a-filter-of-others"), "{calls}");
    let csv = fs::read_to_string(place.path("results/first/summary.csv")).unwrap();
    assert!(
        csv.lines().next().unwrap().split(',').any(|name| name == "variant"),
        "{csv}"
    );

    assert!(csv.contains(",70,fast,"), "{csv}");

    let folder = place.path("results/first");
    let found = agreement::disagreements(&folder, &folder);
    assert!(found.is_empty(), "{}", found.join("\n"));
    // Fresh steps are repeats at one rate: each has arrivals of its own.
    for point in read_json(&folder.join("run.json"))["points"].as_array().unwrap() {
        let repeats = point["repeats"].as_array().unwrap();
        let seeds: HashSet<String> = repeats.iter().map(|repeat| repeat["seed"].to_string()).collect();
        assert_eq!(seeds.len(), repeats.len(), "{}", point["factors"]);
    }

    // Nothing here answers within a microsecond.
    let advise = |more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.arg("advise").arg(place.path("results/first")).args(more);
        run(command)
    };
    let same = advise(&["--json"]);
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    let same: serde_json::Value = serde_json::from_str(&same.stdout).unwrap();
    assert_eq!(agreement::between(&answer, &same), Vec::<String>::new());
    // Named in two ways, it still counts once.
    let twice = advise(&[folder.join(".").to_str().unwrap(), "--json"]);
    assert!(!twice.stderr.contains("is left out"), "{}", twice.stderr);
    let twice: serde_json::Value = serde_json::from_str(&twice.stdout).unwrap();
    assert_eq!(
        (&twice["spent_s"], twice["spent_s"].is_null()),
        (&same["spent_s"], false)
    );
    let copy = place.path("results/copy");
    let copied = Command::new("cp").arg("-r").args([&folder, &copy]).status().unwrap();
    assert!(copied.success());
    let copied = advise(&[copy.to_str().unwrap(), "--json"]);
    assert!(copied.stderr.contains("is left out"), "{}", copied.stderr);
    let copied: serde_json::Value = serde_json::from_str(&copied.stdout).unwrap();
    assert_eq!(copied["spent_s"], same["spent_s"]);
    let missing = advise(&[place.path("results/none").to_str().unwrap()]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    let harder = advise(&["--slo", "p95 < 1 us", "--json"]);
    assert!(matches!(harder.code, Some(3 | 4)), "{}", harder.stderr);
    let dear = place.path("dear.toml");
    fs::write(&dear, prices(5.0)).unwrap();
    let usd = |more: &[&str]| {
        let answer = advise(&[&["--minimise", "usd_per_month", "--json"], more].concat());
        assert!(!answer.stdout.is_empty(), "{:?} {}", answer.code, answer.stderr);
        let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        answer["ranking"][0]["usd_per_month"].as_f64().unwrap()
    };
    let (before, after) = (usd(&[]), usd(&["--prices", dear.to_str().unwrap()]));
    assert!((after / before - 5.0).abs() < 1e-6, "{before} {after}");
    let unknown = advise(&["--prices", dear.to_str().unwrap(), "--instance", "other"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("choose one of box"), "{}", unknown.stderr);
    // A disk of 50 GB holds the table that was measured, and not one of 100 GiB.
    let disk = prices(1.0).replace("local_disk = true", "local_disk = true\nlocal_disk_gb = 50")
        + "[needs]\nnvme = [\"local-disk\"]\n";
    fs::write(&dear, disk).unwrap();
    let sized = |gib: &str| {
        advise(&[
            "--minimise",
            "usd_per_month",
            "--json",
            "--prices",
            dear.to_str().unwrap(),
            "--table-gib",
            gib,
        ])
    };
    // Without `--prices` the run's own list is taken, as long as it is the one that the run was measured with.
    let of_own = || advise(&["--minimise", "usd_per_month", "--json", "--table-gib", "1"]);
    let own = of_own();
    assert!(own.stderr.contains("priced at 1 GiB"), "{}", own.stderr);
    assert!((usd(&["--table-gib", "1"]) / before - 1.0).abs() < 1e-6);
    fs::write(place.path("prices.toml"), prices(2.0)).unwrap();
    let changed = of_own();
    assert_eq!(changed.code, Some(2), "{}", changed.stderr);
    assert!(changed.stderr.contains("has changed"), "{}", changed.stderr);
    let small = sized("1");
    assert!(!small.stderr.contains("exceed the"), "{}", small.stderr);
    let large = sized("100");
    assert!(
        large.stderr.contains("variant `fast`: its 107.4 GB") && large.stderr.contains("50 GB of box"),
        "{}",
        large.stderr
    );
    let answer: serde_json::Value = serde_json::from_str(&large.stdout).unwrap();
    let fast = answer["ranking"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["variant"] == "fast")
        .unwrap();
    assert_eq!(
        (&fast["usd_per_month"], &fast["why"]),
        (&serde_json::Value::Null, &"has no price".into()),
        "{answer}"
    );
    for none in ["0", "-5", "nan"] {
        assert_eq!(sized(none).code, Some(2), "{none}");
    }
    let wrong = advise(&["--slo", "fast"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("`fast` is not an objective"), "{}", wrong.stderr);
}

#[test]
fn an_interrupted_question_goes_on_where_it_was() {
    let place = place(PLAN);
    let ended = run_until(lab(&place, "cut"), "repeat 1", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let finished = read_json(&place.path("results/cut/run.json"))["points"]
        .as_array()
        .unwrap()
        .len();
    assert!(finished > 0);
    let mut resume = Command::new(BINARY);
    resume
        .arg("lab")
        .arg(place.path("plan.toml"))
        .arg("--bin-dir")
        .arg(place.path("bin"));
    // The run is its own baseline: every figure that it has is compared, and none is worse.
    for option in ["--resume", "--baseline"] {
        resume.arg(option).arg(place.path("results/cut"));
    }
    let ended = run(resume);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let answer = read_json(&place.path("results/cut/answer.json"));
    assert_eq!(answer["best"], "fast", "{answer}");
    let compared = ended.stdout.rsplit_once("compared with ").unwrap().1;
    assert!(
        compared.ends_with(", 0 worse, 0 undecided\n") && !compared.contains(": 0 figures"),
        "{compared}"
    );
}

#[test]
fn what_cannot_be_answered_is_refused_before_the_first_step() {
    for (from, to, says) in [
        ("budget = \"60s\"", "budget = \"3s\"", "too short for 2 variants"),
        ("tier = \"nvme\"", "tier = \"s3\"", "differ only in their names"),
        (
            "slo = [\"p95 < 500 ms\", \"errors < 50 %\"]",
            "slo = [\"p95 < 1 us\"]",
            "below the noise floor",
        ),
    ] {
        let plan = PLAN.replace(from, to);
        // A noise floor takes long, so the plan has it only if the test needs it.
        let plan = if says.contains("noise floor") {
            plan.replace("[limits]", "noise_floor = true\n[limits]")
        } else {
            plan
        };
        let place = place(&plan);
        let ended = run(lab(&place, "never"));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
        assert!(!place.path("results/never").exists());
    }
}
