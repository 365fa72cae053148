//! Closed loops and journeys through the real binary, with a server of scripted times and replies.

use crate::program::{NullEndpoint, Workdir, interrupt, run, run_until};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierlab_analysis::record::{Driven, Histograms, Point, Run};
use tierlab_loadgen::store::folder;
use tierlab_protocol::grpc::client::{framed, infer_path, unframed};
use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelInferResponse};
use tierlab_protocol::infer::{InferReply, InferRequest};

const HEAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\narrivals = \"constant\"\nwarmup_s = 0.2\ndrain_s = 2.0\nmax_in_flight = 64\n\
    limits = { foreign_cpu_share = 1.0, steal_share = 1.0, foreign_disk_bytes_per_s = 1e12, foreign_network_bytes_per_s = 1e12, \
    foreign_io_pressure = 1, foreign_memory_pressure = 1 }\n";
/// Service time of every request without a stall.
const SERVICE: Duration = Duration::from_millis(5);
/// Length of a stall at the start of every period.
const STALL: Duration = Duration::from_millis(400);
const PERIOD: Duration = Duration::from_millis(1_000);
/// Latency above that of requests without a stall, and below that of stalled ones.
const SLOW_US: u64 = 60_000;

/// Behaviour of the server.
#[derive(Default)]
struct Script {
    stalls: bool,
    /// Period of failing requests to `rank`; 0 for none.
    fails_every: u64,
    /// If true, `embed` leaves out the value that the next step takes.
    lacks_vector: bool,
    ranked: AtomicU64,
}

struct Server {
    script: Script,
    started: Instant,
    /// Rows inferred, and requests of its tier, which makes two for each infer request.
    counted: [AtomicU64; 2],
    over_grpc: AtomicU64,
}

async fn infer(State(server): State<Arc<Server>>, Path(model): Path<String>, body: String) -> impl IntoResponse {
    answer(&server, &model, &body).await
}

/// Answers over gRPC, on the same port.
async fn infer_over_grpc(State(server): State<Arc<Server>>, body: Bytes) -> impl IntoResponse {
    let message = ModelInferRequest::decode(unframed(&body).unwrap()).unwrap();
    server.over_grpc.fetch_add(1, Ordering::Relaxed);
    let model = message.model_name.clone();
    let request = InferRequest {
        binary_output: false,
        ..InferRequest::try_from(message).unwrap()
    };
    let asked = String::from_utf8(request.encode_json()).unwrap();
    let (status, reply) = answer(&server, &model, &asked).await;
    let (code, reply) = match status {
        StatusCode::OK => {
            let reply = InferReply::decode(&Bytes::from(reply), None).unwrap();
            ("0", framed(&ModelInferResponse::from(reply)))
        }
        StatusCode::SERVICE_UNAVAILABLE => ("14", Bytes::new()),
        _ => ("3", Bytes::new()),
    };
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))]);
    let body = Full::new(reply).with_trailers(std::future::ready(Some(Ok(trailers))));
    ([(CONTENT_TYPE, "application/grpc")], axum::body::Body::new(body))
}

