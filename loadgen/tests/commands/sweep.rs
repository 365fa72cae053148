//! `sweep` through the real binary, against the null endpoint.

use crate::program::{BINARY, NullEndpoint, PLAN, Workdir, interrupt, kill_at_once, run, run_until};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::process::Command;

fn points(run: &Value) -> &Vec<Value> {
    run["points"].as_array().unwrap()
}

fn errors(repeat: &Value) -> u64 {
    repeat["errors"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum()
}

#[test]
fn a_sweep_leaves_a_whole_result_folder() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("arrivals = \"constant\"\nnoise_floor = true\n{PLAN}"));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("null"),
        "the table is on stdout: {}",
        ended.stdout
    );
    assert!(ended.stderr.contains("[4/4]"), "{}", ended.stderr);

    let run = place.run_json();
    assert_eq!(run["schema_version"], 1);
    assert_eq!(run["interrupted"], false);
    assert_eq!(run["noise_floor"]["factors"]["tier"], "null");
    assert!(run["plan_toml"].as_str().unwrap().contains("name = \"short\""));
    assert_eq!(run["config_sha256"].as_object().unwrap().len(), 1);
    assert_ne!(run["environment"]["kernel"], "unknown");
    let points = points(&run);
    assert_eq!(points.len(), 2);
    // In the plan's order, each with the requests of its schedule: rate × window.
    for (point, (mode, batch, scheduled)) in points.iter().zip([("realtime", 1, 20), ("batch", 4, 10)]) {
        assert_eq!(point["factors"]["mode"], mode);
        assert_eq!(point["factors"]["batch_size"], batch);
        let repeats = point["repeats"].as_array().unwrap();
        assert_eq!(repeats.len(), 2);
        assert_ne!(repeats[0]["seed"], repeats[1]["seed"]);
        for repeat in repeats {
            assert_eq!(repeat["scheduled"], scheduled);
            assert_eq!(repeat["completed"], scheduled);
            assert_eq!(errors(repeat), 0);
            assert!(!repeat["server"].is_null());
            let hdr = place.path("results/r").join(repeat["hdr_file"].as_str().unwrap());
            assert!(hdr.is_file(), "{}", hdr.display());
        }
    }
    let summary = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert_eq!(summary.lines().count(), 3, "{summary}");
    assert!(
        fs::read_to_string(place.path("results/r/report.html"))
            .unwrap()
            .contains("</html>")
    );
}

#[test]
fn binary_requests_are_answered_too() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("encoding = \"binary\"\n{PLAN}").replace("repeats = 2", "repeats = 1"));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(errors(&points(&place.run_json())[0]["repeats"][0]), 0);

    // An address that no request would use.
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--grpc-url", &endpoint.url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("leave out --grpc-url"), "{}", ended.stderr);
}

#[test]
fn requests_over_grpc_are_timed_and_attributed_as_over_http() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!(
        "arrivals = \"constant\"\nprotocol = \"grpc\"\nnoise_floor = true\n{PLAN}"
    ));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--grpc-url"), "{}", ended.stderr);

    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--grpc-url", &endpoint.url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    assert_eq!(result["protocol"], "grpc");
    for (point, scheduled) in points(&result).iter().zip([20, 10]) {
        for repeat in point["repeats"].as_array().unwrap() {
            assert_eq!(repeat["completed"], scheduled);
            // The stages came as metadata: nothing is left over as a failure without them.
            let bands = repeat["bands"].as_array().unwrap();
            assert!(
                !bands.is_empty() && !bands[0].to_string().contains("unattributed"),
                "{bands:?}"
            );
        }
    }
    assert!(ended.stdout.contains("over grpc"), "{}", ended.stdout);

    // An address without a gRPC server is reported before anything is measured.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = silent.local_addr().unwrap();
    drop(silent);
    let place = Workdir::new(&format!("protocol = \"grpc\"\n{PLAN}"));
    let mut sweep = place.sweep(&endpoint.url);
    sweep.arg("--grpc-url").arg(format!("http://{closed}"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&format!("tierlab-loadgen: http://{closed}: ")) && ended.stderr.contains("gRPC"),
        "{}",
        ended.stderr
    );
}

#[test]
fn usage_is_complete() {
    let with = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(args);
        run(command)
    };
    for command in ["sweep", "lab", "report", "compare", "selfcheck"] {
        let help = with(&[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains("Example"), "{}", help.stdout);
    }
    assert_eq!(with(&["--version"]).code, Some(0));
    assert_eq!(with(&["sweep"]).code, Some(2));
    assert_eq!(with(&["fly"]).code, Some(2));
    for study in ["coverage", "simulate-lab"] {
        let refused = with(&[study, "--help"]);
        assert_eq!(
            refused.code,
            Some(2),
            "{study} belongs to tierlab-dev: {}",
            refused.stdout
        );
    }
}

#[test]
fn compare_names_runs_by_folder_and_ends_with_1_for_a_regression_alone() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let compare = |b: &str, more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.current_dir(place.folder.path());
        command.args(["compare", "results/r", b]).args(more);
        run(command)
    };
    let same = compare("results/r", &["--json"]);
    let json: Value = serde_json::from_str(&same.stdout).unwrap_or_else(|e| panic!("{e}: {}", same.stdout));
    assert_eq!(json["runs"], serde_json::json!(["results/r", "results/r"]));
    let code = if json["outcome"] == "no_regression" { 0 } else { 3 };
    assert_eq!(same.code, Some(code), "{}", same.stdout);
    assert!(compare("results/r", &[]).stdout.contains("B: results/r\n"));

    let missing = compare("results/none", &[]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    assert!(missing.stderr.contains("results/none"), "{}", missing.stderr);
    std::fs::create_dir(place.path("results/broken")).unwrap();
    std::fs::write(place.path("results/broken/run.json"), "{").unwrap();
    assert_eq!(compare("results/broken", &[]).code, Some(2));
    assert_eq!(compare("results/r", &["--json", "--markdown"]).code, Some(2));
}

