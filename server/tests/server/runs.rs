//! Runs that take too long: ended for those who wait behind them, at the load, and at the end of the process.

use crate::attacks::graphs::{ENDLESS, compares, constant, loops, nested};
use crate::harness::{Data, PATIENCE, Reply, Server, json_request, mlp_input, on_tier, refused, tensor};
use serde_json::Value;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;
use tierlab_protocol::timing::Stage;

const EXPLICIT: [&str; 2] = ["admin.enabled=true", "repository.control=explicit"];
/// Boxes that one operator compares with each other for some seconds.
const SLOW: f32 = 60_000.0;

/// An input of one number.
fn number(shape: &[i64], value: f32) -> Vec<Tensor> {
    vec![tensor("x", DataType::Fp32, shape, value.to_le_bytes().to_vec())]
}

fn batched(data: &Data, name: &str, model: &ModelProto) {
    data.add_model(name, model);
    std::fs::write(data.path(&format!("models/{name}/config.toml")), "max_batch_size = 8").unwrap();
}

/// Sends a request with a time limit.
async fn infer_within(server: &Server, model: &str, inputs: Vec<Tensor>, limit: Duration) -> Reply {
    let limit = u64::try_from(limit.as_micros()).unwrap();
    let path = format!("/v2/models/{model}/infer");
    server.post(&path, json_request(inputs, Some(limit), None)).await
}

async fn stats(server: &Server, model: &str) -> Value {
    let stats = server.get(&format!("/v2/models/{model}/stats")).await.json();
    stats["model_stats"][0].clone()
}

const LIMIT: Duration = Duration::from_millis(700);

#[tokio::test]
async fn a_long_run_ends_with_its_deadline_and_the_next_request_is_answered() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    batched(&data, "turns", &loops(0.0));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert_eq!(server.infer("turns", number(&[1, 1], 3.0)).await.floats(), [6.0]);
    let long = infer_within(&server, "turns", number(&[1, 1], ENDLESS), LIMIT);
    let others = async {
        for _ in 0..5 {
            assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
        }
    };
    let (late, ()) = tokio::join!(long, others);
    assert_eq!(late.status, 504, "{}", late.text());
    assert!(late.error().ends_with("its run was in progress"), "{}", late.text());
    assert!(
        late.timings().get(Stage::Infer) > late.timings().get(Stage::Batch),
        "{late:?}"
    );
    for value in [1.0, 2.0] {
        let next = server.infer("turns", number(&[1, 1], value)).await;
        assert_eq!(next.floats(), [2.0 * value], "{}", server.log());
    }
    for (series, value) in [
        ("tierlab_interrupted_runs_total{model=\"turns\"}", 1.0),
        ("tierlab_refusals_total{reason=\"deadline\"}", 1.0),
        ("tierlab_cancelled_total{stage=\"batch\"}", 0.0),
        ("tierlab_stuck_sessions{model=\"turns\"}", 0.0),
    ] {
        assert_eq!(server.metric(series).await, value, "{series}");
    }
    let stats = stats(&server, "turns").await;
    assert_eq!(stats["inference_stats"]["fail"]["count"], 1, "{stats}");
    assert_eq!(stats["inference_stats"]["success"]["count"], 3, "{stats}");
    assert_eq!(stats["execution_count"], 3, "{stats}");
    server.logged(&["run interrupted"]);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_waiting_in_it_has_a_limit() {
    let data = Data::generate(&[], 0);
    data.add_model("turns", &loops(0.0));
    let policy = "default_timeout_microseconds: 2000000 max_queue_size: 1 allow_timeout_override: true";
    let config = format!("max_batch_size: 8 dynamic_batching {{ default_queue_policy {{ {policy} }} }}");
    std::fs::write(data.path("models/turns/config.pbtxt"), config).unwrap();
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let document = server.get("/v2/models/turns/config").await.json();
    assert_eq!(
        document["dynamic_batching"]["default_queue_policy"],
        serde_json::json!({"default_timeout_microseconds": 2_000_000, "allow_timeout_override": true, "max_queue_size": 1})
    );
    let infer = |value| server.infer("turns", number(&[1, 1], value));
    let running = infer_within(&server, "turns", number(&[1, 1], ENDLESS), 10 * LIMIT);
    let others = async {
        server
            .metric_reaches("tierlab_batch_rows_count{model=\"turns\"}", 1.0)
            .await;
        let refused = async {
            server
                .metric_reaches("tierlab_batch_queue_requests{model=\"turns\"}", 1.0)
                .await;
            infer(1.0).await
        };
        tokio::join!(infer(1.0), refused)
    };
    let (running, (waited, refused)) = tokio::join!(running, others);
    assert_eq!(running.status, 504, "{}", running.text());
    assert!(
        running.error().ends_with("its run was in progress"),
        "{}",
        running.text()
    );
    assert_eq!(waited.status, 504, "{}", waited.text());
    assert!(
        waited.error().contains("`batching.queue_timeout_us`"),
        "{}",
        waited.text()
    );
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(
        refused.error().contains("the model's queue is full: 1 requests"),
        "{}",
        refused.text()
    );
    assert_eq!(infer(1.0).await.floats(), [2.0]);
}