async fn answer(server: &Server, model: &str, body: &str) -> (StatusCode, String) {
    let into = Duration::from_nanos((server.started.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
    let stalled = if server.script.stalls {
        STALL.saturating_sub(into)
    } else {
        Duration::ZERO
    };
    tokio::time::sleep(stalled + SERVICE).await;
    let request: Value = serde_json::from_str(body).unwrap();
    let input = &request["inputs"][0];
    let rows = input["shape"][0].as_i64().unwrap();
    server.counted[0].fetch_add(rows as u64, Ordering::Relaxed);
    server.counted[1].fetch_add(2, Ordering::Relaxed);
    let reply = |output: Value| {
        let text = json!({"model_name": model, "model_version": "1", "outputs": [output]}).to_string();
        (StatusCode::OK, text)
    };
    match model {
        "embed" if input["data"] == json!(["about u 7/8"]) && server.script.lacks_vector => {
            reply(json!({"name": "vector", "datatype": "FP32", "shape": [1, 2], "data": []}))
        }
        "embed" if input["data"] == json!(["about u 7/8"]) => {
            reply(json!({"name": "vector", "datatype": "FP32", "shape": [1, 2], "data": [0.25, 0.5]}))
        }
        "rank" if input["data"] == json!([0.25, 0.5]) && input["shape"] == json!([1, 2]) => {
            let number = server.script.ranked.fetch_add(1, Ordering::Relaxed) + 1;
            // The first is the check before the measurement.
            if server.script.fails_every > 0 && number.is_multiple_of(server.script.fails_every) {
                return (StatusCode::SERVICE_UNAVAILABLE, "{\"error\":\"full\"}".to_owned());
            }
            reply(json!({"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}))
        }
        "m" => reply(json!({"name": "y", "datatype": "FP32", "shape": [rows, 1], "data": vec![0.5; rows as usize]})),
        _ => (StatusCode::BAD_REQUEST, json!({"error": body}).to_string()),
    }
}

async fn model(Path(model): Path<String>) -> impl IntoResponse {
    let (inputs, outputs) = match model.as_str() {
        "embed" => (
            json!([{"name": "text", "datatype": "BYTES", "shape": [-1]}]),
            json!([{"name": "vector", "datatype": "FP32", "shape": [-1, -1]}]),
        ),
        "rank" => (
            json!([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]),
            json!([{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]),
        ),
        _ => (
            json!([{"name": "x", "datatype": "FP32", "shape": [-1, 1]}]),
            json!([{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]),
        ),
    };
    json!({"name": model, "versions": ["1"], "platform": "scripted", "inputs": inputs, "outputs": outputs}).to_string()
}

async fn metrics(State(server): State<Arc<Server>>) -> String {
    let [inferences, asked] = [0, 1].map(|index| server.counted[index].load(Ordering::Relaxed));
    // For any models, their sum is the number of inferences.
    format!(
        "tierlab_build_info{{feature_tier=\"null\"}} 1\n\
         tierlab_inferences_total{{model=\"m\"}} {inferences}\ntierlab_inferences_total{{model=\"rank\"}} {inferences}\n\
         tierlab_tier_requests_total{{role=\"feature\",tier=\"null\"}} {asked}\n\
         over_grpc {}\n",
        server.over_grpc.load(Ordering::Relaxed)
    )
}

/// Serves until the runtime is dropped; its address.
async fn serve(script: Script) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        script,
        started: Instant::now(),
        counted: Default::default(),
        over_grpc: AtomicU64::new(0),
    };
    let user = |Path(user): Path<String>| async move { json!({"name": format!("u {user}")}).to_string() };
    let app = Router::new()
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/infer", post(infer))
        .route(&infer_path(), post(infer_over_grpc))
        .route("/users/{user}", get(user))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(server));
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Sweeps a plan with such a server.
fn swept(script: Script, plan: &str) -> (Workdir, Run, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(script));
    let place = Workdir::new(plan);
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // goose would print its own lines there.
    assert!(!ended.stdout.contains("launched"), "{}", ended.stdout);
    let run = folder::load(&place.path("results/r")).unwrap();
    (place, run, ended.stdout)
}

fn closed(users: &str, more: &str) -> String {
    format!("{HEAD}repeats = 2\nstep_s = 2.0\n[[load]]\nmode = \"concurrency\"\nusers = [{users}]\n{more}\n")
}

#[test]
fn a_closed_loop_over_grpc_keeps_its_law_beside_an_open_loop_over_grpc() {
    let endpoint = NullEndpoint::start();
    let place = Workdir::new(&format!("protocol = \"grpc\"\n{}", closed("3", "")));
    let mut sweep = place.sweep(&endpoint.url);
    sweep.args(["--grpc-url", &endpoint.url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let [closed, open] = &run.points[..] else {
        panic!("{} points", run.points.len());
    };
    for point in [closed, open] {
        for repeat in &point.repeats {
            assert!(
                repeat.completed > 100 && repeat.errors.is_empty(),
                "{:?}",
                repeat.errors
            );
        }
    }
    for repeat in &closed.repeats {
        let by_law = repeat.driver.closed_loop().unwrap().users_by_law();
        assert!((by_law - 3.0).abs() < 0.3, "{by_law}");
    }
}

/// Returns the share of a point's requests that took longer than [`SLOW_US`].
fn slow_share(point: &Point) -> f64 {
    let blocks = point.repeats.iter().flat_map(|repeat| &repeat.histograms.latency);
    let (slow, all) = blocks.fold((0, 0), |(slow, all), block| {
        let fast = block.count_between(0, SLOW_US);
        (slow + block.len() - fast, all + block.len())
    });
    slow as f64 / all as f64
}

#[test]
fn a_closed_loop_obeys_its_law_and_stands_beside_an_open_loop() {
    let (place, run, stdout) = swept(Script::default(), &closed("1, 3", "think_time_ms = [2, 6]"));
    assert_eq!(run.points.len(), 4);
    for (pair, users) in run.points.chunks(2).zip([1_u32, 3]) {
        let [closed, open] = pair else { panic!("pairs") };
        let think_time = "2 to 6 ms".to_owned();
        assert_eq!(
            closed.factors.driven,
            Some(Driven::ClosedLoop {
                users,
                think_time: think_time.clone()
            })
        );
        assert_eq!(
            open.factors.driven,
            Some(Driven::BesideClosedLoop { users, think_time })
        );
        assert_eq!(closed.factors.offered_rps, 0.0);
        assert_eq!((closed.repeats.len(), open.repeats.len()), (2, 2));
        for repeat in &closed.repeats {
            let figures = repeat.driver.closed_loop().unwrap();
            // At each edge of the window a cycle of each user is cut.
            let cut = f64::from(users) / (figures.ended_rps * repeat.window_s);
            let off = (figures.users_by_law() / f64::from(users) - 1.0).abs();
            assert!(off < 0.03 + cut, "{figures:?}");
            assert!(figures.mean_response_us > 5_000.0 && figures.mean_pause_us >= figures.mean_think_us);
            // goose's clock stops no later than ours, and its metrics saw no more than there were.
            let goose = repeat.driver.goose().unwrap();
            let slowest_us = repeat.histograms.latency.iter().map(Histogram::max).max().unwrap();
            assert!(
                goose.p50_us > 0.0 && goose.p50_us <= slowest_us as f64 * 2.0,
                "{goose:?}, slowest {slowest_us} us"
            );
            assert!(goose.counted.unwrap() > 0);
        }
        // The rate of the open loop is the first throughput, in four digits, and stays.
        let throughput = closed.repeats[0].achieved_rps;
        assert!((open.factors.offered_rps / throughput - 1.0).abs() < 1e-3);
    }
    let rows = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert_eq!(rows.matches(",closed,").count(), 2, "{rows}");
    assert_eq!(rows.matches(",open beside closed,").count(), 2, "{rows}");
    let markdown = fs::read_to_string(place.path("results/r/report.md")).unwrap_or_default();
    let page = fs::read_to_string(place.path("results/r/report.html")).unwrap();
    for text in [&stdout, &page] {
        assert!(
            text.contains("coordinated omission") && text.contains("by the law"),
            "{text}"
        );
    }
    assert!(markdown.is_empty() || markdown.contains("coordinated omission"));
    assert!(
        run.findings.is_empty(),
        "a closed loop says nothing of how far a server goes"
    );
}

#[test]
fn a_stall_is_seen_by_the_open_loop_and_not_by_the_closed_one() {
    let script = Script {
        stalls: true,
        ..Script::default()
    };
    let (_, run, stdout) = swept(script, &closed("1", ""));
    // A user meets the stall once per period, in about a hundred requests; of open-loop arrivals four in ten meet it.
    let [closed, open] = [&run.points[0], &run.points[1]].map(slow_share);
    assert!(
        closed < 0.1 && open > 0.2,
        "{closed} of the closed loop's, {open} of the open loop's\n{stdout}"
    );
}

const JOURNEY: &str = "repeats = 2\nstep_s = 1.0\n[[journey]]\nname = \"recommend\"\nrates = [100]\n\
    [[journey.step]]\nname = \"fetch\"\npath = \"/users/7%2F8\"\ntake = { who = \"/name\" }\n\
    [[journey.step]]\nname = \"embed\"\nmodel = \"embed\"\ninputs = { text = \"about {who}\" }\ntake = { v = \"/outputs/0/data\" }\n\
    [[journey.step]]\nname = \"rank\"\nmodel = \"rank\"\n\
    body = '{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":{v}}]}'\n";

fn mean_us(point: &Point) -> f64 {
    let of = |clocks: &Histograms| clocks.latency.clone();
    let blocks: Vec<_> = point.repeats.iter().flat_map(|repeat| of(&repeat.histograms)).collect();
    let all: u64 = blocks.iter().map(hdrhistogram::Histogram::len).sum();
    blocks
        .iter()
        .map(|block| block.mean() * block.len() as f64)
        .sum::<f64>()
        / all as f64
}

#[test]
fn a_journey_hands_values_on_and_its_steps_sum_to_it() {
    let (place, run, stdout) = swept(Script::default(), &format!("{HEAD}{JOURNEY}"));
    let names: Vec<String> = run
        .points
        .iter()
        .map(|point| point.factors.driven.as_ref().unwrap().to_string())
        .collect();
    let step = |name: &str| format!("journey recommend, step {name}");
    assert_eq!(
        names,
        [
            "journey recommend".to_owned(),
            step("fetch"),
            step("embed"),
            step("rank")
        ]
    );
    for point in &run.points {
        for repeat in &point.repeats {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
        }
    }
    let [whole, steps @ ..] = &run.points[..] else {
        panic!("points")
    };
    let sum: f64 = steps.iter().map(mean_us).sum();
    // Equal up to the three digits of a histogram.
    assert!(
        (sum / mean_us(whole) - 1.0).abs() < 0.01,
        "{sum} is not {}",
        mean_us(whole)
    );
    // goose's own times exclude the time before and between requests.
    let goose = whole.repeats[0].driver.goose().unwrap();
    assert!(
        goose.p50_us > 0.0
            && goose.p99_us
                <= whole.repeats[0]
                    .histograms
                    .latency
                    .iter()
                    .map(hdrhistogram::Histogram::max)
                    .max()
                    .unwrap() as f64
    );
    let rows = fs::read_to_string(place.path("results/r/summary.csv")).unwrap();
    assert!(
        rows.contains(",recommend,whole") && rows.contains(",recommend,rank"),
        "{rows}"
    );
    assert!(
        stdout.contains("recommend at 100/s, whole") && stdout.contains("goose carries it"),
        "{stdout}"
    );
}

/// Returns the counter of calls over gRPC from the server's metrics.
fn over_grpc(runtime: &tokio::runtime::Runtime, url: &str) -> u64 {
    let asked = async { reqwest::get(format!("{url}/metrics")).await.unwrap().text().await };
    let text = runtime.block_on(asked).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("over_grpc "));
    line.unwrap().parse().unwrap()
}

#[test]
fn steps_over_grpc_take_and_hand_on_the_same_values() {
    let over_grpc_alone = format!("protocol = \"grpc\"\n{HEAD}{JOURNEY}");
    let model = "model = \"rank\"\n";
    let one_step = format!("{HEAD}{JOURNEY}").replace(model, &format!("{model}protocol = \"grpc\"\n"));
    // Of a hundred journeys in each of two repeats, their warm-up and the try before.
    for (plan, steps) in [(over_grpc_alone, 2), (one_step, 1)] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let url = runtime.block_on(serve(Script::default()));
        let place = Workdir::new(&plan);
        let mut sweep = place.sweep(&url);
        sweep.args(["--grpc-url", &url]);
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = folder::load(&place.path("results/r")).unwrap();
        assert_eq!(run.points.len(), 4);
        let mut requests = 0;
        for repeat in run.points.iter().flat_map(|point| &point.repeats) {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
            // goose has no times of requests that it did not send.
            assert!(repeat.driver.goose().is_none());
            requests += repeat.driver.journeys().map_or(0, |journeys| journeys.requests);
        }
        let calls = over_grpc(&runtime, &url);
        assert!(
            calls >= steps * requests / 3 && calls <= steps * (requests / 3 + 8),
            "{calls} calls of {requests} requests"
        );
        assert!(!ended.stdout.contains("goose carries it"), "{}", ended.stdout);
    }
}

#[test]
fn a_step_over_grpc_that_fails_is_named_by_its_status() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        fails_every: 4,
        ..Script::default()
    }));
    let plan = format!("protocol = \"grpc\"\n{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1");
    let place = Workdir::new(&plan);
    // A plan over gRPC without the server's gRPC address.
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--grpc-url"), "{}", ended.stderr);
    let mut sweep = place.sweep(&url);
    sweep.args(["--grpc-url", &url]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let errors = &run.points[0].repeats[0].errors;
    let [(reason, failed)] = &errors.iter().collect::<Vec<_>>()[..] else {
        panic!("{errors:?}")
    };
    assert!(
        reason.contains("UNAVAILABLE") && reason.ends_with(" at rank") && (20..=30).contains(*failed),
        "{errors:?}"
    );
}

