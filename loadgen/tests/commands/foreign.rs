//! The real binary with foreign servers: behind TLS, with replicas, with Triton's statistics, without metrics, and of
//! another protocol.

use crate::program::{BINARY, Workdir, read_json, run};
use crate::site::{Asked, Reply, certificates, is_listening, secure_site, site};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One load of half a second, once, whatever else the machine does.
// As many users as requests: on a busy machine some wait long, and no run is invalid for want of a user.
const ONE_LOAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.5\n\
    drain_s = 1.0\nmax_in_flight = 128\narrivals = \"constant\"\n[[load]]\nmode = \"realtime\"\nrates = [200]\n\
    [limits]\nforeign_cpu_share = 1.0\nsteal_share = 1.0\nlag_us = 1000000\n";

const SECRETS: [&str; 2] = ["S3CRET-TOKEN", "S3CRET-KEY"];

/// Common replies of Triton, MLServer and KServe; `None` for unknown paths.
fn v2(asked: &Asked, prefix: &str) -> Option<Reply> {
    let path = asked.path.strip_prefix(prefix)?;
    match path {
        "/v2/models/m" | "/v2/models/m/versions/3" => Some((
            200,
            json!({
                "name": "m", "versions": ["3"], "platform": "python",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2], "parameters": {}}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
                "parameters": {},
            })
            .to_string(),
        )),
        "/v2/models/m/infer" | "/v2/models/m/versions/3/infer" => Some((
            200,
            r#"{"model_name":"m","model_version":"3","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#
                .to_owned(),
        )),
        _ => None,
    }
}

fn not_found() -> Reply {
    (404, "{\"error\":\"no such route\"}".to_owned())
}

fn is_infer(asked: &Asked) -> bool {
    asked.path.ends_with("/infer")
}

fn only_repeat(place: &Workdir) -> Value {
    place.run_json()["points"][0]["repeats"][0].clone()
}

/// Every file below a folder.
pub(crate) fn texts(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &texts(&path);
        } else {
            all += &String::from_utf8_lossy(&fs::read(path).unwrap());
        }
    }
    all
}

fn report(place: &Workdir) -> String {
    fs::read_to_string(place.path("results/r/report.md")).unwrap()
}

#[test]
#[allow(clippy::too_many_lines, reason = "several checks of one server")]
fn a_server_behind_tls_with_token_client_certificate_and_prefix_is_measured_and_tells_no_secret() {
    let plan = format!(
        "{ONE_LOAD}[target]\nhost = \"models.internal\"\nca = \"ca.pem\"\ncert = \"client.pem\"\nkey = \"client.key\"\n\
         model_version = \"3\"\nmetrics = []\nheaders = {{ X-Route-Key = \"S3CRET-KEY\" }}\n"
    );
    let place = Workdir::new(&plan);
    let tls = certificates(&place.path("."));
    let port = secure_site(&tls, |asked| {
        let header = |name: &str| asked.headers.get(name).map(String::as_str);
        if header("authorization") != Some("Bearer S3CRET-TOKEN") {
            return (401, "{\"error\":\"who are you?\"}".to_owned());
        }
        assert_eq!(header("host"), Some("models.internal"));
        assert_eq!(header("x-route-key"), Some("S3CRET-KEY"));
        v2(asked, "/serving").unwrap_or_else(not_found)
    });
    let url = format!("https://127.0.0.1:{port}/serving");
    fs::write(place.path("token"), "S3CRET-TOKEN\n").unwrap();
    for (workers, name) in [("1", "r"), ("2", "two")] {
        let mut sweep = place.sweep(&url);
        sweep.args(["--token-env", "MODELS_TOKEN", "--workers", workers]);
        sweep.env("MODELS_TOKEN", "S3CRET-TOKEN");
        let args: Vec<_> = sweep.get_args().map(std::ffi::OsStr::to_owned).collect();
        let mut sweep = Command::new(BINARY);
        sweep.args(
            args.iter()
                .map(|arg| if arg == "r" { name.into() } else { arg.clone() }),
        );
        sweep
            .env("MODELS_TOKEN", "S3CRET-TOKEN")
            .env("XDG_STATE_HOME", place.path("state"));
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = read_json(&place.path("results").join(name).join("run.json"));
        let repeat = &run["points"][0]["repeats"][0];
        assert_eq!(repeat["completed"], 100, "{repeat}");
        assert!(repeat["server"].is_null());
        let said = format!("{}{}{}", ended.stdout, ended.stderr, texts(&place.path("results")));
        for secret in SECRETS {
            assert!(!said.contains(secret), "{secret} is told");
        }
    }
    // The message names the missing part, with advice.
    for (plan, args, says) in [
        (plan.clone(), &["--no-metrics"][..], "--token-env"),
        (plan.clone(), &["--token-env", "NO_SUCH_TOKEN_HERE"], "is not set"),
        (
            plan.replace("ca = \"ca.pem\"\n", ""),
            &["--token-file", "token"],
            "--ca",
        ),
        (
            plan.replace("cert = \"client.pem\"\nkey = \"client.key\"\n", ""),
            &["--token-file", "token"],
            "--cert",
        ),
        (
            plan.replace("host = \"models.internal\"\n", ""),
            &["--token-file", "token"],
            "--host-header",
        ),
    ] {
        fs::write(place.path("plan.toml"), &plan).unwrap();
        let mut sweep = place.sweep(&url);
        sweep.args(args).current_dir(place.path("."));
        let ended = run(sweep);
        assert_ne!(ended.code, Some(0), "{says}");
        assert!(ended.stderr.contains(says), "`{says}` is not in: {}", ended.stderr);
        for secret in SECRETS {
            assert!(!ended.stderr.contains(secret), "{secret} is told");
        }
    }
}