#[tokio::test]
async fn a_cut_request_whose_runs_outlast_the_queue_timeout_is_answered() {
    let data = Data::generate(&[], 0);
    data.add_model("turns", &loops(0.0));
    // Each of its runs takes some tenths of a second.
    let iterations = 300_000.0_f32;
    let batching = "max_request_rows = 12\nqueue_limit = 12\nqueue_timeout_us = 1000000";
    data.configure("turns", &format!("max_batch_size = 1\n[batching]\n{batching}"));
    let server = Server::start(&on_tier(&data, "memory"), &["admission.timeout_ms=60000"]);
    let rows = [iterations; 12].iter().flat_map(|n| n.to_le_bytes()).collect();
    let reply = server
        .infer("turns", vec![tensor("x", DataType::Fp32, &[12, 1], rows)])
        .await;
    assert_eq!(reply.floats(), [2.0 * iterations; 12]);
}

#[tokio::test]
async fn a_model_that_allows_no_timeout_passes_it_over() {
    let data = Data::generate(&[], 0);
    for (name, config) in [("allowed", ""), ("not", "allow_timeout_override = false")] {
        data.add_model(name, &loops(0.0));
        data.configure(name, &format!("max_batch_size = 8\n[batching]\n{config}\n"));
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for (name, status) in [("allowed", 504), ("not", 200)] {
        let reply = infer_within(&server, name, number(&[1, 1], 1.0), Duration::from_micros(1)).await;
        assert_eq!(reply.status, status, "{name}: {}", reply.text());
    }
}

#[tokio::test]
async fn a_run_whose_client_went_away_is_ended() {
    let data = Data::generate(&[], 0);
    batched(&data, "turns", &loops(0.0));
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--log-level", "info,access=debug"].map(str::to_owned));
    let server = Server::start(&arguments, &["admission.timeout_ms=600000"]);
    let body = json_request(number(&[1, 1], ENDLESS), None, None);
    let head = format!(
        "POST /v2/models/turns/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    server
        .metric_reaches("tierlab_batch_rows_count{model=\"turns\"}", 1.0)
        .await;
    drop(stream);
    let ended = "tierlab_interrupted_runs_total{model=\"turns\"}";
    server.metric_reaches(ended, 1.0).await;
    // Counted by the request's own task, which may end after the run.
    server
        .metric_reaches("tierlab_cancelled_total{stage=\"batch\"}", 1.0)
        .await;
    server.logged(&["access: request", "/v2/models/turns/infer", "status=499"]);
    assert_eq!(server.infer("turns", number(&[1, 1], 1.0)).await.floats(), [2.0]);
    assert_eq!(stats(&server, "turns").await["inference_stats"]["fail"]["count"], 1);
}

#[tokio::test]
async fn behind_an_operator_that_cannot_be_ended_requests_are_refused_at_once() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    data.add_model("compares", &compares());
    let server = Server::start(&on_tier(&data, "memory"), &["admission.timeout_ms=600000"]);
    let late = infer_within(&server, "compares", number(&[1], SLOW), LIMIT).await;
    assert_eq!(late.status, 504, "{}", late.text());
    let began = Instant::now();
    let mut refused = None;
    loop {
        let reply = server.infer("compares", number(&[1], 10.0)).await;
        match reply.status {
            200 => break,
            503 => refused = Some(reply),
            status => panic!("{status}: {}", reply.text()),
        }
        assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
        assert!(began.elapsed() < 2 * PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = refused.expect("no request was refused while the session was stuck");
    assert!(refused.error().contains("stuck"), "{}", refused.text());
    assert!(refused.error().contains("session 0, run 2"), "{}", refused.text());
    for expected in ["its session is stuck", "its session continues"] {
        server.logged(&[expected]);
    }
    assert_eq!(server.metric("tierlab_stuck_sessions{model=\"compares\"}").await, 0.0);
}

#[tokio::test]
async fn a_process_that_cannot_drain_says_so_and_ends() {
    for (name, model, input) in [
        ("turns", loops(0.0), number(&[1, 1], ENDLESS)),
        ("compares", compares(), number(&[1], 4e6)),
    ] {
        let data = Data::generate(&[], 0);
        data.add_model(name, &model);
        let set = ["drain.timeout_ms=1000", "admission.timeout_ms=600000"];
        let mut server = Server::start(&on_tier(&data, "memory"), &set);
        let waiting = tokio::spawn(server.infer_request(name, input).send());
        let runs = format!("tierlab_batch_rows_count{{model=\"{name}\"}}");
        server.metric_reaches(&runs, 1.0).await;
        server.terminate();
        let status = server.wait().await;
        let log = server.log();
        assert_eq!(status.code(), Some(1), "{log}");
        let left = format!("a run of model `{name}`, version 1: session 0");
        assert!(log.contains("not drained") && log.contains(&left), "{log}");
        assert!(!log.contains("server: drained"), "{log}");
        // Refused in time, or cut off.
        if let Ok(reply) = waiting.await.unwrap() {
            assert_eq!(reply.status(), 503);
        }
    }
}

#[tokio::test]
async fn a_run_that_ends_with_its_deadline_is_drained() {
    let data = Data::generate(&[], 0);
    batched(&data, "turns", &loops(0.0));
    let set = ["drain.timeout_ms=50000", "admission.timeout_ms=1000"];
    let mut server = Server::start(&on_tier(&data, "memory"), &set);
    let waiting = tokio::spawn(server.infer_request("turns", number(&[1, 1], ENDLESS)).send());
    server
        .metric_reaches("tierlab_batch_rows_count{model=\"turns\"}", 1.0)
        .await;
    server.terminate();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 504);
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
    assert!(server.log().contains("server: drained"), "{}", server.log());
}

#[tokio::test]
async fn a_request_is_answered_if_the_server_is_stopped_during_its_start() {
    let data = Data::generate(&[], 0);
    batched(&data, "first", &loops(0.0));
    batched(&data, "last", &loops(ENDLESS));
    let set = ["drain.timeout_ms=50000", "admission.timeout_ms=1000"];
    let mut server = Server::start_unready(&on_tier(&data, "memory"), &set);
    let began = Instant::now();
    while !server
        .infer_request("first", number(&[1, 1], 1.0))
        .send()
        .await
        .is_ok_and(|reply| reply.status() == 200)
    {
        assert!(began.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let waiting = tokio::spawn(server.infer_request("first", number(&[1, 1], ENDLESS)).send());
    server
        .metric_reaches("tierlab_batch_rows_count{model=\"first\"}", 2.0)
        .await;
    server.terminate();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 504);
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
    assert!(server.log().contains("server: drained"), "{}", server.log());
}

#[tokio::test]
async fn warm_ups_without_an_end_hold_up_no_other_load_and_are_refused_when_they_are_late() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    for name in ["first", "second"] {
        batched(&data, name, &loops(ENDLESS));
    }
    let serve = |limit: &str| Server::start(&on_tier(&data, "memory"), &[&EXPLICIT[..], &[limit]].concat());
    let load = |server: &Server, name: &str| {
        let url = server.url(&format!("/v2/repository/models/{name}/load"));
        let sent = server.client.post(url).send();
        async { Reply::of(tokio::time::timeout(PATIENCE, sent).await.expect("no answer").unwrap()).await }
    };
    let server = serve("runtime.warmup_timeout_ms=600000");
    let endless = ["first", "second"].map(|name| {
        let url = server.url(&format!("/v2/repository/models/{name}/load"));
        tokio::spawn(server.client.post(url).send())
    });
    let began = Instant::now();
    loop {
        let index = server.post("/v2/repository/index", "").await.json();
        let loading = |entry: &&Value| entry["state"] == "LOADING";
        if index.as_array().unwrap().iter().filter(loading).count() == 2 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{index}");
    }
    let third = load(&server, "mlp").await;
    assert_eq!(third.status, 200, "{}", third.text());
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    assert!(endless.iter().all(|load| !load.is_finished()));
    drop(server);

    let server = serve("runtime.warmup_timeout_ms=1000");
    for name in ["first", "second", "first"] {
        let late = load(&server, name).await;
        assert_eq!(late.status, 422, "{}", late.text());
        let message = late.error();
        assert!(
            message.contains("runtime.warmup_timeout_ms") && message.contains("1000 ms"),
            "{message}"
        );
    }
    assert_eq!(load(&server, "mlp").await.status, 200);
    // Their threads have ended with them.
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = threads.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let names: Vec<String> = names.collect();
    assert!(names.iter().all(|name| !name.starts_with("second")), "{names:?}");
}

/// ONNX Runtime is not torn down under a session that is being built.
#[tokio::test]
async fn a_process_ends_with_its_code_while_a_session_is_being_built() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    data.add_model("nested", &nested(30));
    for _ in 0..6 {
        let set = [&EXPLICIT[..], &["runtime.load_timeout_ms=300"]].concat();
        let mut server = Server::start(&on_tier(&data, "memory"), &set);
        let late = server.post("/v2/repository/models/nested/load", "").await;
        assert_ne!(late.status, 200, "{}", late.text());
        assert!(late.error().contains("runtime.load_timeout_ms"), "{}", late.text());
        server.terminate();
        let status = server.wait().await;
        assert_eq!(status.code(), Some(0), "{status}: {}", server.log());
    }
}

#[tokio::test]
async fn loads_are_refused_while_sessions_that_were_given_up_keep_the_cores_busy() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    data.add_model("nested", &nested(30));
    let set = [&EXPLICIT[..], &["runtime.load_timeout_ms=300"]].concat();
    let server = Server::start(&on_tier(&data, "memory"), &set);
    assert_eq!(server.post("/v2/repository/models/mlp/load", "").await.status, 200);
    assert_eq!(server.metric("tierlab_abandoned_sessions").await, 0.0);
    let late = server.post("/v2/repository/models/nested/load", "").await;
    assert!(late.error().contains("runtime.load_timeout_ms"), "{}", late.text());
    assert_eq!(server.metric("tierlab_abandoned_sessions").await, 1.0);
    let refused = server.post("/v2/repository/models/mlp/load", "").await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.error().contains("given up"), "{}", refused.text());
    // The copy that was loaded before goes on.
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
}

