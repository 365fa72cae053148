//! The real binary against servers that answer rightly and in an odd way: with headers of proxies, with metrics that are no numbers, with
//! names that are none; and where a run's folder is another's, or takes nothing.

use crate::program::{BINARY, NullEndpoint, PLAN, Workdir, run};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

const METADATA: &str = r#"{"name":"m","versions":["1"],"platform":"x","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}"#;
const GOOD: &str = r#"{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;
/// As many users as requests, and nothing of the machine's matters.
const ONE_LOAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.5\n\
    drain_s = 1.0\nmax_in_flight = 128\n[[load]]\nmode = \"realtime\"\nrates = [200]\n\
    [limits]\nforeign_cpu_share = 1.0\nsteal_share = 1.0\nlag_us = 1000000\n";

/// What a server says beside right replies.
#[derive(Clone, Copy, Default)]
struct Odd {
    /// Header lines of every reply to a request.
    headers: &'static str,
    metrics: &'static str,
}

impl Odd {
    fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let odd = Arc::new(self);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let odd = Arc::clone(&odd);
                thread::spawn(move || while odd.answer(&stream).is_some() {});
            }
        });
        format!("http://{address}")
    }

    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).ok().filter(|read| *read > 2).is_some() {
            head += &line.to_ascii_lowercase();
            line.clear();
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        reader.read_exact(&mut vec![0; length.unwrap_or(0)]).ok()?;
        let path = head.split(' ').nth(1)?;
        let (status, headers, body) = match path {
            "/metrics" => (200, "", self.metrics),
            "/v2/models/m" => (200, "", METADATA),
            path if path.ends_with("/infer") => (200, self.headers, GOOD),
            _ => (404, "", "{}"),
        };
        let reply = format!(
            "HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(reply.as_bytes()).ok()
    }
}

fn measured(odd: Odd, plan: &str) -> Workdir {
    let place = Workdir::new(plan);
    let ended = run(place.sweep(&odd.start()));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    place
}

fn only_repeat(place: &Workdir) -> Value {
    place.run_json()["points"][0]["repeats"][0].clone()
}

#[test]
fn stages_of_others_are_none_and_the_servers_own_are_found_behind_a_proxy() {
    let foreign = Odd {
        headers: "server-timing: db;dur=53, app;dur=47.2\r\nserver-timing: cache;desc=HIT\r\n",
        ..Odd::default()
    };
    let place = measured(foreign, ONE_LOAD);
    let bands = only_repeat(&place)["bands"].to_string();
    assert!(bands.contains("untold"), "{bands}");
    assert!(bands[..bands.len().min(400)].contains("[\"network\",0.0]"), "{bands}");

    let behind = Odd {
        headers: "server-timing: cdn;dur=1\r\nserver-timing: infer;dur=0.001, rows;desc=\"1\"\r\n",
        ..Odd::default()
    };
    let bands = only_repeat(&measured(behind, ONE_LOAD))["bands"].clone();
    assert!(!bands.to_string().contains("untold"), "{bands}");
    let parts = bands[0]["parts_us"].as_array().unwrap();
    let infer = parts.iter().find(|part| part[0] == "infer").unwrap();
    assert!((infer[1].as_f64().unwrap() - 1.0).abs() < 1e-6, "{infer}");
}

#[test]
fn metrics_that_are_no_numbers_leave_a_run_that_reads_back() {
    let odd = Odd {
        metrics: "tierlab_build_info{feature_tier=\"s3\"} 1\ntierlab_inferences_total{model=\"m\"} NaN\n\
                  tierlab_tier_wire_bytes_total{role=\"feature\"} +Inf\ntierlab_cache_capacity_bytes 1.7e308\n\
                  tierlab_session_seconds_total{model=\"m\",state=\"compute\"} -Inf\nprocess_start_time_seconds NaN\n# EOF\n",
        ..Odd::default()
    };
    let place = measured(odd, ONE_LOAD);
    assert_eq!(only_repeat(&place)["server"]["inferences"], 0.0);
    let mut report = Command::new(BINARY);
    report.arg("report").arg(place.path("results/r"));
    let ended = run(report);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        !ended.stdout.contains("NaN") && !ended.stdout.contains("inf "),
        "{}",
        ended.stdout
    );
}

#[test]
fn what_a_server_calls_its_tier_gives_no_orders() {
    let odd = Odd {
        metrics: "tierlab_build_info{feature_tier=\"=cmd|' /C calc'!A0,\\\"<script>\u{1b}[2J\"} 1\n",
        ..Odd::default()
    };
    let place = measured(odd, ONE_LOAD);
    assert_eq!(place.run_json()["points"][0]["factors"]["tier"], "none");
}

#[test]
fn names_as_long_as_a_plan_may_have_are_no_trouble_to_files() {
    let long = "t".repeat(128);
    let model = "m".repeat(128);
    let endpoint = NullEndpoint::start();
    let plan = ONE_LOAD.replace("\"m\"", &format!("\"{model}\""));
    let place = Workdir::new(&format!("{plan}[target]\ntier = \"{long}\"\n"));
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_folder_is_one_runs_alone() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    fs::create_dir_all(place.path("results/r")).unwrap();
    let other = fs::File::open(place.path("results/r")).unwrap();
    other.lock().unwrap();
    for more in [&[][..], &["--resume"]] {
        let mut sweep = place.sweep(&endpoint.url);
        if !more.is_empty() {
            sweep = Command::new(BINARY);
            sweep
                .arg("sweep")
                .arg(place.path("plan.toml"))
                .args(["--url", &endpoint.url]);
            sweep.arg("--resume").arg(place.path("results/r"));
        }
        let ended = run(sweep);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("another run is being written there"),
            "{}",
            ended.stderr
        );
        assert_eq!(fs::read_dir(place.path("results/r")).unwrap().count(), 0);
    }
    drop(other);
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn what_cannot_be_written_is_printed_all_the_same() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(PLAN);
    let ended = run(place.sweep(&endpoint.url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    fs::write(place.path("a-file"), "").unwrap();
    let mut report = Command::new(BINARY);
    report
        .arg("report")
        .arg(place.path("results/r"))
        .arg("--out")
        .arg(place.path("a-file"));
    let ended = run(report);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("offered/s") && ended.stderr.contains("a-file"),
        "{}",
        ended.stderr
    );
}
