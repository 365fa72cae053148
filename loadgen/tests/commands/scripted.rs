//! Server of scripted times and replies, over HTTP and gRPC, and plans of closed loops and journeys for it.

use crate::program::{Workdir, run};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tierlab_analysis::record::Run;
use tierlab_loadgen::store::folder;
use tierlab_protocol::grpc::client::{framed, infer_path, unframed};
use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelInferResponse};
use tierlab_protocol::infer::{InferReply, InferRequest};

pub(crate) const HEAD: &str = "name = \"short\"\nmodel = \"m\"\nseed = 3\narrivals = \"constant\"\nwarmup_s = 0.2\ndrain_s = 2.0\nmax_in_flight = 64\n\
    limits = { foreign_cpu_share = 1.0, steal_share = 1.0, foreign_disk_bytes_per_s = 1e12, foreign_network_bytes_per_s = 1e12, \
    foreign_io_pressure = 1, foreign_memory_pressure = 1 }\n";
/// Service time of every request without a stall.
const SERVICE: Duration = Duration::from_millis(5);
/// Length of a stall at the start of every period.
const STALL: Duration = Duration::from_millis(400);
const PERIOD: Duration = Duration::from_millis(1_000);

/// Behaviour of the server.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) stalls: bool,
    /// Period of failing requests to `rank`; 0 for none.
    pub(crate) fails_every: u64,
    /// If true, `embed` leaves out the value that the next step takes.
    pub(crate) lacks_vector: bool,
    pub(crate) ranked: AtomicU64,
    /// Number of the first requests to each model that are refused.
    pub(crate) refuses_first: u64,
}

struct Server {
    script: Script,
    started: Instant,
    /// Rows inferred, and requests of its tier, which makes two for each infer request.
    counted: [AtomicU64; 2],
    over_grpc: AtomicU64,
    /// Requests to each model.
    asked: Mutex<BTreeMap<String, u64>>,
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
    let asked = {
        let mut asked = server.asked.lock().unwrap();
        let count = asked.entry(model.to_owned()).or_default();
        *count += 1;
        *count
    };
    if asked <= server.script.refuses_first {
        return (StatusCode::SERVICE_UNAVAILABLE, "{\"error\":\"starting\"}".to_owned());
    }
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
pub(crate) async fn serve(script: Script) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server {
        script,
        started: Instant::now(),
        counted: Default::default(),
        over_grpc: AtomicU64::new(0),
        asked: Mutex::default(),
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
pub(crate) fn swept(script: Script, plan: &str) -> (Workdir, Run, String) {
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

/// Plan of closed loops.
pub(crate) fn closed(users: &str, more: &str) -> String {
    format!("{HEAD}repeats = 2\nstep_s = 2.0\n[[load]]\nmode = \"concurrency\"\nusers = [{users}]\n{more}\n")
}

/// Loads of three steps.
pub(crate) const JOURNEY: &str = "repeats = 2\nstep_s = 1.0\n[[journey]]\nname = \"recommend\"\nrates = [100]\n\
    [[journey.step]]\nname = \"fetch\"\npath = \"/users/7%2F8\"\ntake = { who = \"/name\" }\n\
    [[journey.step]]\nname = \"embed\"\nmodel = \"embed\"\ninputs = { text = \"about {who}\" }\ntake = { v = \"/outputs/0/data\" }\n\
    [[journey.step]]\nname = \"rank\"\nmodel = \"rank\"\n\
    body = '{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":{v}}]}'\n";
