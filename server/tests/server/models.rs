//! Graphs of all kinds, each alone in its folder: every data type, no batch dimension, external weights, inputs that a
//! graph refuses.

use crate::harness::{Data, PATIENCE, Server, on_tier, tensor};
use bytes::Bytes;
use tierlab_models::onnx::messages::{DATA_EXTERNAL, ElementType, StringStringEntryProto};
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest, Tensor};
use tierlab_protocol::tensor::DataType;

/// Every type of the protocol, and ONNX's name for it.
pub(crate) const TYPES: [(DataType, ElementType); 14] = [
    (DataType::Bool, ElementType::Bool),
    (DataType::Uint8, ElementType::Uint8),
    (DataType::Uint16, ElementType::Uint16),
    (DataType::Uint32, ElementType::Uint32),
    (DataType::Uint64, ElementType::Uint64),
    (DataType::Int8, ElementType::Int8),
    (DataType::Int16, ElementType::Int16),
    (DataType::Int32, ElementType::Int32),
    (DataType::Int64, ElementType::Int64),
    (DataType::Fp16, ElementType::Float16),
    (DataType::Bf16, ElementType::Bfloat16),
    (DataType::Fp32, ElementType::Float),
    (DataType::Fp64, ElementType::Double),
    (DataType::Bytes, ElementType::String),
];

