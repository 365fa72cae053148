//! A model's folder, as a running server reads it: Triton's configs, warm-ups, optimised graphs; and the counters
//! of each version.

use crate::harness::{Data, PATIENCE, Server, mlp_input, on_tier, tensor};
use crate::management::{adds, answer, put_version, serve};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_models::onnx::GraphBuilder;
use tierlab_models::onnx::messages::ElementType;
use tierlab_protocol::tensor::DataType;

const TRITON_CONFIG: &str = r#"
name: "adds"
platform: "onnxruntime_onnx"
max_batch_size: 8
version_policy: { all { } }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 50 }
instance_group [ { count: 2 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value: { string_value: "2" } }
model_warmup [ {
  name: "full" batch_size: 8 count: 2
  inputs { key: "x" value: { data_type: TYPE_FP32 dims: [ 1 ] input_data_file: "x.bin" } }
} ]
"#;

#[tokio::test]
async fn a_triton_repository_is_served_as_its_config_says() {
    let data = Data::generate(&[], 0);
    put_version(&data, "1", &adds(10.0));
    put_version(&data, "2", &adds(20.0));
    let config = data.path("models/adds/config.pbtxt");
    std::fs::write(&config, TRITON_CONFIG).unwrap();
    std::fs::create_dir(data.path("models/adds/warmup")).unwrap();
    std::fs::write(data.path("models/adds/warmup/x.bin"), 5.0_f32.to_le_bytes()).unwrap();
    let server = serve(&data, &["models=[\"adds\"]"]);
    assert_eq!(answer(&server, "adds/versions/1").await.0, 11.0);
    let document = server.get("/v2/models/adds/config").await.json();
    for (pointer, value) in [
        ("/max_batch_size", serde_json::json!(8)),
        ("/version_policy", serde_json::json!({"all": {}})),
        ("/input/0/dims", serde_json::json!([1])),
        ("/dynamic_batching/preferred_batch_size", serde_json::json!([4, 8])),
        ("/dynamic_batching/max_queue_delay_microseconds", serde_json::json!(50)),
        ("/instance_group/0/count", serde_json::json!(2)),
        ("/instance_group/0/kind", serde_json::json!("KIND_CPU")),
        ("/parameters/intra_op_thread_count/string_value", serde_json::json!("2")),
        ("/model_warmup/0/batch_size", serde_json::json!(8)),
        ("/model_warmup/0/inputs/x/input_data_file", serde_json::json!("x.bin")),
    ] {
        assert_eq!(document.pointer(pointer), Some(&value), "{pointer}: {document}");
    }
    // A folder that does not map, or does not fit the graph, is refused with the place; served versions go on.
    for (from, to, named) in [
        (
            "kind: KIND_CPU",
            "kind: KIND_MODEL",
            "config.pbtxt: line 9, column 35: `instance_group.kind`",
        ),
        (
            "TYPE_FP32 dims: [ 1 ] } ]\noutput",
            "TYPE_INT32 dims: [ 1 ] } ]\noutput",
            "input `x`",
        ),
        ("dims: [ 1 ] } ]\noutput", "dims: [ 1, 1 ] } ]\noutput", "input `x`"),
        ("name: \"y\"", "name: \"z\"", "output `z`"),
        (
            "input_data_file: \"x.bin\"",
            "input_data_file: \"none.bin\"",
            "models/adds/warmup/none.bin",
        ),
        ("batch_size: 8 count", "batch_size: 9 count", "warmup.batch_size"),
    ] {
        let changed = TRITON_CONFIG.replace(from, to);
        assert_ne!(changed, TRITON_CONFIG, "{from}");
        std::fs::write(&config, changed).unwrap();
        let reply = server.post("/v2/repository/models/adds/load", "").await;
        assert_eq!(reply.status, 422, "{to}: {}", reply.text());
        assert!(reply.error().contains(named), "{to}: {}", reply.text());
        assert_eq!(answer(&server, "adds").await.0, 21.0);
    }
    std::fs::write(&config, TRITON_CONFIG).unwrap();
    std::fs::write(data.path("models/adds/config.toml"), "").unwrap();
    let reply = server.post("/v2/repository/models/adds/load", "").await;
    assert!(reply.error().contains("keep only one of them"), "{}", reply.text());
}

#[tokio::test]
async fn a_version_that_fails_its_warm_up_is_refused() {
    let data = Data::generate(&[], 0);
    put_version(&data, "1", &adds(10.0));
    let mut graph = GraphBuilder::new("gather");
    let index = graph.input("x", ElementType::Int64, &[-1]);
    let table = graph.floats("table", &[4, 1], &[0.5, 1.5, 2.5, 3.5]);
    let y = graph.node("y", "Gather", &[&table, &index], &[]);
    graph.output(&y, ElementType::Float, &[-1, 1]);
    let gather = graph.finish("looks rows up");
    let server = serve(&data, &["models=[\"adds\"]"]);
    put_version(&data, "2", &gather);
    let config = data.path("models/adds/config.toml");
    // Random integers are no rows of the table.
    let sample =
        "max_batch_size = 8\n[[warmup]]\nname = \"bad\"\nbatch_size = 4\n[warmup.inputs.x]\ndims = []\ndata = ";
    for (data_kind, status, named) in [
        ("\"random\"", 422, "warm-up `bad`"),
        ("{ file = \"none\" }", 422, "models/adds/warmup/none"),
        ("\"zero\"", 200, "READY"),
    ] {
        std::fs::write(&config, format!("{sample}{data_kind}")).unwrap();
        let reply = server.post("/v2/repository/models/adds/load", "").await;
        assert_eq!(reply.status, status, "{}", reply.text());
        assert!(reply.text().contains(named), "{}", reply.text());
        let version = server.get("/v2/models/adds").await.json()["versions"][0].clone();
        assert_eq!(version, if status == 200 { "2" } else { "1" });
    }
}

#[tokio::test]
async fn statistics_count_requests_runs_and_batches_by_version() {
    let data = Data::generate(&[], 0);
    put_version(&data, "1", &adds(10.0));
    put_version(&data, "2", &adds(20.0));
    data.configure("adds", "max_batch_size = 8\nversion_policy = { all = {} }");
    let server = serve(&data, &["models=[\"adds\"]"]);
    let rows = |rows: usize| vec![tensor("x", DataType::Fp32, &[rows as i64, 1], vec![0; 4 * rows])];
    for size in [1, 1, 3, 3, 3] {
        assert_eq!(server.infer("adds", rows(size)).await.status, 200);
    }
    assert_eq!(server.infer("adds/versions/1", rows(2)).await.status, 200);
    assert_eq!(server.infer("adds", rows(0)).await.status, 400);
    let stats = server.get("/v2/models/adds/stats").await.json();
    let (first, second) = (&stats["model_stats"][0], &stats["model_stats"][1]);
    assert_eq!((&first["version"], &first["inference_count"]), (&"1".into(), &2.into()));
    assert_eq!(
        (&second["version"], &second["inference_count"]),
        (&"2".into(), &11.into())
    );
    assert_eq!(second["execution_count"], 5);
    assert_eq!(second["inference_stats"]["success"]["count"], 5);
    assert_eq!(second["inference_stats"]["fail"]["count"], 1);
    for part in ["queue", "compute_input", "compute_infer", "compute_output"] {
        assert_eq!(second["inference_stats"][part]["count"], 5, "{part}");
    }
    let sizes: Vec<(u64, u64)> = second["batch_stats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| {
            (
                size["batch_size"].as_u64().unwrap(),
                size["compute_infer"]["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(sizes, [(1, 2), (3, 3)]);
    assert!(second["batch_stats"][0]["compute_infer"]["ns"].as_u64().unwrap() > 0);
    assert!(second["last_inference"].as_u64().unwrap() > 1_600_000_000_000);
    let one = server.get("/v2/models/adds/versions/1/stats").await.json();
    assert_eq!(one["model_stats"].as_array().unwrap().len(), 1);
    let all = server.get("/v2/models/stats").await.json();
    assert_eq!(all["model_stats"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn optimised_graphs_are_kept_and_a_damaged_one_is_made_again() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let cache = data.path("optimized");
    let setting = format!("runtime.optimized_cache={}", cache.display());
    let server = serve(&data, &[&setting]);
    let load = async || {
        let reply = server.post("/v2/repository/models/mlp/load", "").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let document = reply.json();
        let answer = server.infer("mlp", mlp_input(3)).await.floats();
        (document["versions"][0]["optimized"].as_bool().unwrap(), answer)
    };
    let entry = async || {
        let began = Instant::now();
        loop {
            let entries = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
            let whole: Vec<_> = entries
                .filter(|path| !path.to_string_lossy().contains("partial-"))
                .collect();
            if let [one] = whole.as_slice() {
                return one.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{whole:?}\n{}", server.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (optimized, plain) = load().await;
    assert!(!optimized);
    let stored = entry().await;
    let (optimized, again) = load().await;
    assert!(optimized, "{}", server.log());
    assert_eq!(plain, again);
    // Damaged: noticed by its sum.
    let bytes = std::fs::read(&stored).unwrap();
    std::fs::write(&stored, &bytes[..bytes.len() / 2]).unwrap();
    let (optimized, again) = load().await;
    assert!(!optimized);
    assert_eq!(plain, again);
    assert_eq!(entry().await, stored);
    // Whole, but nothing that ONNX Runtime takes: the name carries the sum of the bytes.
    let nonsense = b"no graph";
    let sum = hex_sum(nonsense);
    let name = stored.file_name().unwrap().to_str().unwrap();
    let renamed = cache.join(format!("{}-{sum}.onnx", &name[..64]));
    std::fs::remove_file(&stored).unwrap();
    std::fs::write(&renamed, nonsense).unwrap();
    let (optimized, again) = load().await;
    assert!(!optimized);
    assert_eq!(plain, again);
    let began = Instant::now();
    while renamed.exists() {
        assert!(began.elapsed() < PATIENCE, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn hex_sum(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(bytes))
}

#[tokio::test]
async fn the_version_of_onnx_runtime_is_what_the_library_says() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let folder = tempfile::tempdir().unwrap();
    let library = crate::harness::tool(".runtime/onnxruntime", "onnxruntime");
    let library = std::fs::read_dir(library)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("libonnxruntime.so"))
        .unwrap();
    let version = library.to_string_lossy().split(".so.").nth(1).unwrap().to_owned();
    // Under a name that says nothing.
    let nameless = folder.path().join("inference.so");
    std::os::unix::fs::symlink(std::fs::canonicalize(library).unwrap(), &nameless).unwrap();
    let setting = format!("runtime.library={}", nameless.display());
    let server = Server::start(&on_tier(&data, "memory"), &[&setting]);
    let info = server.get("/metrics").await.text();
    let expected = format!("onnxruntime=\"{version}\"");
    assert!(
        info.lines()
            .any(|line| line.starts_with("tierlab_build_info") && line.contains(&expected)),
        "{expected}"
    );
}