/// Plans for goose's own client, instead of [`ONE_LOAD`]'s open loop.
const BY_GOOSE: [&str; 2] = [
    "[[load]]\nmode = \"concurrency\"\nusers = [3]\n",
    "[[journey]]\nname = \"two\"\nrates = [50]\n\
     [[journey.step]]\nname = \"who\"\npath = \"/users/7\"\ntake = { v = \"/values\" }\n\
     [[journey.step]]\nname = \"rank\"\nmodel = \"m\"\n\
     body = '{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":{v}}]}'\n",
];

#[test]
fn closed_loops_and_journeys_reach_a_server_behind_tls_with_token_client_certificate_and_prefix() {
    let prices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml");
    for driven in BY_GOOSE {
        let load = "[[load]]\nmode = \"realtime\"\nrates = [200]\n";
        let plan = format!(
            "prices = {:?}\ninstance = \"aws/c7i.xlarge\"\n{}[target]\nhost = \"models.internal\"\nca = \"ca.pem\"\n\
             cert = \"client.pem\"\nkey = \"client.key\"\nmodel_version = \"3\"\nmetrics = []\n\
             headers = {{ X-Route-Key = \"S3CRET-KEY\" }}\n",
            prices.display().to_string(),
            ONE_LOAD.replace(load, driven)
        );
        let place = Workdir::new(&plan);
        let tls = certificates(&place.path("."));
        let port = secure_site(&tls, |asked| {
            let header = |name: &str| asked.headers.get(name).map(String::as_str);
            if header("authorization") != Some("Bearer S3CRET-TOKEN") {
                return (401, "{\"error\":\"who are you?\"}".to_owned());
            }
            assert_eq!(header("host"), Some("models.internal"));
            assert_eq!(header("x-route-key"), Some("S3CRET-KEY"));
            match asked.path.as_str() {
                "/serving/users/7" => (200, "{\"values\":[0.25,0.5]}".to_owned()),
                _ => v2(asked, "/serving").unwrap_or_else(not_found),
            }
        });
        let mut sweep = place.sweep(&format!("https://127.0.0.1:{port}/serving"));
        sweep.args(["--token-env", "MODELS_TOKEN"]);
        sweep.env("MODELS_TOKEN", "S3CRET-TOKEN");
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = place.run_json();
        for point in run["points"].as_array().unwrap() {
            let repeat = &point["repeats"][0];
            assert!(repeat["completed"].as_u64().unwrap() > 20, "{repeat}");
            assert!(repeat["errors"].as_object().unwrap().is_empty(), "{repeat}");
        }
        // The steps of a journey share its price.
        for point in run["points"].as_array().unwrap() {
            let cost = &point["summary"]["usd_per_10k"];
            let is_step = point["factors"]["driven"]["step"].is_string();
            assert_eq!(cost["value"].as_f64().is_some_and(|usd| usd > 0.0), !is_step, "{point}");
        }
        let said = format!("{}{}{}", ended.stdout, ended.stderr, texts(&place.path("results")));
        for secret in SECRETS {
            assert!(!said.contains(secret), "{secret} is told");
        }
    }
}

