//! Batches only where a model's config asks for them: graphs whose rows depend on each other, whose outputs have a length
//! of their own, or whose inputs have different lengths; the largest request; and the metadata and metrics of batches.

use crate::clients::analyze;
use crate::grpc::{call, raw, serve, wire};
use crate::harness::{Data, Reply, Server, entity_ids, on_tier, refused, tensor};
use tierlab_models::generators::ModelKind;
use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto};
use tierlab_protocol::grpc::messages::{ModelConfigResponse, ModelInferResponse, ModelRequest};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;
use tonic::{Code, Request};

const N: Dim<'_> = Dim::Free("N");
const FLOAT: ElementType = ElementType::Float;

/// `x` [N, 2] to the sums of its rows so far: `y` [N, 2].
fn cumulative() -> ModelProto {
    let mut graph = GraphBuilder::new("cumulative");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let axis = graph.ints("axis", &[], &[0]);
    let y = graph.node("y", "CumSum", &[&x, &axis], &[]);
    graph.output_of(&y, FLOAT, &[N, Dim::Fixed(2)]);
    graph.finish("sums up over the first axis")
}

/// `x` [N, 2] to softmax over its rows: `y` [N, 2].
fn softmax() -> ModelProto {
    let mut graph = GraphBuilder::new("softmax");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let y = graph.node("y", "Softmax", &[&x], &[int("axis", 0)]);
    graph.output_of(&y, FLOAT, &[N, Dim::Fixed(2)]);
    graph.finish("softmax over the first axis")
}

/// `x` [N, 2] to the products of all pairs of its rows: `y` [N, N].
fn crossing() -> ModelProto {
    let mut graph = GraphBuilder::new("crossing");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let transposed = graph.node("turned", "Transpose", &[&x], &[]);
    let y = graph.node("y", "MatMul", &[&x, &transposed], &[]);
    graph.output_of(&y, FLOAT, &[N, N]);
    graph.finish("crosses its rows")
}

/// `x` [N] to those of its elements that are at most zero: `y`, whose length has the name `length`.
fn negatives(length: &str) -> ModelProto {
    filter("LessOrEqual", length)
}

/// `x` [N] to those of its elements that compare with zero.
fn filter(comparison: &str, length: &str) -> ModelProto {
    let mut graph = GraphBuilder::new("filter");
    let x = graph.input_of("x", FLOAT, &[N]);
    let zero = graph.floats("zero", &[], &[0.0]);
    let filtered = graph.node("kept", comparison, &[&x, &zero], &[]);
    let y = graph.node("y", "Compress", &[&x, &filtered], &[int("axis", 0)]);
    graph.output_of(&y, FLOAT, &[Dim::Free(length)]);
    graph.finish("keeps some of its elements")
}

/// `a` [N, 2] and `b` [M, 2] to the products of their rows: `y` [N, M].
fn pairs() -> ModelProto {
    let mut graph = GraphBuilder::new("pairs");
    let a = graph.input_of("a", FLOAT, &[N, Dim::Fixed(2)]);
    let b = graph.input_of("b", FLOAT, &[Dim::Free("M"), Dim::Fixed(2)]);
    let transposed = graph.node("turned", "Transpose", &[&b], &[]);
    let y = graph.node("y", "MatMul", &[&a, &transposed], &[]);
    graph.output_of(&y, FLOAT, &[N, Dim::Free("M")]);
    graph.finish("crosses two lists")
}

fn floats(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Fp32, shape, data)
}

/// `rows` rows of two small whole numbers, other ones for each seed: what is computed of them is exact.
fn rows(rows: usize, seed: usize) -> Vec<f32> {
    (0..rows * 2).map(|i| ((i * 7 + seed * 5) % 11) as f32 - 4.0).collect()
}

fn input(values: &[f32]) -> Vec<Tensor> {
    vec![floats("x", &[values.len() as i64 / 2, 2], values)]
}

fn sums(values: &[f32]) -> Vec<f32> {
    let mut sums = values.to_vec();
    for i in 2..sums.len() {
        sums[i] += sums[i - 2];
    }
    sums
}

fn products(a: &[f32], b: &[f32]) -> Vec<f32> {
    let row = |x: &[f32]| b.chunks(2).map(|y| x[0] * y[0] + x[1] * y[1]).collect::<Vec<f32>>();
    a.chunks(2).flat_map(row).collect()
}

fn shape_of(reply: &Reply) -> Vec<i64> {
    reply.inferred().outputs[0].shape.clone()
}