/// Serves graphs whose rows are independent, in batches.
fn serve(models: &[(&str, ModelProto)]) -> (Data, Server) {
    let data = Data::generate(&[], 0);
    for (name, model) in models {
        data.add_batched_model(name, model);
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    (data, server)
}

/// `x_TYPE` [-1, 2] to `y_TYPE` [-1, 2], unchanged, for every type.
pub(crate) fn echo() -> ModelProto {
    let mut graph = GraphBuilder::new("echo");
    for (dtype, element) in TYPES {
        let input = graph.input(&format!("x_{dtype}"), element, &[-1, 2]);
        let output = graph.node(&format!("y_{dtype}"), "Identity", &[&input], &[]);
        graph.output(&output, element, &[-1, 2]);
    }
    graph.finish("gives back what it gets")
}

/// Inputs of `echo`: `rows` rows, their bytes beginning at `seed`.
pub(crate) fn echoed(rows: usize, seed: u8) -> Vec<Tensor> {
    let input = |(dtype, _): (DataType, ElementType)| {
        let count = rows * 2;
        let data = match dtype.size() {
            _ if dtype == DataType::Bool => (0..count).map(|i| (i as u8).wrapping_add(seed) % 2).collect(),
            // Bytes below 64 make small numbers of every float type, and no NaN.
            Some(size) => (0..count * size).map(|i| (i as u8).wrapping_add(seed) % 64).collect(),
            None => (0..count)
                .flat_map(|i| {
                    let text = "ü".repeat(i % 4 + usize::from(seed % 3));
                    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
                })
                .collect(),
        };
        tensor(&format!("x_{dtype}"), dtype, &[rows as i64, 2], data)
    };
    TYPES.into_iter().map(input).collect()
}

#[tokio::test]
async fn a_request_larger_than_a_batch_is_cut_and_joined_again_where_its_config_allows_it() {
    let data = Data::generate(&[], 0);
    data.add_model("echo", &echo());
    data.configure("echo", "max_batch_size = 256\n[batching]\nmax_request_rows = 4096\n");
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let rows = 2 * 256 + 33;
    let reply = server.infer("echo", echoed(rows, 3)).await;
    assert!(reply.timings().batch_rows <= 256);
    for (sent, got) in echoed(rows, 3).iter().zip(&reply.inferred().outputs) {
        assert_eq!((&sent.data, &sent.shape), (&got.data, &got.shape), "{}", got.name);
    }
    let too_many = server.infer("echo", echoed(16 * 256 + 1, 3)).await;
    assert_eq!(too_many.status, 400);
    assert!(
        too_many
            .error()
            .contains("batch-size must be <= 4096 for 'echo', but it has 4097 rows"),
        "{}",
        too_many.text()
    );
}

#[tokio::test]
async fn instances_threads_and_cpus_of_a_config_are_used_or_refused() {
    let data = Data::generate(&[], 0);
    data.add_model("echo", &echo());
    let config = data.path("models/echo/config.toml");
    let instances = "[instances]\ncount = 2\nintra_op_threads = 2\ninter_op_threads = 2\n";
    std::fs::write(&config, format!("{instances}cpus = [0]\n")).unwrap();
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let requests = (0..8).map(|seed| server.infer("echo", echoed(5, seed)));
    for (seed, reply) in (0..8).zip(futures::future::join_all(requests).await) {
        assert_eq!(reply.inferred().outputs[4].data, echoed(5, seed)[4].data);
    }
    let document = server.get("/v2/models/echo/config").await.json();
    assert_eq!(document["instance_group"][0]["count"], 2);
    drop(server);
    std::fs::write(&config, format!("{instances}cpus = [99999]\n")).unwrap();
    let output = crate::harness::refused(&on_tier(&data, "memory"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("instances.cpus") && message.contains("99999"),
        "{message}"
    );
}

#[tokio::test]
async fn every_type_comes_back_as_binary_and_as_json() {
    let (_data, server) = serve(&[("echo", echo())]);
    let requests = (1..=6).map(|rows| server.infer("echo", echoed(rows, rows as u8 * 9)));
    for (rows, reply) in (1..=6).zip(futures::future::join_all(requests).await) {
        let outputs = reply.inferred().outputs;
        for (sent, got) in echoed(rows, rows as u8 * 9).iter().zip(&outputs) {
            assert_eq!(
                (&sent.data, &sent.shape, sent.dtype),
                (&got.data, &got.shape, got.dtype),
                "{}",
                got.name
            );
        }
    }
    let inputs = echoed(3, 5);
    let wanted = |input: &Tensor| tierlab_protocol::infer::RequestedOutput {
        name: input.name.replace('x', "y"),
        ..Default::default()
    };
    let outputs = inputs
        .iter()
        .filter(|input| input.has_json_form())
        .map(wanted)
        .collect();
    let request = InferRequest {
        inputs: inputs.clone(),
        outputs,
        ..InferRequest::default()
    };
    let (body, json_len) = request.encode_binary();
    let url = server.url("/v2/models/echo/infer");
    let response = server
        .client
        .post(url)
        .header(HEADER_LENGTH, json_len)
        .body(body)
        .send()
        .await
        .unwrap();
    let outputs = crate::harness::Reply::of(response).await.inferred().outputs;
    assert_eq!(outputs.len(), TYPES.len() - 2);
    for got in outputs {
        let sent = inputs.iter().find(|sent| sent.name[1..] == got.name[1..]).unwrap();
        assert_eq!((&sent.data, &sent.shape), (&got.data, &got.shape), "{}", got.name);
    }
}

/// `index` INT64 [-1] to the rows of a table of four: `y` FP32 [-1, 1].
fn gather() -> ModelProto {
    let mut graph = GraphBuilder::new("gather");
    let index = graph.input("index", ElementType::Int64, &[-1]);
    let table = graph.floats("table", &[4, 1], &[0.5, 1.5, 2.5, 3.5]);
    let y = graph.node("y", "Gather", &[&table, &index], &[]);
    graph.output(&y, ElementType::Float, &[-1, 1]);
    graph.finish("looks rows up")
}

#[tokio::test]
async fn a_bad_request_fails_alone_inside_a_shared_batch() {
    let (_data, server) = serve(&[("gather", gather())]);
    let index = |value: i64| vec![tensor("index", DataType::Int64, &[1], value.to_le_bytes().to_vec())];
    let mut shared = false;
    for _ in 0..200 {
        let requests = (0..8).map(|i| server.infer("gather", index(if i == 3 { 4 } else { 2 })));
        for (i, reply) in futures::future::join_all(requests).await.into_iter().enumerate() {
            if i == 3 {
                assert_eq!(reply.status, 400, "{}", reply.text());
                assert!(reply.error().contains("refuses these inputs"), "{}", reply.text());
            } else {
                assert_eq!(reply.floats(), [2.5]);
            }
        }
        // A failed batch counts its rows, then each of them alone.
        let rows = server.metric("tierlab_batch_rows_sum{model=\"gather\"}").await;
        let sent = server
            .metric("tierlab_requests_total{code=\"200\",mode=\"realtime\",model=\"gather\",protocol=\"http\"}")
            .await
            + server
                .metric("tierlab_requests_total{code=\"400\",mode=\"realtime\",model=\"gather\",protocol=\"http\"}")
                .await;
        if rows > sent {
            shared = true;
            break;
        }
    }
    assert!(shared, "the bad request never shared a batch");
    assert!(!server.log().contains("panicked"));
}

#[tokio::test]
async fn a_graph_without_a_batch_dimension_runs_request_by_request() {
    let mut graph = GraphBuilder::new("fixed");
    let x = graph.input("x", ElementType::Float, &[2, 2]);
    let y = graph.node("y", "Add", &[&x, &x], &[]);
    graph.output(&y, ElementType::Float, &[2, 2]);
    let data = Data::generate(&[], 0);
    data.add_model("fixed", &graph.finish("adds itself"));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert_eq!(server.get("/v2/models/fixed/config").await.json()["max_batch_size"], 0);
    let input = |rows: i64| {
        let data = (0..rows * 2).flat_map(|i| (i as f32).to_le_bytes()).collect();
        vec![tensor("x", DataType::Fp32, &[rows, 2], data)]
    };
    let replies = futures::future::join_all((0..8).map(|_| server.infer("fixed", input(2)))).await;
    assert!(replies.iter().all(|reply| reply.floats() == [0.0, 2.0, 4.0, 6.0]));
    let reply = server.infer("fixed", input(3)).await;
    assert_eq!(reply.status, 400);
    assert!(reply.error().contains("the model requires [2, 2]"), "{}", reply.text());
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A model that adds 10 and 20, which lie in a file beside it, not at its beginning.
fn external_weights() -> Data {
    let mut graph = GraphBuilder::new("external");
    let x = graph.input("x", ElementType::Float, &[-1, 2]);
    let weights = graph.constant("weights", ElementType::Float, &[2], Bytes::new());
    let y = graph.node("y", "Add", &[&x, &weights], &[]);
    graph.output(&y, ElementType::Float, &[-1, 2]);
    let mut model = graph.finish("adds external weights");
    let tensor_proto = &mut model.graph.as_mut().unwrap().initializer[0];
    tensor_proto.data_location = DATA_EXTERNAL;
    for (key, value) in [("location", "w/weights.bin"), ("offset", "4"), ("length", "8")] {
        tensor_proto.external_data.push(StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        });
    }
    let data = Data::generate(&[], 0);
    data.add_model("external", &model);
    std::fs::create_dir(data.path("models/external/1/w")).unwrap();
    std::fs::write(data.path("models/external/1/w/weights.bin"), floats(&[9.0, 10.0, 20.0])).unwrap();
    data
}

async fn sums(server: &Server) -> Vec<f32> {
    let input = tensor("x", DataType::Fp32, &[1, 2], floats(&[1.0, 2.0]));
    server.infer("external", vec![input]).await.floats()
}

#[tokio::test]
async fn external_weights_beside_the_graph_are_read_too() {
    let data = external_weights();
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    assert_eq!(sums(&server).await, [11.0, 22.0]);
}

/// Weights are mapped from a smaller size on, as with a tensor of 2 GiB.
#[tokio::test]
async fn large_weights_are_mapped_from_a_local_disk_that_is_clean_after_the_load() {
    let data = external_weights();
    std::fs::write(data.path("models/external/config.toml"), "[instances]\ncount = 2\n").unwrap();
    let disk = tempfile::tempdir().unwrap();
    let folder = format!("runtime.weights.folder={}", disk.path().display());
    let explicit = ["repository.control=explicit", "admin.enabled=true", "models=[\"*\"]"];
    let mapping = [folder.as_str(), "runtime.weights.map_from_bytes=8"];
    let server = Server::start(&on_tier(&data, "memory"), &[&mapping[..], &explicit].concat());
    assert_eq!(sums(&server).await, [11.0, 22.0]);
    let mapped = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
        maps.lines().filter(|line| line.contains("tierlab-weights-")).count()
    };
    assert!(mapped() > 0, "ONNX Runtime took the weights from somewhere else");
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    let placing = server
        .metric("tierlab_model_load_seconds{model=\"external\",stage=\"place\"}")
        .await;
    assert!(placing > 0.0, "{placing}");
    server.logged(&["place_s="]);
    let reply = server.post("/v2/repository/models/external/load", "").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.json()["versions"][0]["seconds"]["place"].as_f64().unwrap() > 0.0);
    assert_eq!(sums(&server).await, [11.0, 22.0]);
    let reply = server.post("/v2/repository/models/external/unload", "").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let began = std::time::Instant::now();
    while mapped() > 0 {
        assert!(began.elapsed() < PATIENCE, "the mapping outlives its model");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn large_weights_that_find_no_room_are_refused_with_the_key_to_set() {
    let data = external_weights();
    data.add_model("good", &gather());
    let disk = tempfile::tempdir().unwrap();
    let folder = format!("runtime.weights.folder={}", disk.path().display());
    let small = [
        "runtime.weights.map_from_bytes=8",
        "runtime.weights.max_bytes=11",
        &folder,
    ];
    let server = Server::start(&on_tier(&data, "memory"), &small);
    let reply = server.get("/v2/models/external").await;
    assert_eq!(reply.status, 503);
    for part in [
        "models/external/1/model.onnx",
        "runtime.weights.max_bytes",
        disk.path().to_str().unwrap(),
    ] {
        assert!(reply.error().contains(part), "{} should name {part}", reply.error());
    }
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn configs_that_do_not_fit_the_graph_are_refused_by_name() {
    let data = Data::generate(&[], 0);
    data.add_model("good", &gather());
    for (name, config) in [
        ("typo", "max_batch = 1"),
        ("input", "[joined.none]\ntable = \"t\""),
        ("table", "[joined.index]\ntable = \"t\""),
    ] {
        data.add_model(name, &gather());
        std::fs::write(data.path(&format!("models/{name}/config.toml")), config).unwrap();
    }
    data.add_model("graph", &GraphBuilder::new("empty").finish("nothing"));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for (name, named) in [
        ("typo", "models/typo/config.toml"),
        ("input", "joined.none"),
        ("table", "features/t.rows"),
        ("graph", "models/graph/1/model.onnx"),
    ] {
        let reply = server.get(&format!("/v2/models/{name}")).await;
        assert_eq!(reply.status, 503);
        assert!(reply.error().contains(named), "{} should name {named}", reply.error());
    }
    assert_eq!(server.get("/v2/models/good/ready").await.status, 200);
}
