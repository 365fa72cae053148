//! Sessions and threads: as a model's config states them, or fitted to the cores where it does not.

use crate::harness::{Data, Server, on_tier, tensor};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::time::Instant;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;

/// Floats of a request.
const WIDTH: usize = 64;

/// `x` [1, 64], doubled.
fn doubles() -> ModelProto {
    let mut graph = GraphBuilder::new("doubles");
    let x = graph.input("x", ElementType::Float, &[1, WIDTH as i64]);
    let two = graph.floats("two", &[1], &[2.0]);
    let y = graph.node("y", "Mul", &[&x, &two], &[]);
    graph.output(&y, ElementType::Float, &[1, WIDTH as i64]);
    graph.finish("twice what it gets")
}

fn request_and_answer(seed: usize) -> (Vec<Tensor>, Vec<f32>) {
    let floats: Vec<f32> = (0..WIDTH).map(|i| (i * 7 + seed) as f32).collect();
    let data = floats.iter().copied().flat_map(f32::to_le_bytes).collect();
    let answer = floats.iter().map(|float| float * 2.0).collect();
    (vec![tensor("x", DataType::Fp32, &[1, WIDTH as i64], data)], answer)
}

/// The models, each with a file of its folder.
fn data(models: &[(&str, Option<(&str, &str)>)]) -> Data {
    let data = Data::generate(&[], 0);
    for (name, config) in models {
        data.add_model(name, &doubles());
        if let Some((file, text)) = config {
            std::fs::write(data.path(&format!("models/{name}/{file}")), text).unwrap();
        }
    }
    data
}

/// Sessions of each group and its name, and the threads of the last.
async fn layout(server: &Server, model: &str) -> (Vec<(u64, String)>, String) {
    let document = server.get(&format!("/v2/models/{model}/config")).await.json();
    let groups = document["instance_group"].as_array().unwrap().iter();
    let groups = groups.map(|group| {
        (
            group["count"].as_u64().unwrap(),
            group["name"].as_str().unwrap().to_owned(),
        )
    });
    let threads = document["parameters"]["intra_op_thread_count"]["string_value"].as_str();
    (groups.collect(), threads.unwrap().to_owned())
}

#[tokio::test]
async fn a_model_that_states_nothing_has_a_session_for_each_core_and_one_over_all() {
    let data = data(&[
        ("plain", None),
        ("triton", Some(("config.pbtxt", "backend: 'onnxruntime'"))),
    ]);
    let set = ["runtime.instances.cores=2", "runtime.instances.measure_ms=0"];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    for model in ["plain", "triton"] {
        let groups = vec![(1, format!("{model}.2-threads")), (2, format!("{model}.1-thread"))];
        assert_eq!(layout(&server, model).await, (groups, "1".to_owned()));
        let line = server.logged(&[model, "1 session of 2 threads, 2 sessions of 1 thread"]);
        assert!(line.contains("2 cores (`runtime.instances.cores`"), "{line}");
        assert!(line.contains("measuring is disabled"), "{line}");
    }
    // Alone, one after the other, and together: every request is answered, and with its own answer.
    for seed in 0..20 {
        let (inputs, answer) = request_and_answer(seed);
        assert_eq!(server.infer("plain", inputs).await.floats(), answer);
    }
    let together = (0..100).map(async |seed| {
        let (inputs, answer) = request_and_answer(seed);
        assert_eq!(server.infer("plain", inputs).await.floats(), answer);
    });
    futures::future::join_all(together).await;
}