#[test]
fn a_closed_loop_asks_any_http_endpoint_as_its_target_says() {
    let port = site(|asked| {
        let is_asked = asked.method == "PUT"
            && asked.path == "/p/score?k=1"
            && asked
                .headers
                .get("content-type")
                .is_some_and(|kind| kind == "text/plain")
            && !asked.headers.contains_key("accept-encoding")
            && asked.body.starts_with("id ");
        if is_asked {
            (200, "{\"score\":[0.5]}".to_owned())
        } else {
            not_found()
        }
    });
    let load = "mode = \"realtime\"\nrates = [200]\n";
    let plan = format!(
        "{}[target]\nkind = \"http\"\nmethod = \"PUT\"\npath = \"/score?k=1\"\ncontent_type = \"text/plain\"\n\
         body = \"id {{entity_id}}\"\nentities = 100\nrows_per_request = 3\n\
         [target.success]\nstatus = [200]\npointer = \"/score/0\"\n",
        ONE_LOAD.replace(load, "mode = \"concurrency\"\nusers = [2]\n")
    );
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{port}/p")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = only_repeat(&place);
    assert!(repeat["closed_loop"].is_object(), "{repeat}");
    assert!(repeat["completed"].as_u64().unwrap() > 20, "{repeat}");
    assert!(repeat["errors"].as_object().unwrap().is_empty(), "{repeat}");
    // The plan's rows per request also count in a closed loop, and the different requests are at most those sent.
    let summary = &place.run_json()["points"][0]["summary"];
    let [rows, requests] = ["inferences_per_s", "achieved_rps"].map(|name| summary[name]["value"].as_f64().unwrap());
    assert!((rows / requests - 3.0).abs() < 1e-9, "{summary}");
    let distinct = repeat["sent"]["distinct"].as_u64().unwrap();
    assert!(
        distinct >= repeat["completed"].as_u64().unwrap() && distinct < 200_000,
        "{distinct}"
    );
}

#[test]
fn broken_connections_of_a_closed_loop_are_counted_with_their_reason_and_not_printed() {
    let number = AtomicU64::new(0);
    let port = site(move |_| {
        if !number.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            // Ends the thread of the connection, without the time that a message with a backtrace takes.
            std::panic::resume_unwind(Box::new("cut off"));
        }
        (200, "{}".to_owned())
    });
    let load = "mode = \"realtime\"\nrates = [200]\n";
    let plan = format!(
        "{}[target]\nkind = \"http\"\nmetrics = []\npath = \"/cut\"\nbody = \"1\"\n",
        ONE_LOAD.replace(load, "mode = \"concurrency\"\nusers = [2]\n")
    );
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{port}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = only_repeat(&place);
    let broken = repeat["errors"]["broken"].as_u64();
    assert!(broken.is_some_and(|broken| broken > 10), "{repeat}");
    let reason = repeat["examples"]["broken"].as_str().unwrap().to_lowercase();
    assert!(reason.contains("connection"), "{repeat}");
    assert!(!ended.stdout.contains("/cut"), "{}", ended.stdout);
}

#[test]
fn a_first_reply_above_the_plans_limit_names_the_limit() {
    let port = site(|_| (200, "x".repeat(2_000)));
    let target = "[target]\nkind = \"http\"\nmetrics = []\npath = \"/\"\nbody = \"1\"\n";
    let place = Workdir::new(&format!("reply_limit_bytes = 1024\n{ONE_LOAD}{target}"));
    let ended = run(place.sweep(&format!("http://127.0.0.1:{port}")));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let says = "a body of more than 1024 bytes (raise `reply_limit_bytes` in the plan)";
    assert!(ended.stderr.trim_end().ends_with(says), "{}", ended.stderr);
}

