//! The real binary with servers that answer correctly but unusually: with headers of proxies, metrics that are not
//! numbers, invalid names; and with folders that belong to another run or are not writable.

use crate::program::{BINARY, NullEndpoint, PLAN, Workdir, run};
use crate::site::site;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const METADATA: &str = r#"{"name":"m","versions":["1"],"platform":"x","inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,1]}]}"#;
const GOOD: &str = r#"{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;
/// Load with as many users as requests, independent of the machine's load.
const ONE_LOAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.5\n\
    drain_s = 1.0\nmax_in_flight = 128\narrivals = \"constant\"\n[[load]]\nmode = \"realtime\"\nrates = [200]\n\
    [limits]\nforeign_cpu_share = 1.0\nsteal_share = 1.0\nlag_us = 1000000\n";

/// Extras of a server beside correct replies.
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

/// Starts a server without metrics of a model `m` with one input `x` and one output `y`. `reply` takes the number of
/// the request, from 0, and the shape and data of `x`, and returns those of `y`.
fn model(
    x: &'static [i64],
    y: &'static [i64],
    reply: impl Fn(usize, &Value, &Value) -> (Value, Value) + Send + Sync + 'static,
) -> String {
    let asked_before = AtomicUsize::new(0);
    let port = site(move |asked| match asked.path.as_str() {
        "/v2/models/m" => {
            let tensor = |name: &str, shape| json!({"name": name, "datatype": "FP32", "shape": shape});
            let metadata = json!({"name": "m", "versions": ["1"], "platform": "x",
                "inputs": [tensor("x", x)], "outputs": [tensor("y", y)]});
            (200, metadata.to_string())
        }
        path if path.ends_with("/infer") => {
            let request: Value = serde_json::from_str(&asked.body).unwrap();
            let input = &request["inputs"][0];
            let number = asked_before.fetch_add(1, Ordering::Relaxed);
            let (shape, data) = reply(number, &input["shape"], &input["data"]);
            let y = json!({"name": "y", "datatype": "FP32", "shape": shape, "data": data});
            (200, json!({"model_name": "m", "outputs": [y]}).to_string())
        }
        _ => (404, "{}".to_owned()),
    });
    format!("http://127.0.0.1:{port}")
}

fn sweep(plan: &str, url: &str, files: &[(&str, &str)]) -> (Value, String) {
    let place = Workdir::new(plan);
    for (name, text) in files {
        fs::write(place.path(name), text).unwrap();
    }
    let mut sweep = place.sweep(url);
    sweep.arg("--no-metrics");
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    (only_repeat(&place), ended.stderr)
}

#[test]
fn replies_with_rows_too_many_or_without_numbers_are_counted_as_wrong() {
    let two_rows = |number: usize, _: &Value, _: &Value| match number % 2 {
        0 => (json!([1, 1]), json!([0.5])),
        _ => (json!([2, 1]), json!([0.5, 0.5])),
    };
    let nulls = |number: usize, shape: &Value, _: &Value| {
        let rows = shape[0].as_u64().unwrap() as usize;
        let value = if number > 20 && number.is_multiple_of(2) {
            Value::Null
        } else {
            json!(0.5)
        };
        (json!([rows, 1]), json!(vec![value; rows]))
    };
    let fixed_shape = format!("{ONE_LOAD}[inputs.tensor.x]\nshape = [1, 1]\n");
    for (url, plan, says) in [
        (
            model(&[-1, 1], &[-1, 1], two_rows),
            ONE_LOAD,
            "output `y` has shape [2, 1], not [1, 1]",
        ),
        (
            model(&[-1, 1], &[-1, 1], two_rows),
            &fixed_shape,
            "output `y` has shape [2, 1], not [1, 1]",
        ),
        (
            model(&[-1, 1], &[-1, 1], nulls),
            ONE_LOAD,
            "output `y`: element 0: null in `data` is not a valid FP32",
        ),
    ] {
        let (repeat, _) = sweep(plan, &url, &[]);
        let wrong = repeat["errors"]["wrong-reply"].as_u64().unwrap_or(0);
        assert!((40..=60).contains(&wrong), "{repeat}");
        let example = repeat["examples"]["wrong-reply"].as_str().unwrap();
        assert!(example.contains(says), "{example}");
    }
}

#[test]
fn requests_of_several_shapes_are_measured_one_by_one() {
    let echo = |_: usize, shape: &Value, data: &Value| (shape.clone(), data.clone());
    let recorded = (
        "requests.json",
        r#"{"data":[{"x":{"content":[1,2,3],"shape":[1,3]}},{"x":{"content":[1],"shape":[1,1]}}]}"#,
    );
    for (inputs, file) in [
        ("[inputs]\ndata = \"requests.json\"\n", recorded),
        (
            "[inputs.tensor.x]\nvalues = { file = \"lines.txt\" }\n",
            ("lines.txt", "1 2 3\n4\n5 6\n"),
        ),
    ] {
        let url = model(&[-1, -1], &[-1, -1], echo);
        let (repeat, _) = sweep(&format!("{ONE_LOAD}{inputs}"), &url, &[file]);
        assert_eq!(repeat["completed"], 100, "{repeat}");
        // Requests of a batch do have to go into one.
        let batch = ONE_LOAD.replace("\"realtime\"", "\"batch\"\nbatch_sizes = [2]");
        let place = Workdir::new(&format!("{batch}{inputs}"));
        fs::write(place.path(file.0), file.1).unwrap();
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains("measure mode \"realtime\""), "{}", ended.stderr);
    }
}

#[test]
fn outputs_of_another_rank_than_declared_are_measured_and_named() {
    let cube = |_: usize, _: &Value, _: &Value| (json!([2, 1, 3]), json!([0, 1, 2, 3, 4, 5]));
    let url = model(&[-1, 1], &[1, -1], cube);
    let (repeat, said) = sweep(ONE_LOAD, &url, &[]);
    assert_eq!(repeat["completed"], 100, "{repeat}");
    assert!(
        said.contains("output `y` of model `m` has shape [2, 1, 3], but the model declares [1, -1]"),
        "{said}"
    );
}

#[test]
fn recorded_requests_of_many_rows_have_replies_as_long() {
    // The reply is longer than one of a single row may be.
    let rows = 8_000;
    let echo = |_: usize, shape: &Value, data: &Value| (shape.clone(), data.clone());
    let url = model(&[-1, 1], &[-1, 1], echo);
    let data = vec![json!(0.123_456_7); rows];
    let request = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 1], "data": data}]});
    let plan = format!(
        "{}[inputs]\nrequests = \"r.jsonl\"\n",
        ONE_LOAD.replace("rates = [200]", "rates = [20]")
    );
    let (repeat, _) = sweep(&plan, &url, &[("r.jsonl", &request.to_string())]);
    assert_eq!(repeat["completed"], 10, "{repeat}");
}