/// Prices of an instance of $3.6 per hour, and of storage at $1 per 1,000 requests.
const PRICES: &str = "[instances.box]\nusd_per_hour = 3.6\nprovider = \"p\"\nregion = \"r\"\nas_of = \"2026-01\"\n\
    checked = true\nsource = \"https://example.org\"\n[storage.blobs]\nusd_per_1000_get_requests = 1.0\nprovider = \"p\"\n\
    region = \"r\"\nas_of = \"2026-01\"\nchecked = true\nsource = \"https://example.org\"\n[tiers]\nnull = \"blobs\"\n";

#[test]
fn closed_loops_and_journeys_have_a_price_by_the_rules_of_the_open_loop() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let priced = "prices = \"prices.toml\"\ninstance = \"box\"\n";
    let journey = JOURNEY.replace("repeats = 2\nstep_s = 1.0\n", "");
    let place = Workdir::new(&format!("{priced}{}{journey}", closed("2", "batch_sizes = [4]")));
    fs::write(place.path("prices.toml"), PRICES).unwrap();
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let run = folder::load(&place.path("results/r")).unwrap();
    let [closed, open, whole, steps @ ..] = &run.points[..] else {
        panic!("{} points", run.points.len())
    };
    let paid = |point: &Point| point.summary.as_ref().unwrap().usd_per_10k.unwrap();
    let hour = |point: &Point, inferences: f64| {
        let each = |rps: f64| 10.0 / rps / inferences;
        let rates = point.repeats.iter().map(|repeat| match repeat.driver.closed_loop() {
            Some(_) => repeat.achieved_rps,
            None => repeat.achieved_rps * repeat.window_s / repeat.scheduled as f64 * point.factors.offered_rps,
        });
        rates.map(each).sum::<f64>() / point.repeats.len() as f64
    };
    // Two storage requests for four rows, so four for two infer requests. Requests cut by a window's edges are not
    // counted again.
    for (point, inferences, storage) in [(closed, 4.0, 5.0), (open, 4.0, 5.0), (whole, 1.0, 40.0)] {
        let usd = paid(point);
        let expected = hour(point, inferences) + storage;
        assert!(
            (usd.value / expected - 1.0).abs() < 1e-6 && usd.lo <= usd.value && usd.value <= usd.hi,
            "{usd:?} is not {expected}: {}",
            point.factors.driven.as_ref().unwrap()
        );
    }
    // The steps of a journey share the hour.
    assert!(
        steps
            .iter()
            .all(|step| step.summary.as_ref().unwrap().usd_per_10k.is_none())
    );
    assert!(
        ended.stdout.contains("$/10k is what 10,000 whole journeys cost")
            && ended.stdout.contains("at the throughput that these users had"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_step_that_fails_ends_its_journey_and_is_named() {
    let script = Script {
        fails_every: 4,
        ..Script::default()
    };
    let (_, run, stdout) = swept(
        script,
        &format!("{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1"),
    );
    let [whole, _, embed, rank] = &run.points[..] else {
        panic!("points")
    };
    let [whole, embed, rank] = [whole, embed, rank].map(|point| &point.repeats[0]);
    assert_eq!(embed.errors.len(), 0);
    let failed = rank.errors["503"];
    assert!((20..=30).contains(&failed), "{failed}");
    assert_eq!(
        whole.errors,
        std::collections::BTreeMap::from([("503 at rank".to_owned(), failed)])
    );
    assert_eq!(whole.completed + failed, 100);
    assert!(stdout.contains("503 at rank"), "{stdout}");
}

#[test]
fn a_journey_that_cannot_be_made_is_named_before_anything_is_measured() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        lacks_vector: true,
        ..Script::default()
    }));
    let plan = format!("{HEAD}{JOURNEY}");
    // The reply lacks the values, so the server refuses the body built from it.
    let place = Workdir::new(&plan);
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("step `embed`") && ended.stderr.contains("wrong-reply"),
        "{}",
        ended.stderr
    );
    // A missing value for a later step is a wrong reply too.
    let place = Workdir::new(&plan.replace("\"/name\"", "\"/nome\""));
    let ended = run(place.sweep(&url));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("step `fetch`") && ended.stderr.contains("/nome"),
        "{}",
        ended.stderr
    );
    // An input that the model lacks, and a model that needs more than an entity.
    for (from, to, says) in [
        ("{ text = ", "{ test = ", "no input `test`"),
        ("inputs = { text = \"about {who}\" }\n", "", "`embed` joins no rows"),
    ] {
        let place = Workdir::new(&plan.replace(from, to));
        let ended = run(place.sweep(&url));
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[test]
fn what_several_cannot_send_together_is_refused_by_name() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let place = Workdir::new(&closed("1", ""));
    let mut sweep = place.sweep(&url);
    sweep.args(["--workers", "2"]);
    let ended = run(sweep);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("`load`: a closed loop") && ended.stderr.contains("--workers"),
        "{}",
        ended.stderr
    );
}