/// Counter of a replica, and the start of its process.
struct Replica {
    count: u64,
    started_s: u64,
}

impl Replica {
    fn metrics(&self) -> Reply {
        let Self { count, started_s } = self;
        let text = format!(
            "tierlab_build_info{{feature_tier=\"s3\"}} 1\ntierlab_inferences_total{{model=\"m\"}} {count}\n\
             process_start_time_seconds {started_s}\n"
        );
        (200, text)
    }
}

fn now_s() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn counters_of_replicas_are_added_and_one_that_restarted_counts_from_zero() {
    let replicas: Arc<Mutex<Vec<Replica>>> = Arc::new(Mutex::new(
        (0..3)
            .map(|i| Replica {
                count: 10_000 * i,
                started_s: 1_000 + i,
            })
            .collect(),
    ));
    let asked_in_all = Arc::new(AtomicU64::new(0));
    let metrics: Vec<u16> = (0..3)
        .map(|i| {
            let replicas = Arc::clone(&replicas);
            site(move |_| replicas.lock().unwrap()[i].metrics())
        })
        .collect();
    let port = {
        let (replicas, asked_in_all) = (Arc::clone(&replicas), Arc::clone(&asked_in_all));
        site(move |asked| {
            let turn = asked_in_all.load(Ordering::Relaxed) as usize;
            if asked.path == "/metrics" {
                asked_in_all.fetch_add(1, Ordering::Relaxed);
                return replicas.lock().unwrap()[turn % 3].metrics();
            }
            if is_infer(asked) {
                asked_in_all.fetch_add(1, Ordering::Relaxed);
                let mut replicas = replicas.lock().unwrap();
                // In the middle of the step the second replica restarts.
                if turn == 40 {
                    replicas[1] = Replica {
                        count: 0,
                        started_s: now_s(),
                    };
                }
                replicas[turn % 3].count += 1;
            }
            v2(asked, "").unwrap_or_else(not_found)
        })
    };
    let url = format!("http://127.0.0.1:{port}");
    let place = Workdir::new(ONE_LOAD);
    let mut sweep = place.sweep(&url);
    for port in &metrics {
        sweep.args(["--metrics-url", &format!("http://127.0.0.1:{port}")]);
    }
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let server = only_repeat(&place)["server"].clone();
    assert_eq!(server["restarts"], 1, "{server}");
    // 120 of the step, less the requests that the second had counted before its restart.
    let inferences = server["inferences"].as_f64().unwrap();
    assert!((80.0..=120.0).contains(&inferences), "{inferences}");
    assert!(report(&place).contains("servers restarted"), "{}", report(&place));

    // One address behind which they take turns: nothing is counted, and said.
    let place = Workdir::new(ONE_LOAD);
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("take turns") && ended.stderr.contains("--metrics-url"),
        "{}",
        ended.stderr
    );
    assert!(only_repeat(&place)["server"].is_null());
    let mut sweep = Workdir::new(ONE_LOAD).sweep(&url);
    sweep.args(["--metrics-url", &format!("{url}/metrics")]);
    assert_eq!(run(sweep).code, Some(2));
}

#[test]
fn counters_of_one_replica_of_three_behind_one_address_count_nothing() {
    let asked_in_all = AtomicU64::new(0);
    let port = site(move |asked| {
        if asked.path == "/metrics" {
            let count = asked_in_all.load(Ordering::Relaxed) / 3;
            let text = format!(
                "tierlab_build_info{{feature_tier=\"s3\"}} 1\ntierlab_inferences_total{{model=\"m\"}} {count}\n\
                 tierlab_requests_total{{model=\"m\",code=\"200\"}} {count}\nprocess_start_time_seconds 1000\n"
            );
            return (200, text);
        }
        asked_in_all.fetch_add(u64::from(is_infer(asked)), Ordering::Relaxed);
        v2(asked, "").unwrap_or_else(not_found)
    });
    let place = Workdir::new(ONE_LOAD);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{port}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let server = only_repeat(&place)["server"].clone();
    let doubt = server["doubt"].as_str().unwrap();
    assert!(
        doubt.contains("it counted 40 requests, but 120 were answered here"),
        "{doubt}"
    );
    assert!(report(&place).contains("--metrics-url"), "{}", report(&place));
}