/// A model that takes more memory than a load may is refused, and others are served beside it.
#[tokio::test]
async fn a_load_that_takes_too_much_memory_is_refused_and_the_server_goes_on() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    data.add_model("constant", &constant(3 << 30));
    let set = [&EXPLICIT[..], &["runtime.max_load_bytes=1073741824"]].concat();
    let server = Server::start(&on_tier(&data, "memory"), &set);
    for _ in 0..2 {
        let refused = server.post("/v2/repository/models/constant/load", "").await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(refused.error().contains("runtime.max_load_bytes"), "{}", refused.text());
        assert_eq!(server.post("/v2/repository/models/mlp/load", "").await.status, 200);
        assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    }
}

/// `x` INT64 [1] picks one of three numbers; `y` says that it has three elements, and has as many as `z` has that are not 0.
fn noisy() -> ModelProto {
    let mut graph = GraphBuilder::new("noisy");
    let x = graph.input("x", ElementType::Int64, &[1]);
    let z = graph.input("z", ElementType::Float, &[3]);
    let table = graph.floats("table", &[3], &[1.0, 2.0, 3.0]);
    let picked = graph.node("picked", "Gather", &[&table, &x], &[]);
    let y = graph.node("y", "NonZero", &[&z], &[]);
    graph.output(&picked, ElementType::Float, &[1]);
    graph.output(&y, ElementType::Int64, &[1, 3]);
    graph.finish("makes ONNX Runtime speak")
}