#[test]
fn journeys_of_several_processes_are_those_of_one() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script {
        fails_every: 4,
        ..Script::default()
    }));
    for protocol in ["http", "grpc"] {
        let plan = format!("protocol = \"{protocol}\"\n{HEAD}{JOURNEY}").replace("repeats = 2", "repeats = 1");
        let place = Workdir::new(&plan);
        let mut sweep = place.sweep(&url);
        sweep.args(["--workers", "2", "--grpc-url", &url]);
        let ended = run(sweep);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let run = folder::load(&place.path("results/r")).unwrap();
        let [whole, fetch, embed, rank] = &run.points[..] else {
            panic!("points")
        };
        let [whole_once, fetch, embed, rank_once] = [whole, fetch, embed, rank].map(|point| &point.repeats[0]);
        for repeat in [fetch, embed] {
            assert_eq!((repeat.scheduled, repeat.completed), (100, 100), "{:?}", repeat.errors);
        }
        let (reason, failed) = rank_once.errors.first_key_value().unwrap();
        assert!((20..=30).contains(failed), "{failed}");
        assert_eq!(
            whole_once.errors,
            std::collections::BTreeMap::from([(format!("{reason} at rank"), *failed)])
        );
        assert_eq!(whole_once.completed + failed, 100);
        // Journeys of the warm-up are counted too.
        let journeys = whole_once.driver.journeys().unwrap();
        assert!(
            journeys.requests > 300 && journeys.requests.is_multiple_of(3),
            "{journeys:?}"
        );
        assert!(
            journeys.completed < journeys.requests / 3 && journeys.completed >= whole_once.completed,
            "{journeys:?}"
        );
        // The first steps of a failed journey count, and the journey does not: the two populations differ by a quarter.
        let steps: f64 = run.points[1..].iter().map(mean_us).sum();
        assert!(
            (steps / mean_us(whole) - 1.0).abs() < 0.1,
            "{steps} of {}",
            mean_us(whole)
        );
        assert!(whole_once.driver.goose().is_none());
    }
}

