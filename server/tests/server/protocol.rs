//! The protocol's documents, its errors, and both versions of HTTP.

use crate::harness::{Data, Reply, Server, entity_ids, json_request, mlp_input, on_tier};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::time::Duration;
use tierlab_models::generators::ModelKind;
use tierlab_protocol::infer::HEADER_LENGTH;
use tierlab_protocol::timing::Stage;

fn server(set: &[&str]) -> (Data, Server) {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 100);
    let server = Server::start(&on_tier(&data, "memory"), set);
    (data, server)
}

#[tokio::test]
async fn documents_are_what_clients_ask_for() {
    let (_data, server) = server(&[]);
    for (path, pointer, value) in [
        ("/v2/health/live", "/live", serde_json::json!(true)),
        ("/v2/health/ready", "/ready", serde_json::json!(true)),
        ("/v2", "/name", serde_json::json!("tierlab")),
        (
            "/v2/models/mlp",
            "/inputs/0",
            serde_json::json!({"name": "input", "datatype": "FP32", "shape": [-1, 64]}),
        ),
        ("/v2/models/mlp", "/batched", serde_json::json!(true)),
        ("/v2/models/mlp", "/max_batch_size", serde_json::json!(256)),
        ("/v2/models/mlp/versions/1", "/versions", serde_json::json!(["1"])),
        (
            "/v2/models/ctr",
            "/joined",
            serde_json::json!({
                "table": "ctr", "first_id": 0, "rows": 100, "row_bytes": 512, "inputs": ["dense", "categorical"]
            }),
        ),
        ("/v2/models/mlp/ready", "/ready", serde_json::json!(true)),
        ("/v2/models/mlp/versions/1/ready", "/name", serde_json::json!("mlp")),
        ("/v2/models/mlp/config", "/input/0/dims", serde_json::json!([64])),
        ("/v2/models/ctr/config", "/max_batch_size", serde_json::json!(1024)),
        ("/v2/models/ctr/stats", "/model_stats/0/name", serde_json::json!("ctr")),
        ("/v2/models/stats", "/model_stats/1/name", serde_json::json!("mlp")),
    ] {
        let reply = server.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"), "{path}");
        assert_eq!(reply.json().pointer(pointer), Some(&value), "{path}: {}", reply.text());
    }
    let index = server.post("/v2/repository/index", "").await.json();
    assert_eq!(
        index[1],
        serde_json::json!({"name": "mlp", "version": "1", "state": "READY", "reason": ""})
    );
    let load = server.post("/v2/repository/models/mlp/load", "").await;
    assert_eq!(load.status, 403);
    assert!(load.error().contains("[admin]"), "{}", load.text());
}

#[tokio::test]
async fn json_and_binary_and_both_mixed_give_the_same_answer() {
    let (_data, server) = server(&[]);
    let binary = server.infer("mlp", mlp_input(3)).await;
    assert_eq!(binary.header("content-type"), Some("application/octet-stream"));
    let json = server
        .post("/v2/models/mlp/infer", json_request(mlp_input(3), None, Some("output")))
        .await;
    assert_eq!(json.header("content-type"), Some("application/json"));
    assert_eq!(json.inferred().id.as_deref(), Some("seven"));
    assert_eq!(json.floats(), binary.floats());
    assert_eq!(binary.inferred().outputs[0].shape, [3, 1]);
    let versioned = server
        .post(
            "/v2/models/mlp/versions/1/infer",
            json_request(mlp_input(3), None, None),
        )
        .await;
    assert_eq!(versioned.floats(), binary.floats());
    let timings = binary.timings();
    assert_eq!(timings.batch_rows, 3);
    assert!(timings.get(Stage::Infer) > Duration::ZERO);
    // Rounded to microseconds before they are summed: the header's total is the sum of its stages.
    let total = binary
        .header("server-timing")
        .unwrap()
        .split("total;dur=")
        .nth(1)
        .unwrap();
    let total: f64 = total.split(',').next().unwrap().parse().unwrap();
    assert_eq!(Duration::from_micros((total * 1e3).round() as u64), timings.total());
}

/// Path, headers and body of a request; status, and what the message must say.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Vec<u8>, u16, &'a str);

