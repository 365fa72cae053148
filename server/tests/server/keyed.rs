//! Feature tables with keys: texts, UUIDs and integers in any order, over HTTP and gRPC, from several tiers.

use crate::flight;
use crate::grpc;
use crate::harness::{Data, Server, entity_ids, on_tier, tensor};
use crate::layouts::laid_out;
use std::fmt::Write as _;
use tierlab_layouts::Layout;
use tierlab_models::generators::ModelKind;
use tierlab_models::stop::Stop;
use tierlab_models::tables::ctr::row_values;
use tierlab_models::tables::import::{
    ColumnRequest, ColumnType, CsvOptions, DuplicateRule, NullRule, TableRequest, Vector, import_table,
};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;

const ROWS: i64 = 500;

/// The rows of the generated table, under keys of their own.
fn import(data: &Data, key: impl Fn(i64) -> String, kind: &str) {
    let mut text = "id".to_owned();
    let names = |prefix: char, count: usize| (0..count).map(move |i| format!("{prefix}{i}")).collect::<Vec<_>>();
    let (dense, categorical) = (names('d', 13), names('c', 26));
    for name in dense.iter().chain(&categorical) {
        let _ = write!(text, ",{name}");
    }
    for id in 0..ROWS {
        let row = row_values(2, id);
        let _ = write!(text, "\n{}", key(id));
        for value in row.dense {
            let _ = write!(text, ",{value:?}");
        }
        for value in row.categorical {
            let _ = write!(text, ",{value}");
        }
    }
    std::fs::write(data.path("rows.csv"), text).unwrap();
    let vector = |name: &str, columns: Vec<String>| Vector {
        name: name.to_owned(),
        columns,
    };
    let request = TableRequest {
        inputs: vec![data.path("rows.csv").display().to_string()],
        out: data.path("features"),
        columns: ColumnRequest {
            name: "ctr".into(),
            key: "id".into(),
            key_kind: serde_json::from_value(kind.into()).unwrap(),
            max_key_bytes: 64,
            only: vec![],
            vectors: vec![vector("dense", dense), vector("categorical", categorical)],
            types: vec![ColumnType {
                column: "dense".to_owned(),
                dtype: DataType::Fp32,
            }],
            hashed: vec![],
            nulls: NullRule::Refuse,
            duplicates: DuplicateRule::Refuse,
        },
        csv: CsvOptions::default(),
        memory_mib: 64,
        max_bad_rows: 0,
        allow_bad_rows: 0,
        part: None,
        finish: false,
        restart: false,
        replace: true,
    };
    import_table(&request, &Stop::never()).unwrap();
}

fn keys(keys: &[&str]) -> Vec<Tensor> {
    let mut data = Vec::new();
    for key in keys {
        data.extend_from_slice(&(key.len() as u32).to_le_bytes());
        data.extend_from_slice(key.as_bytes());
    }
    vec![tensor("entity_id", DataType::Bytes, &[keys.len() as i64], data)]
}