#[test]
fn what_was_finished_is_kept_and_gone_on_with() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve(Script::default()));
    let journey = JOURNEY.replace("repeats = 2\nstep_s = 1.0\n", "");
    let place = Workdir::new(&format!(
        "{}{journey}",
        closed("2", "think_time_ms = { exponential = 3 }")
    ));
    // Closed and open are finished, and the journey is under way.
    let ended = run_until(place.sweep(&url), "[2/6]", interrupt);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let kept = folder::load(&place.path("results/r")).unwrap();
    assert_eq!(kept.points.len(), 2, "{}", ended.stderr);
    let mut sweep = std::process::Command::new(crate::program::BINARY);
    sweep.arg("sweep").arg(place.path("plan.toml")).args(["--url", &url]);
    sweep.arg("--resume").arg(place.path("results/r"));
    sweep.env("XDG_STATE_HOME", place.path("state"));
    let ended = run(sweep);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let whole = folder::load(&place.path("results/r")).unwrap();
    assert_eq!(whole.points.len(), 6);
    assert!(whole.points.iter().all(|point| point.repeats.len() == 2));
    assert_eq!(whole.points[1].factors.offered_rps, kept.points[1].factors.offered_rps);
    assert_eq!(
        whole.points[0].repeats[0].started_at,
        kept.points[0].repeats[0].started_at
    );
}