#[test]
fn one_address_whose_counters_fall_is_no_restart_and_has_no_price_by_requests() {
    let inferred = Arc::new(AtomicU64::new(0));
    let port = site(move |asked| match asked.path.as_str() {
        "/metrics" => {
            // After the step another one answers.
            let count = if inferred.load(Ordering::Relaxed) > 20 {
                10
            } else {
                90_000
            };
            let text = format!(
                "tierlab_build_info{{feature_tier=\"s3\"}} 1\ntierlab_inferences_total{{model=\"m\"}} {count}\n\
                 tierlab_tier_requests_total{{role=\"feature\",tier=\"s3\"}} {count}\n"
            );
            (200, text)
        }
        _ => {
            inferred.fetch_add(u64::from(is_infer(asked)), Ordering::Relaxed);
            v2(asked, "").unwrap_or_else(not_found)
        }
    });
    let prices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml");
    let plan = format!(
        "prices = {:?}\ninstance = \"aws/c7i.xlarge\"\n{ONE_LOAD}",
        prices.display().to_string()
    );
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{port}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let server = only_repeat(&place)["server"].clone();
    assert!(server["doubt"].as_str().unwrap().contains("fell"), "{server}");
    let summary = place.run_json()["points"][0]["summary"].clone();
    assert!(summary["usd_per_10k"].is_null(), "{summary}");
    assert!(report(&place).contains("its counters fell"), "{}", report(&place));
}

#[test]
fn tritons_statistics_say_where_its_time_goes_and_a_server_without_says_nothing() {
    let answered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answered);
    let triton = site(move |asked| {
        if asked.path == "/v2/models/m/stats" {
            let count = counted.load(Ordering::Relaxed);
            let of = |ns: u64| json!({"count": count, "ns": count * ns});
            let stats = json!({"model_stats": [{"name": "m", "version": "3", "inference_stats": {
                "success": of(1_000_000), "fail": {"count": 0, "ns": 0}, "queue": of(50_000), "compute_input": of(10_000),
                "compute_infer": of(900_000), "compute_output": of(20_000)}}]});
            return (200, stats.to_string());
        }
        if is_infer(asked) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        v2(asked, "").unwrap_or_else(not_found)
    });
    let place = Workdir::new(ONE_LOAD);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{triton}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("--metrics-url"), "{}", ended.stderr);
    let repeat = only_repeat(&place);
    assert_eq!(repeat["completed"], 100);
    let stages = &repeat["server"]["stages"];
    assert_eq!(
        (stages["queue_us"].as_f64(), stages["infer_us"].as_f64()),
        (Some(50.0), Some(900.0))
    );
    let text = report(&place);
    assert!(
        text.contains("by the server's own statistics") && !text.contains("no timing"),
        "{text}"
    );

    let silent = site(|asked| v2(asked, "").unwrap_or_else(not_found));
    let place = Workdir::new(ONE_LOAD);
    let mut sweep = place.sweep(&format!("http://127.0.0.1:{silent}"));
    sweep.arg("--no-metrics");
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = only_repeat(&place);
    let bands = repeat["bands"].to_string();
    assert!(bands.contains("untold") && !bands.contains("unattributed"), "{bands}");
    assert!(!report(&place).contains("no timing"));
    assert!(repeat["server"].is_null());
}