/// Sends a POST as JSON unless `headers` say otherwise.
async fn post(server: &Server, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
    let mut request = server.client.post(server.url(path)).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Reply::of(request.send().await.unwrap()).await
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
async fn malformed_requests_get_their_answer_and_the_server_goes_on() {
    let (_data, server) = server(&["admission.max_body_bytes=100000"]);
    let infer = "/v2/models/mlp/infer";
    let json = |shape: &str, dtype: &str, data: &str| {
        format!(r#"{{"inputs":[{{"name":"input","shape":{shape},"datatype":"{dtype}","data":{data}}}]}}"#).into_bytes()
    };
    let good = || json_request(mlp_input(1), None, None);
    let joined = |ids: &[i64]| json_request(entity_ids(ids), None, None);
    let (binary, binary_len) = {
        let request = tierlab_protocol::infer::InferRequest {
            inputs: mlp_input(1),
            ..Default::default()
        };
        request.encode_binary()
    };
    let binary_len = binary_len.to_string();
    let binary_header = [(HEADER_LENGTH, binary_len.as_str())];
    let long_name = format!("/v2/models/{}/infer", "x".repeat(5000));
    let cases: Vec<Case<'_>> = vec![
        (infer, &[], vec![], 400, "malformed request"),
        (infer, &[], b"{".to_vec(), 400, "malformed request"),
        (infer, &[], vec![0xff; 100], 400, "malformed request"),
        (infer, &[], vec![b'['; 90_000], 400, "malformed request"),
        (infer, &[], b"{\"inputs\":[]}".to_vec(), 400, "`inputs`"),
        (infer, &[], json("[1,64]", "FLOAT32", "[]"), 400, "FLOAT32"),
        (infer, &[], json("[1,64]", "FP32", "[1,2]"), 400, "input `input`"),
        (infer, &[], json("[1,-64]", "FP32", "[1,2]"), 400, "`shape`"),
        (
            infer,
            &[],
            json("[4611686018427387904,64]", "FP32", "[]"),
            400,
            "input `input`",
        ),
        (
            infer,
            &[],
            json("[1,2]", "FP32", "[1,2]"),
            400,
            "the model requires [-1, 64]",
        ),
        (infer, &[], json("[1,2]", "FP64", "[1,2]"), 400, "`datatype` is FP64"),
        (infer, &[], json("[0,64]", "FP32", "[]"), 400, "has no rows"),
        (
            infer,
            &[],
            json_request(mlp_input(1), None, Some("nope")),
            400,
            "output `nope`",
        ),
        (infer, &[], joined(&[1]), 400, "input `entity_id`"),
        (
            infer,
            &[("inference-header-content-length", "12")],
            good(),
            400,
            "malformed request",
        ),
        (
            infer,
            &[("inference-header-content-length", "twelve")],
            good(),
            400,
            "inference-header-content-length",
        ),
        (
            infer,
            &[("inference-header-content-length", "99999999")],
            good(),
            400,
            "Inference-Header-Content-Length",
        ),
        (
            infer,
            &binary_header,
            binary[..binary.len() - 1].to_vec(),
            400,
            "`binary_data_size`",
        ),
        (infer, &binary_header, [&binary[..], b"x"].concat(), 400, "bytes follow"),
        (infer, &[("content-encoding", "gzip")], good(), 400, "Gzip"),
        (infer, &[("content-encoding", "zstd")], good(), 400, "Content-Encoding"),
        (infer, &[], vec![b' '; 100_001], 413, "100000"),
        (
            "/v2/models/ctr/infer",
            &[],
            joined(&[0, 100]),
            404,
            "unknown entity 100",
        ),
        (
            "/v2/models/ctr/infer",
            &[],
            joined(&[i64::MIN]),
            404,
            "unknown entity -9223372036854775808",
        ),
        (
            "/v2/models/ctr/infer",
            &[],
            joined(&[1; 1024 + 1]),
            400,
            "batch-size must be <= 1024 for 'ctr', but it has 1025 rows",
        ),
        ("/v2/models/none/infer", &[], good(), 404, "unknown model `none`"),
        (
            "/v2/models/mlp/versions/2/infer",
            &[],
            good(),
            404,
            "unknown version `2`",
        ),
        (
            "/v2/models/..%2f..%2fetc%2fpasswd/infer",
            &[],
            good(),
            404,
            "unknown model",
        ),
        (&long_name, &[], good(), 404, "unknown model `xxx"),
        ("/v2/models/mlp/explain", &[], good(), 404, "unknown route"),
        ("/v2/health/live", &[], good(), 405, "the header Allow"),
    ];
    for (path, headers, body, status, named) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let reply = post(&server, path, headers, body).await;
        assert_eq!(reply.status, status, "{path} {headers:?} {shown}: {}", reply.text());
        assert!(
            reply.error().contains(named),
            "{path} {headers:?} {shown}: {} should name {named}",
            reply.error()
        );
        assert!(reply.body.len() < 1000, "{path} {shown}: a long error");
    }
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    assert_eq!(server.infer("ctr", entity_ids(&[99])).await.status, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[tokio::test]
async fn broken_http_gets_its_answer_and_the_server_goes_on() {
    let (_data, server) = server(&["admission.max_body_bytes=100000"]);
    let infer = "/v2/models/mlp/infer";
    let reply = server.get(infer).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let cut = server.raw(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"inp\r\nZZ\r\n");
    assert!(cut.starts_with("HTTP/1.1 400"), "{cut}");
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, " ".repeat(60_000));
    let chunked = format!(
        "POST {infer} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    );
    let reply = server.raw(chunked.as_bytes());
    assert!(reply.starts_with("HTTP/1.1 413"), "{reply}");
    server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no TLS here \r\n\r\n");
    server.raw(format!("GET / HTTP/1.1\r\n{}", "a: b\r\n".repeat(20_000)).as_bytes());
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    assert_eq!(server.infer("ctr", entity_ids(&[99])).await.status, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[tokio::test]
async fn http_2_without_tls_is_spoken_too() {
    let (_data, server) = server(&[]);
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = http::Request::post(server.url("/v2/models/mlp/infer"));
    let body = Full::new(Bytes::from(json_request(mlp_input(2), None, None)));
    let response = client.request(request.body(body).unwrap()).await.unwrap();
    assert_eq!(
        (response.version(), response.status().as_u16()),
        (http::Version::HTTP_2, 200)
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("\"shape\":[2,1]"));
}