#[test]
fn a_server_that_dies_ends_the_run_which_can_be_gone_on_with() {
    let mut endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let missing = run(resume(&place, &endpoint.url));
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    let ended = run_until(place.sweep(&endpoint.url), "[1/4]", |_| endpoint.kill());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let address = endpoint.url.trim_start_matches("http://");
    for part in ["the server stopped answering during", address, "--resume"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    let stopped = place.run_json();
    assert_eq!(stopped["interrupted"], true);
    // The step that it died in is not among the finished ones.
    for point in points(&stopped) {
        for repeat in point["repeats"].as_array().unwrap() {
            assert_eq!(errors(repeat), 0, "{repeat}");
        }
    }
    let endpoint = NullEndpoint::start();
    let ended = run(resume(&place, &endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(skeleton(&place.run_json()).len(), 2);
}

#[test]
fn an_interrupted_run_keeps_what_is_finished() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run_until(place.sweep(&endpoint.url), "[2/4]", |child| {
        // Like `timeout`, which signals the process, and then its group.
        interrupt(child);
        std::thread::sleep(std::time::Duration::from_millis(50));
        interrupt(child);
    });
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(ended.stderr.contains("finished steps are in"), "{}", ended.stderr);
    let run = place.run_json();
    assert_eq!(run["interrupted"], true);
    let finished: usize = points(&run)
        .iter()
        .map(|point| point["repeats"].as_array().unwrap().len())
        .sum();
    assert!((2..4).contains(&finished), "{finished}");
    assert!(place.path("results/r/report.html").is_file());
}

/// Returns the parts of a result that depend on the plan alone.
fn skeleton(run: &Value) -> Vec<String> {
    points(run)
        .iter()
        .map(|point| {
            let repeats = point["repeats"].as_array().unwrap().iter();
            let steps: Vec<String> = repeats
                .map(|repeat| format!("{} {} {}", repeat["index"], repeat["seed"], repeat["scheduled"]))
                .collect();
            format!("{} {steps:?}", point["factors"])
        })
        .collect()
}

fn journal_lines(place: &Workdir) -> Vec<Value> {
    let text = fs::read_to_string(place.path("results/r/journal.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn resume(place: &Workdir, url: &str) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("sweep").arg(place.path("plan.toml")).args(["--url", url]);
    command.arg("--resume").arg(place.path("results/r"));
    command
}

#[test]
fn a_killed_run_loses_the_step_under_way_and_goes_on_to_the_same_result() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("noise_floor = true\n{PLAN}"));
    let ended = run_until(place.sweep(&endpoint.url), "[3/4]", kill_at_once);
    assert_eq!(ended.code, None, "killed: {}", ended.stderr);
    // Every step reported as finished is in the journal.
    let kept = journal_lines(&place);
    assert!((3..=4).contains(&kept.len()), "{}", kept.len());

    // The partial result can be read, and says that it is incomplete.
    let mut report = Command::new(BINARY);
    report.arg("report").arg(place.path("results/r"));
    let looked_at = run(report);
    assert_eq!(looked_at.code, Some(0), "{}", looked_at.stderr);
    assert!(
        looked_at.stdout.contains("stopped before its last"),
        "{}",
        looked_at.stdout
    );

    let ended = run(resume(&place, &endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("[3/4]") && !ended.stderr.contains("noise floor:"),
        "{}",
        ended.stderr
    );
    let resumed = place.run_json();
    assert_eq!(resumed["interrupted"], false);
    assert_eq!(resumed["resumed"][0]["finished_steps"], kept.len());
    assert!(!place.path("results/r/journal.jsonl").exists());
    let numbers = resumed.to_string();
    for step in &kept {
        assert!(
            numbers.contains(&step["repeat"]["bands"].to_string()),
            "measured again: {step}"
        );
    }

    let whole = Workdir::new(&format!("noise_floor = true\n{PLAN}"));
    assert_eq!(run(whole.sweep(&endpoint.url)).code, Some(0));
    assert_eq!(skeleton(&resumed), skeleton(&whole.run_json()));
}

#[test]
fn only_the_same_plan_goes_on() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let missing = run(resume(&place, &endpoint.url));
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    let ended = run_until(place.sweep(&endpoint.url), "[1/4]", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    fs::write(place.path("plan.toml"), PLAN.replace("seed = 3", "seed = 4")).unwrap();
    let ended = run(resume(&place, &endpoint.url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`seed = 3` and is `seed = 4`"),
        "{}",
        ended.stderr
    );
    fs::write(place.path("plan.toml"), PLAN).unwrap();
    assert_eq!(run(resume(&place, &endpoint.url)).code, Some(0));
    let ended = run(resume(&place, &endpoint.url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("this run is finished: `report` writes its files again"),
        "{}",
        ended.stderr
    );
}

#[test]
fn interrupted_before_anything_is_finished_there_is_no_result() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("noise_floor = true\n{PLAN}").replace("step_s = 0.4", "step_s = 60.0"));
    let ended = run_until(place.sweep(&endpoint.url), "noise floor", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(!place.path("results/r/run.json").exists());
}

#[test]
fn an_interrupt_ends_the_wait_for_a_server_that_does_not_answer() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Workdir::new(PLAN);
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut sweep = place.sweep(&url).spawn().unwrap();
    let _connection = silent.accept().unwrap();
    interrupt(&sweep);
    // Without an interrupt the request fails by its own limit, with another code.
    assert_eq!(sweep.wait().unwrap().code(), Some(130));
}