fn parsed(log: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    log.lines().map(parse).collect()
}

#[tokio::test]
async fn every_line_of_a_json_log_is_json_with_the_model_and_the_request_of_onnx_runtimes_own() {
    let data = Data::generate(&[], 0);
    data.add_model("noisy", &noisy());
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--log-format".to_owned(), "json".to_owned()]);
    let mut server = Server::start(&arguments, &[]);
    let inputs = |index: i64| {
        let z = [1.0_f32, 0.0, 2.0].iter().flat_map(|z| z.to_le_bytes()).collect();
        vec![
            tensor("x", DataType::Int64, &[1], index.to_le_bytes().to_vec()),
            tensor("z", DataType::Fp32, &[3], z),
        ]
    };
    for (id, index, good) in [("good-one", 1, true), ("bad-one", 17, false)] {
        let request = server.infer_request("noisy", inputs(index)).header("x-request-id", id);
        assert_eq!(request.send().await.unwrap().status() == 200, good);
    }
    server.terminate();
    assert_eq!(server.wait().await.code(), Some(0));
    let began = Instant::now();
    let lines = loop {
        let lines = parsed(&server.log());
        if lines.iter().any(|line| line["message"] == "drained") {
            break lines;
        }
        assert!(began.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    for (level, id, expected) in [("WARN", "good-one", "shape"), ("ERROR", "bad-one", "Gather")] {
        let line = lines.iter().find(|line| {
            let message = line["message"].as_str().unwrap_or_default();
            let own = line["target"] == "onnxruntime" && line["level"] == level && message.contains(expected);
            own && line["request_id"] == id
        });
        let line = line.unwrap_or_else(|| panic!("{}", server.log()));
        assert_eq!(
            (&line["model"], &line["version"]),
            (&"noisy".into(), &"1".into()),
            "{line}"
        );
    }
}

#[test]
fn a_start_that_fails_is_json_too_where_json_is_asked_for() {
    for (arguments, code) in [
        (&["--log-format", "json", "--tier", "tape"][..], 2),
        (&["--log-format=json", "--no-such-flag"], 2),
        (
            &[
                "--set",
                "log.format=json",
                "--tier",
                "nvme",
                "--set",
                "tiers.nvme.root=/no/such/folder",
            ],
            1,
        ),
    ] {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let output = refused(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let lines = parsed(&String::from_utf8_lossy(&output.stderr));
        assert!(
            lines.iter().any(|line| line["level"] == "ERROR"),
            "{arguments:?}: {lines:?}"
        );
    }
}