/// Serves models without a config.
fn serve_bare(models: &[(&str, ModelProto)]) -> (Data, Server) {
    let data = Data::generate(&[], 0);
    for (name, model) in models {
        data.add_model(name, model);
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    (data, server)
}

#[tokio::test]
async fn without_a_word_in_its_config_a_request_is_neither_cut_nor_merged() {
    let (_data, server) = serve_bare(&[
        ("cumulative", cumulative()),
        ("softmax", softmax()),
        ("crossing", crossing()),
    ]);
    let many = rows(300, 0);
    let ones = vec![1.0; 600];
    let reply = server.infer("cumulative", input(&ones)).await;
    assert_eq!((reply.floats()[512], shape_of(&reply)), (257.0, vec![300, 2]));
    let reply = server.infer("crossing", input(&many)).await;
    assert_eq!(shape_of(&reply), [300, 300]);
    assert_eq!(reply.floats(), products(&many, &many));
    // The expected reply of each client: computed here, and by softmax alone on the idle server.
    let mut alone = Vec::new();
    for client in 0..4 {
        alone.push(server.infer("softmax", input(&rows(3 + client, client))).await.floats());
    }
    for _ in 0..50 {
        let infer = async |client: usize| {
            let values = rows(3 + client, client);
            let (sum, soft, cross) = tokio::join!(
                server.infer("cumulative", input(&values)),
                server.infer("softmax", input(&values)),
                server.infer("crossing", input(&values)),
            );
            assert_eq!(sum.floats(), sums(&values));
            assert_eq!(soft.floats(), alone[client]);
            assert_eq!(cross.floats(), products(&values, &values));
        };
        tokio::join!(infer(0), infer(1), infer(2), infer(3));
    }
}

#[tokio::test]
async fn keys_of_the_server_go_before_those_of_a_models_config() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("cumulative", &cumulative());
    let many = rows(300, 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert_eq!(
        server.infer("cumulative", input(&many)).await.status,
        400,
        "256 is the most"
    );
    drop(server);
    let set = [
        "model_config.cumulative.max_batch_size=0",
        "model_config.nobody.max_batch_size=4",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    assert_eq!(server.infer("cumulative", input(&many)).await.floats(), sums(&many));
    server.logged(&["nobody", "not on the tier"]);
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--set".to_owned(), "model_config.cumulative.max_batchsize=4".to_owned()]);
    let refused = String::from_utf8_lossy(&refused(&arguments).stderr).into_owned();
    assert!(
        refused.contains("model_config.cumulative") && refused.contains("max_batchsize"),
        "{refused}"
    );
}

#[tokio::test]
async fn outputs_and_inputs_of_any_length_are_served_unbatched_at_the_first_request() {
    let (_data, server) = serve_bare(&[
        ("named", negatives("K")),
        ("unnamed", negatives("")),
        ("same", negatives("N")),
        ("pairs", pairs()),
    ]);
    for model in ["named", "unnamed", "same"] {
        let list = |values: &[f32]| vec![floats("x", &[values.len() as i64], values)];
        let reply = server.infer(model, list(&[-1.0, 2.0, -3.0, 4.0, 5.0])).await;
        assert_eq!(
            (shape_of(&reply), reply.floats()),
            (vec![2], vec![-1.0, -3.0]),
            "{model}"
        );
        let none = server.infer(model, list(&[2.0])).await;
        assert_eq!((shape_of(&none), none.floats()), (vec![0], vec![]), "{model}");
        let empty = server.infer(model, list(&[])).await;
        assert_eq!(shape_of(&empty), [0], "{model}: {}", empty.text());
        let infer = async |client: usize| {
            let values: Vec<f32> = (0..6 + client)
                .map(|i| (i * 5 % 7) as f32 - 3.0 - client as f32)
                .collect();
            let filtered: Vec<f32> = values.iter().copied().filter(|value| *value <= 0.0).collect();
            assert_eq!(server.infer(model, list(&values)).await.floats(), filtered, "{model}");
        };
        for _ in 0..20 {
            tokio::join!(infer(0), infer(1), infer(2), infer(3));
        }
    }
    let (a, b) = (rows(3, 1), rows(5, 2));
    let both = vec![floats("a", &[3, 2], &a), floats("b", &[5, 2], &b)];
    let reply = server.infer("pairs", both).await;
    assert_eq!((shape_of(&reply), reply.floats()), (vec![3, 5], products(&a, &b)));
}

#[tokio::test]
async fn batches_that_the_graph_rules_out_are_refused_when_it_is_loaded() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("good", &cumulative());
    let mut fixed = GraphBuilder::new("fixed");
    let x = fixed.input("x", FLOAT, &[2, 2]);
    let y = fixed.node("y", "Add", &[&x, &x], &[]);
    fixed.output(&y, FLOAT, &[2, 2]);
    for (name, model) in [
        ("pairs", pairs()),
        ("negatives", negatives("K")),
        ("fixed", fixed.finish("adds itself")),
        // The graph says nothing of its length: the warm-up does.
        ("positives", filter("Greater", "")),
    ] {
        data.add_batched_model(name, &model);
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for (name, message) in [
        ("pairs", "input `b` is `M`, that of input `a` is `N`"),
        ("negatives", "output `y` is `K`, that of input `x` is `N`"),
        ("fixed", "input `x` is fixed at 2"),
        ("positives", "output `y` has shape [0] for a batch of 1 rows"),
    ] {
        let reply = server.get(&format!("/v2/models/{name}")).await;
        assert_eq!(reply.status, 503);
        for part in [message, "max_batch_size", &format!("models/{name}/1/model.onnx")] {
            assert!(reply.error().contains(part), "{} should say {part}", reply.error());
        }
    }
    // A config without a maximum that speaks of batches is a mistake.
    data.configure("good", "[batching]\nmax_delay_us = 2000\n");
    for name in ["pairs", "negatives", "fixed", "positives"] {
        std::fs::remove_dir_all(data.path(&format!("models/{name}"))).unwrap();
    }
    drop(server);
    let output = refused(&on_tier(&data, "memory"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("batching.max_delay_us") && message.contains("max_batch_size"),
        "{message}"
    );
}

/// With zeros, as in the warm-up, it keeps all: only requests show that its outputs are no batch.
#[tokio::test]
async fn a_batch_whose_outputs_have_other_rows_answers_nobody_with_anothers() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("negatives", &negatives("N"));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let list = |values: &[f32]| vec![floats("x", &[values.len() as i64], values)];
    for _ in 0..50 {
        let infer = async |client: usize| {
            let base = -10.0 * (client + 1) as f32;
            let values = [base, base - 1.0, if client == 2 { 1.0 } else { base - 2.0 }];
            let reply = server.infer("negatives", list(&values)).await;
            if client == 2 {
                assert_eq!(reply.status, 500, "{}", reply.text());
                assert!(
                    reply.error().contains("model `negatives`: output `y`"),
                    "{}",
                    reply.text()
                );
            } else {
                assert_eq!(reply.floats(), values);
            }
        };
        tokio::join!(infer(0), infer(1), infer(2), infer(3));
    }
}

/// `x` [N, 2] to twice that.
fn double() -> ModelProto {
    let mut graph = GraphBuilder::new("double");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let y = graph.node("y", "Add", &[&x, &x], &[]);
    graph.output_of(&y, FLOAT, &[N, Dim::Fixed(2)]);
    graph.finish("doubles")
}

#[tokio::test]
async fn a_request_above_the_maximum_is_refused_unless_cutting_is_allowed() {
    let data = Data::generate(&[], 0);
    for (name, config) in [
        ("whole", "max_batch_size = 8\n"),
        ("cut", "max_batch_size = 8\n[batching]\nmax_request_rows = 20\n"),
    ] {
        data.add_model(name, &double());
        data.configure(name, config);
    }
    std::fs::create_dir_all(data.path("models/triton/1")).unwrap();
    data.add_model("triton", &double());
    std::fs::write(data.path("models/triton/config.pbtxt"), "max_batch_size: 8").unwrap();
    let server = serve(&data, "memory", &[]);
    for (model, rows_sent, most) in [("whole", 9, 8), ("triton", 9, 8), ("cut", 21, 20)] {
        let values = rows(rows_sent, 1);
        let text = format!("inference request batch-size must be <= {most} for '{model}', but it has {rows_sent} rows");
        let reply = server.infer(model, input(&values)).await;
        assert_eq!(reply.status, 400);
        assert!(reply.error().contains(&text), "{}", reply.text());
        let message = Request::new(raw(model, input(&values)));
        let status = call::<_, _, ModelInferResponse>(wire(&server), "ModelInfer", message)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(&text), "{status}");
    }
    for (model, most) in [("whole", 8), ("triton", 8), ("cut", 20)] {
        let values = rows(most, 3);
        let twice: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        let reply = server.infer(model, input(&values)).await;
        assert_eq!(reply.floats(), twice);
        assert!(reply.timings().batch_rows <= 8);
    }
}

#[tokio::test]
async fn documents_and_the_log_say_whether_a_model_is_batched() {
    let data = Data::generate(&[], 0);
    data.add_model("bare", &double());
    data.add_batched_model("batched", &double());
    data.add_model("silent", &double());
    std::fs::write(
        data.path("models/silent/config.pbtxt"),
        "input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 2 ] }",
    )
    .unwrap();
    let server = serve(&data, "memory", &[]);
    for (model, most, dims) in [
        ("bare", 0, &[-1, 2][..]),
        ("silent", 0, &[-1, 2]),
        ("batched", 256, &[2]),
    ] {
        let metadata = server.get(&format!("/v2/models/{model}")).await.json();
        assert_eq!(metadata["batched"], most > 0, "{metadata}");
        assert_eq!(metadata["max_batch_size"], most, "{metadata}");
        assert_eq!(metadata["inputs"][0]["shape"], serde_json::json!([-1, 2]));
        let config = server.get(&format!("/v2/models/{model}/config")).await.json();
        assert_eq!(config["max_batch_size"], most, "{config}");
        assert_eq!(config["input"][0]["dims"], serde_json::json!(dims), "{config}");
        assert_eq!(config["output"][0]["dims"], serde_json::json!(dims), "{config}");
        assert_eq!(config["dynamic_batching"].is_object(), most > 0, "{config}");
        let request = Request::new(ModelRequest {
            name: model.to_owned(),
            ..ModelRequest::default()
        });
        let reply = call::<_, _, ModelConfigResponse>(wire(&server), "ModelConfig", request).await;
        let config = reply.unwrap().into_inner().config.unwrap();
        assert_eq!((config.max_batch_size, &config.input[0].dims[..]), (most, dims));
        let line = server.logged(&["loaded", &format!("model=\"{model}\"")]);
        assert!(line.contains(&format!("batched={}", most > 0)), "{line}");
        assert!(line.contains(&format!("max_batch_size={most}")), "{line}");
    }
}

#[tokio::test]
async fn joined_inputs_do_without_batches() {
    let data = Data::generate(&[ModelKind::Ctr], 50);
    let batched = Server::start(&on_tier(&data, "memory"), &[]);
    let ids: Vec<i64> = (0..20).map(|i| i * 7 % 50).collect();
    let expected = batched.infer("ctr", entity_ids(&ids)).await.floats();
    drop(batched);
    let joined = "[joined.dense]\ntable = \"ctr\"\n[joined.categorical]\ntable = \"ctr\"\n";
    data.configure("ctr", joined);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert_eq!(server.get("/v2/models/ctr").await.json()["batched"], false);
    let (all, one, none) = tokio::join!(
        server.infer("ctr", entity_ids(&ids)),
        server.infer("ctr", entity_ids(&ids[3..4])),
        server.infer("ctr", entity_ids(&[])),
    );
    let close = |found: &[f32], wanted: &[f32]| {
        assert_eq!(found.len(), wanted.len());
        let apart = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-5, "{found:?} is not {wanted:?}");
    };
    close(&all.floats(), &expected);
    close(&one.floats(), &expected[3..4]);
    assert_eq!((none.status, none.error().contains("has no rows")), (400, true));
    let counted = server.metric("tierlab_inferences_total{model=\"ctr\"}").await;
    assert_eq!(counted, 21.0, "each id is an inference");
}

/// perf_analyzer takes the whole shape from the config of a model that is not batched.
#[tokio::test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "NVIDIA publishes perf_analyzer for x86-64 alone"
)]
async fn perf_analyzer_measures_a_model_without_batches() {
    let data = Data::generate(&[], 0);
    data.add_model("pairs", &pairs());
    let server = serve(&data, "memory", &[]);
    for (protocol, address) in [
        ("http", server.address.as_str()),
        ("grpc", server.grpc_address.as_deref().unwrap()),
    ] {
        let load = ["-m", "pairs", "--concurrency-range", "2", "--request-count", "20"];
        let shapes = ["--shape", "a:3,2", "--shape", "b:5,2", "-i", protocol, "-u", address];
        let output = analyze(&server, &[&load[..], &shapes].concat()).await;
        let report = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{protocol}: {}: {report}\n{stderr}\n{}",
            output.status,
            server.log()
        );
        assert!(report.contains("Successful request count:"), "{report}");
    }
    let refusals = server.get("/metrics").await.text();
    for line in refusals
        .lines()
        .filter(|line| line.starts_with("tierlab_refusals_total{"))
    {
        assert!(line.ends_with(" 0"), "{line}");
    }
}