#[tokio::test]
async fn text_keys_are_looked_up_over_http() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let dense = server.infer("ctr", entity_ids(&[7, 3, 499])).await.floats();
    drop(server);
    import(&data, |id| format!("user-{:x}", id * 7919), "string");
    let named = [7, 3, 499].map(|id| format!("user-{:x}", id * 7919));
    let requested: [&str; 3] = std::array::from_fn(|at| named[at].as_str());
    for tier in ["nvme", "memory"] {
        let server = Server::start(&on_tier(&data, tier), &[]);
        let joined = server.get("/v2/models/ctr").await.json()["joined"].clone();
        assert_eq!(
            (joined["key"]["kind"].as_str(), joined["key"]["datatype"].as_str()),
            (Some("string"), Some("BYTES"))
        );
        for binary in [false, true] {
            let reply = match binary {
                true => server.infer("ctr", keys(&requested)).await,
                false => {
                    let body = serde_json::json!({"inputs": [
                        {"name": "entity_id", "datatype": "BYTES", "shape": [3], "data": requested}
                    ]});
                    server.post("/v2/models/ctr/infer", body.to_string()).await
                }
            };
            assert_eq!(reply.floats(), dense, "{tier}, binary: {binary}");
        }
        let unknown = server.infer("ctr", keys(&[requested[0], "no\n\"such\" user"])).await;
        assert_eq!(unknown.status, 404);
        assert!(
            unknown.error().contains(r#""no\n\"such\" user" in features/ctr.rows"#),
            "{}",
            unknown.error()
        );
        let long = server.infer("ctr", keys(&[&"x".repeat(100_000)])).await;
        assert!(long.status == 404 && long.error().len() < 400, "{}", long.error());
        let mismatched = server.infer("ctr", entity_ids(&[7])).await;
        assert_eq!(mismatched.status, 400);
        assert!(
            mismatched.error().contains("INT64") && mismatched.error().contains("keys are texts: BYTES"),
            "{}",
            mismatched.error()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_looked_up_in_every_layout() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    let uuid = |id: i64| format!("6f1c0d3e-2b4a-4c5d-8e6f-{id:012x}");
    import(&data, uuid, "uuid");
    let named = [7, 3, 499, 7].map(uuid);
    let requested: [&str; 4] = std::array::from_fn(|at| named[at].as_str());
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let wanted = server.infer("ctr", keys(&requested)).await.floats();
    drop(server);
    let layouts = Layout::all().filter(|layout| *layout != Layout::Rows);
    for layout in layouts.clone() {
        laid_out(&data, layout).await;
    }
    std::fs::remove_file(data.path("features/ctr.rows")).unwrap();
    for layout in layouts {
        let server = Server::start(&on_tier(&data, "nvme"), &[&format!("features.layout={layout}")]);
        assert_eq!(server.infer("ctr", keys(&requested)).await.floats(), wanted, "{layout}");
        let unknown = server.infer("ctr", keys(&[&uuid(ROWS)])).await;
        assert_eq!(unknown.status, 404, "{layout}: {}", unknown.error());
    }
}

#[tokio::test]
async fn text_keys_are_looked_up_over_grpc() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    import(&data, |id| format!("user-{id}"), "string");
    let server = grpc::serve(&data, "nvme", &[]);
    let over_http = server.infer("ctr", keys(&["user-7", "user-3"])).await.inferred();
    let reply = grpc::infer(&server, grpc::raw("ctr", keys(&["user-7", "user-3"])))
        .await
        .unwrap();
    assert_eq!(
        reply.into_inner().raw_output_contents[0][..],
        over_http.outputs[0].data.whole()[..]
    );
    let unknown = grpc::infer(&server, grpc::raw("ctr", keys(&["nobody"])))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    assert!(unknown.message().contains("unknown entity \"nobody\""), "{unknown}");
    let mismatched = grpc::infer(&server, grpc::raw("ctr", entity_ids(&[7])))
        .await
        .unwrap_err();
    assert_eq!(mismatched.code(), tonic::Code::InvalidArgument, "{mismatched}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_keys_is_refused_over_flight() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    import(&data, |id| format!("user-{id}"), "string");
    let (port, _stop, _task) = flight::origin(data.0.path(), 0).await;
    let mut arguments = flight::with_features(&data);
    arguments.extend(["--set".to_owned(), flight::url(port)]);
    let output = tokio::task::spawn_blocking(move || crate::harness::refused(&arguments))
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("features/ctr.rows") && text.contains("table has keys") && text.contains("another tier"),
        "{text}"
    );
}

#[tokio::test]
async fn uuids_and_scattered_integers_are_keys_too() {
    let data = Data::generate(&[ModelKind::Ctr], ROWS as u64);
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let dense = server.infer("ctr", entity_ids(&[7, 3])).await.floats();
    drop(server);
    let uuid = |id: i64| format!("6f1c0d3e-2b4a-4c5d-8e6f-{:012x}", id * 1_000_003);
    import(&data, uuid, "uuid");
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let upper = uuid(3).to_uppercase();
    assert_eq!(server.infer("ctr", keys(&[&uuid(7), &upper])).await.floats(), dense);
    let unknown = server.infer("ctr", keys(&[&uuid(9_999)])).await;
    assert!(
        unknown.status == 404 && unknown.error().contains(&uuid(9_999)),
        "{}",
        unknown.error()
    );
    let none = server.infer("ctr", keys(&["seven"])).await;
    assert!(
        none.status == 400 && none.error().contains("is not a UUID"),
        "{}",
        none.error()
    );
    drop(server);
    import(&data, |id| (id * 1_000_003 - 17).to_string(), "int64");
    let server = Server::start(&on_tier(&data, "nvme"), &[]);
    let requested = [7 * 1_000_003 - 17, 3 * 1_000_003 - 17];
    assert_eq!(server.infer("ctr", entity_ids(&requested)).await.floats(), dense);
    let unknown = server.infer("ctr", entity_ids(&[7])).await;
    assert!(
        unknown.status == 404 && unknown.error().contains("unknown entity 7"),
        "{}",
        unknown.error()
    );
}

#[tokio::test]
async fn a_damaged_index_is_refused_with_its_offset() {
    let data = Data::generate(&[ModelKind::Ctr], 4);
    import(&data, |id| format!("user-{id}"), "string");
    data.damage("features/ctr.rows", -3);
    let output = crate::harness::refused(&on_tier(&data, "nvme"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("features/ctr.rows") && text.contains("index of keys, offset 8"),
        "{text}"
    );
}