#[tokio::test]
async fn a_run_that_is_measured_is_told_with_what_was_chosen() {
    let data = data(&[("plain", None)]);
    let server = Server::start(&on_tier(&data, "memory"), &["runtime.instances.cores=2"]);
    let line = server.logged(&["plain", "config states no instances", "a run takes "]);
    let (groups, _) = layout(&server, "plain").await;
    // The time of a run depends on the machine; the log names what is served.
    let sessions: u64 = groups.iter().map(|(count, _)| count).sum();
    let reported = line
        .split("sessions=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap();
    let reported: u64 = reported
        .split(", ")
        .map(|group| group.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(sessions, reported, "{line}");
}

/// `x` [256, 256] in forty products of matrices, whose run takes milliseconds.
fn products() -> ModelProto {
    let mut graph = GraphBuilder::new("products");
    let mut value = graph.input("x", ElementType::Float, &[256, 256]);
    let weights = graph.floats("weights", &[256, 256], &vec![0.01; 256 * 256]);
    for product in 0..40 {
        value = graph.node(&format!("product{product}"), "MatMul", &[&value, &weights], &[]);
    }
    graph.output(&value, ElementType::Float, &[256, 256]);
    graph.finish("a long chain")
}

#[tokio::test]
async fn the_stages_of_a_load_sum_to_it_even_if_its_sessions_are_measured() {
    let data = data(&[]);
    data.add_model("products", &products());
    let set = [
        "admin.enabled=true",
        "repository.control=explicit",
        "runtime.instances.cores=2",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let began = Instant::now();
    let loaded = server.post("/v2/repository/models/products/load", "").await.json();
    let took = began.elapsed().as_secs_f64();
    let seconds = loaded["versions"][0]["seconds"].as_object().unwrap();
    let stages: f64 = seconds.values().map(|stage| stage.as_f64().unwrap()).sum();
    assert!(stages > took / 2.0 && stages <= took, "{seconds:?} of {took} s");
}

#[tokio::test]
async fn weights_beyond_the_limit_are_held_once() {
    let data = data(&[("plain", None)]);
    let set = ["runtime.instances.cores=2", "runtime.instances.max_weight_bytes=100"];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    assert_eq!(
        layout(&server, "plain").await,
        (vec![(1, "plain".to_owned())], "2".to_owned())
    );
    server.logged(&["plain", "1 session of 2 threads", "max_weight_bytes"]);
    let (inputs, answer) = request_and_answer(1);
    assert_eq!(server.infer("plain", inputs).await.floats(), answer);
}

#[tokio::test]
async fn a_server_that_is_bound_to_one_cpu_fits_to_one() {
    let data = data(&[("plain", None)]);
    let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..CpuSet::count()).find(|&cpu| mine.is_set(cpu).unwrap()).unwrap();
    let mut one = CpuSet::new();
    one.set(cpu).unwrap();
    // A process takes the affinity of the thread that starts it.
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
    let server = Server::start(&on_tier(&data, "memory"), &["runtime.instances.cores=0"]);
    sched_setaffinity(Pid::from_raw(0), &mine).unwrap();
    assert_eq!(
        layout(&server, "plain").await,
        (vec![(1, "plain".to_owned())], "1".to_owned())
    );
    let line = server.logged(&["plain", "config states no instances"]);
    assert!(
        line.contains("1 session of 1 thread") && line.contains("1 core (1 by affinity"),
        "{line}"
    );
}

#[tokio::test]
async fn what_a_config_states_is_not_fitted() {
    let data = data(&[
        ("bare", Some(("config.toml", "[instances]\n"))),
        ("kind", Some(("config.toml", "[instances]\nkind = \"cpu\"\n"))),
        (
            "three",
            Some(("config.toml", "[instances]\ncount = 3\nintra_op_threads = 2\n")),
        ),
        ("group", Some(("config.pbtxt", "instance_group { kind: KIND_CPU }"))),
        (
            "threads",
            Some((
                "config.pbtxt",
                "parameters { key: 'intra_op_thread_count' value: { string_value: '2' } }",
            )),
        ),
    ]);
    let set = ["runtime.instances.cores=4", "runtime.instances.measure_ms=0"];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    for (model, count, threads) in [
        ("bare", 1, "1"),
        ("kind", 1, "1"),
        ("three", 3, "2"),
        ("group", 1, "1"),
        ("threads", 1, "2"),
    ] {
        let stated = (vec![(count, model.to_owned())], threads.to_owned());
        assert_eq!(layout(&server, model).await, stated, "{model}");
    }
    assert!(!server.log().contains("fitted sessions"), "{}", server.log());
}
