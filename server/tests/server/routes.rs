//! The OpenAPI document against the running server: what is in it answers, and what a client may call is in it.

use crate::harness::{Data, Server, json_request, mlp_input, on_tier};
use reqwest::Method;
use serde_json::Value;
use std::io::Read;
use tierlab_models::generators::ModelKind;

fn serve() -> (Data, Server) {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    (data, server)
}

/// A path with its placeholders filled.
fn filled(path: &str) -> String {
    path.replace("{model}", "mlp")
        .replace("{version}", "1")
        .replace("{region}", "r")
}

#[tokio::test]
async fn every_route_of_the_document_answers_its_methods_and_no_other() {
    let (_data, server) = serve();
    let document = server.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    for (path, item) in paths {
        let url = server.url(&filled(path));
        let methods = [("get", Method::GET), ("post", Method::POST)];
        for (name, method) in methods {
            let body = if path.ends_with("/infer") {
                json_request(mlp_input(1), None, None)
            } else {
                Vec::new()
            };
            let reply = server.client.request(method, &url).body(body).send().await.unwrap();
            let status = reply.status().as_u16();
            if item.get(name).is_none() {
                assert_eq!(status, 405, "{name} {path}");
                let allow = reply.headers()["allow"].to_str().unwrap();
                assert!(
                    !allow.is_empty() && !allow.to_lowercase().contains(name),
                    "{name} {path}: {allow}"
                );
                continue;
            }
            // Some are refused by what they are, or in what they are asked: none is unknown.
            assert!(![404, 405].contains(&status) && status < 500, "{name} {path}: {status}");
            let text = reply.text().await.unwrap();
            if !["/", "/metrics"].contains(&path.as_str()) {
                assert!(
                    text.is_empty() || serde_json::from_str::<Value>(&text).is_ok(),
                    "{name} {path}: {text}"
                );
            }
        }
        let options = server.client.request(Method::OPTIONS, &url).send().await.unwrap();
        assert_eq!(options.status(), 204, "{path}");
        let allow = options.headers()["allow"].to_str().unwrap().to_uppercase();
        for method in ["get", "post"] {
            assert_eq!(
                allow.contains(&method.to_uppercase()),
                item.get(method).is_some(),
                "{path}: {allow}"
            );
        }
        if item.get("get").is_some() {
            let head = server.client.head(&url).send().await.unwrap();
            assert_eq!(head.status(), 200, "HEAD {path}");
        }
    }
}

#[tokio::test]
async fn every_route_that_clients_call_is_in_the_document() {
    let (_data, server) = serve();
    let document = server.get("/openapi.json").await.json();
    // The whole of it, so that a change is seen; where one is meant: INSTA_UPDATE=always.
    insta::assert_snapshot!("openapi.json", serde_json::to_string_pretty(&document).unwrap());
    // These are the calls of tritonclient, the kserve client, perf_analyzer, curl users and Prometheus.
    for (method, path) in [
        ("get", "/v2"),
        ("get", "/v2/health/live"),
        ("get", "/v2/health/ready"),
        ("get", "/v2/models/{model}"),
        ("get", "/v2/models/{model}/ready"),
        ("get", "/v2/models/{model}/config"),
        ("get", "/v2/models/{model}/stats"),
        ("post", "/v2/models/{model}/infer"),
        ("get", "/v2/models/{model}/versions/{version}"),
        ("get", "/v2/models/{model}/versions/{version}/ready"),
        ("get", "/v2/models/{model}/versions/{version}/config"),
        ("get", "/v2/models/{model}/versions/{version}/stats"),
        ("post", "/v2/models/{model}/versions/{version}/infer"),
        ("get", "/v2/models/stats"),
        ("post", "/v2/repository/index"),
        ("post", "/v2/repository/models/{model}/load"),
        ("post", "/v2/repository/models/{model}/unload"),
        ("get", "/v2/trace/setting"),
        ("post", "/v2/trace/setting"),
        ("get", "/v2/models/{model}/trace/setting"),
        ("get", "/v2/logging"),
        ("post", "/v2/logging"),
        ("get", "/v2/systemsharedmemory/status"),
        ("post", "/v2/systemsharedmemory/region/{region}/register"),
        ("post", "/v2/systemsharedmemory/unregister"),
        ("get", "/v2/cudasharedmemory/region/{region}/status"),
        ("get", "/metrics"),
        ("get", "/openapi.json"),
    ] {
        assert!(
            !document["paths"][path][method].is_null(),
            "{method} {path} is not in the document"
        );
    }
}

#[tokio::test]
async fn trace_settings_are_those_of_a_model_that_is_served() {
    let (_data, server) = serve();
    for (model, status) in [("mlp", 200), ("none", 404)] {
        let path = format!("/v2/models/{model}/trace/setting");
        assert_eq!(server.get(&path).await.status, status, "{path}");
        assert_eq!(server.post(&path, "{}").await.status, status, "{path}");
    }
}

#[tokio::test]
async fn replies_are_compressed_where_the_client_asks_and_it_pays() {
    let (_data, server) = serve();
    let infer = async |rows: i64, accept: &str| {
        let request = server.client.post(server.url("/v2/models/mlp/infer"));
        let request = request
            .header("accept-encoding", accept)
            .body(json_request(mlp_input(rows), None, None));
        let reply = request.send().await.unwrap();
        let coding = reply
            .headers()
            .get("content-encoding")
            .map(|value| value.to_str().unwrap().to_owned());
        (coding, reply.bytes().await.unwrap())
    };
    let (coding, plain) = infer(250, "identity").await;
    assert_eq!(coding, None);
    let (coding, compressed) = infer(250, "gzip").await;
    assert_eq!(coding.as_deref(), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    assert!(compressed.len() < plain.len());
    let outputs = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["outputs"].clone();
    assert_eq!(outputs(&unpacked), outputs(&plain));
    assert_eq!(infer(250, "deflate").await.0.as_deref(), Some("deflate"));
    assert_eq!(infer(1, "gzip, deflate").await.0, None);
}