#[test]
fn a_foreign_server_is_priced_by_its_instance_alone() {
    let silent = site(|asked| v2(asked, "").unwrap_or_else(not_found));
    let prices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/prices.toml");
    let plan = format!(
        "prices = {:?}\ninstance = \"aws/c7i.xlarge\"\n{ONE_LOAD}",
        prices.display().to_string()
    );
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&format!("http://127.0.0.1:{silent}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let cost = place.run_json()["points"][0]["summary"]["usd_per_10k"].clone();
    assert!(cost["value"].as_f64().unwrap() > 0.0, "{cost}");
}

#[test]
fn any_http_endpoint_is_asked_by_a_template_and_judged_by_its_rule() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&bodies);
    let port = site(move |asked| {
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("POST", "/api/v1/models/m:predict?x=1")
        );
        assert_eq!(asked.headers["content-type"], "application/json");
        let read: Value = serde_json::from_str(&asked.body).unwrap();
        let id = read["instances"][0]["id"].as_i64().unwrap();
        let mut bodies = kept.lock().unwrap();
        bodies.push(id);
        // Every fourth is an error that says 200.
        if bodies.len() % 4 == 0 {
            return (200, "{\"error\":\"asleep\"}".to_owned());
        }
        (200, "{\"predictions\":[0.25]}".to_owned())
    });
    let plan = format!(
        "{ONE_LOAD}[target]\nkind = \"http\"\nurl = \"http://127.0.0.1:{port}/api\"\npath = \"/v1/models/m:predict?x=1\"\n\
         body = '{{\"instances\":[{{\"id\": {{entity_id}}}}]}}'\nentities = 500\nfirst_id = 1000\nrows_per_request = 2\n\
         [target.success]\npointer = \"/predictions/0\"\n"
    );
    let place = Workdir::new(&plan);
    let mut sweep = Command::new(BINARY);
    sweep.arg("sweep").arg(place.path("plan.toml"));
    sweep
        .arg("--out")
        .arg(place.path("results"))
        .args(["--name", "r"])
        .env("XDG_STATE_HOME", place.path("state"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let repeat = &result["points"][0]["repeats"][0];
    assert_eq!(result["points"][0]["factors"]["batch_size"], 2);
    let wrong = repeat["errors"]["wrong-reply"].as_u64().unwrap();
    assert_eq!(repeat["completed"].as_u64().unwrap() + wrong, 100);
    assert!((20..=30).contains(&wrong), "{wrong}");
    assert!(
        repeat["examples"]["wrong-reply"]
            .as_str()
            .unwrap()
            .contains("`/predictions/0`")
    );
    assert!(bodies.lock().unwrap().iter().all(|id| (1_000..1_500).contains(id)));
    assert!(
        result["points"][0]["summary"]["verdict"]
            .to_string()
            .contains("saturated")
    );

    // An endpoint that never succeeds is reported before the first step.
    fs::write(place.path("plan.toml"), plan.replace("/predictions/0", "/nowhere")).unwrap();
    let mut sweep = Command::new(BINARY);
    sweep
        .arg("sweep")
        .arg(place.path("plan.toml"))
        .arg("--out")
        .arg(place.path("other"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`target.success`") && ended.stderr.contains("/nowhere"),
        "{}",
        ended.stderr
    );
    assert!(!place.path("other").exists());
}

#[test]
fn a_lab_measures_servers_that_run_already_and_starts_none() {
    let one = site(|asked| v2(asked, "").unwrap_or_else(not_found));
    let two = site(|_| (200, "{\"predictions\":[0.25]}".to_owned()));
    let plan = format!(
        "{ONE_LOAD}[lab]\nwork = \"lab\"\n[[variant]]\nname = \"triton\"\nurl = \"http://127.0.0.1:{one}\"\n\
         [[variant]]\nname = \"kserve\"\nurl = \"http://127.0.0.1:{two}\"\n[variant.target]\nkind = \"http\"\npath = \"/v1/models/m:predict\"\n\
         body = '{{\"instances\":[1]}}'\nsuccess = {{ pointer = \"/predictions\" }}\n"
    );
    let place = Workdir::new(&plan);
    let mut lab = Command::new(BINARY);
    lab.arg("lab").arg(place.path("plan.toml"));
    lab.arg("--out")
        .arg(place.path("results"))
        .args(["--name", "r"])
        .env("XDG_STATE_HOME", place.path("state"));
    // A folder without any other program of the project.
    lab.arg("--bin-dir").arg(place.path("."));
    let ended = run(lab);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = place.run_json();
    let points = result["points"].as_array().unwrap();
    let variants: Vec<&str> = points
        .iter()
        .map(|point| point["factors"]["variant"].as_str().unwrap())
        .collect();
    assert_eq!(variants, ["triton", "kserve"]);
    for point in points {
        assert_eq!(point["repeats"][0]["completed"], 100);
    }
    assert!(is_listening(one) && is_listening(two));
}
