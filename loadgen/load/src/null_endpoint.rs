//! Server that does nothing: a latency measured with it is the instrument's own. Beside the driver, because both are on
//! the measured path.
//!
//! In: infer requests. Out: a fixed reply, at once or by a script of stalls whose percentiles can be calculated. Supports
//! the parts of the protocol that the load generator uses.

use crate::lock;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tierlab_protocol::grpc::SERVER_TIMING;
use tierlab_protocol::grpc::client::{framed, infer_path, unframed};
use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelInferResponse};
use tierlab_protocol::infer::{InferReply, Tensor};
use tierlab_protocol::metadata::LoadSeconds;
use tierlab_protocol::metrics::BUILD_INFO;
use tierlab_protocol::tensor::{DataType, TensorSpec};
use tierlab_protocol::timing::StageTimings;
use tokio::net::TcpListener;

/// Rows of the table that it reports as joined.
pub const ROWS: u64 = 1_000_000;
const BODY_LIMIT: usize = 64 << 20;
/// Bytes of a request that are searched for its first shape.
const SEARCHED_BYTES: usize = 1 << 10;
const MAX_ROWS: usize = 1 << 20;

/// Script of stalls: `length` at the start of every `every`, from the server's start. A request that arrives in a stall
/// is answered at the stall's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalls {
    /// Length of one stall.
    pub length: Duration,
    /// Time from the start of one stall to the next.
    pub every: Duration,
}

impl Stalls {
    /// Wait of a request that arrives at `since_start`.
    pub fn wait(&self, since_start: Duration) -> Duration {
        let every = self.every.as_nanos().max(1);
        let into = since_start.as_nanos() % every;
        let left = self.length.as_nanos().saturating_sub(into);
        Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// Server with a single queue and a known capacity of `1 / service` requests per second.
#[derive(Debug)]
pub struct SingleServer {
    service: Duration,
    queue: Mutex<ServiceQueue>,
}

/// Queue in front of a single server.
#[derive(Debug)]
struct ServiceQueue {
    /// End of the last request's service.
    busy_until: Instant,
    /// Source of exponential service times; `None` makes all of them equal.
    exponential: Option<ChaCha8Rng>,
}

impl SingleServer {
    /// Creates an idle server whose requests take `service` each, or an exponential time with that mean if `exponential`
    /// has a seed. With Poisson arrivals it is an M/D/1 or M/M/1 queue, whose percentiles are known.
    pub fn new(service: Duration, exponential: Option<u64>) -> Self {
        Self {
            service,
            queue: Mutex::new(ServiceQueue {
                busy_until: Instant::now(),
                exponential: exponential.map(ChaCha8Rng::seed_from_u64),
            }),
        }
    }

    /// Returns the end of the service of a request that arrives at `now`. Requests are served in the order of these
    /// calls.
    pub fn done_at(&self, now: Instant) -> Instant {
        let mut queue = lock(&self.queue);
        let factor: f64 = queue.exponential.as_mut().map_or(1.0, |rng| Exp1.sample(rng));
        queue.busy_until = now.max(queue.busy_until) + self.service.mul_f64(factor);
        queue.busy_until
    }
}

/// Behaviour of the endpoint.
#[derive(Debug, Default)]
pub struct Script {
    /// Script of stalls.
    pub stalls: Option<Stalls>,
    /// Queue in front of a single server; `None` serves all requests at once.
    pub single_server: Option<SingleServer>,
}

#[derive(Debug)]
struct NullServer {
    started: Instant,
    script: Script,
    timing: String,
}

/// Serves until the process ends or, with `until_stdin_closes`, until the process that started it has ended.
///
/// # Errors
/// The address cannot be bound, or stdout is closed.
pub async fn serve(listen: SocketAddr, script: Script, until_stdin_closes: bool) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let endpoint = Arc::new(NullServer {
        started: Instant::now(),
        script,
        timing: StageTimings::default().to_header(),
    });
    let app = Router::new()
        .route("/v2/models/{model}", get(model))
        .route("/v2/models/{model}/infer", post(infer))
        .route(&infer_path(), post(infer_over_grpc))
        .route("/v2/repository/models/{model}/load", post(load))
        .route("/v2/repository/models/{model}/unload", post(|| async {}))
        .route("/metrics", get(metrics))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(endpoint);
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", json!({ "listen": address.to_string() }))?;
    stdout.flush()?;
    drop(stdout);
    if until_stdin_closes {
        std::thread::Builder::new().name("stdin".into()).spawn(|| {
            let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
            std::process::exit(0);
        })?;
    }
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        // Otherwise small replies wait for the peer's acknowledgement.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

impl NullServer {
    /// Waits as the script requires.
    async fn wait(&self) {
        if let Some(single_server) = &self.script.single_server {
            tokio::time::sleep_until(single_server.done_at(Instant::now()).into()).await;
        }
        if let Some(stalls) = self.script.stalls {
            let wait = stalls.wait(self.started.elapsed());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Outputs of its model.
pub fn outputs() -> Vec<TensorSpec> {
    vec![TensorSpec {
        name: "y".into(),
        dtype: DataType::Fp32,
        shape: vec![-1, 1],
    }]
}

async fn model(Path(model): Path<String>) -> impl IntoResponse {
    Json(json!({
        "name": model,
        "versions": ["1"],
        "platform": "null",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
        "outputs": outputs(),
        "joined": {"table": "null", "first_id": 0, "rows": ROWS, "row_bytes": 512, "inputs": ["x"]},
    }))
}

async fn infer(State(endpoint): State<Arc<NullServer>>, Path(model): Path<String>, body: Bytes) -> impl IntoResponse {
    let rows = rows(&body);
    drop(body);
    endpoint.wait().await;
    let data = vec!["0.5"; rows].join(",");
    let reply = format!(
        "{{\"model_name\":\"{model}\",\"model_version\":\"1\",\"outputs\":[{{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[{rows},1],\"data\":[{data}]}}]}}"
    );
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (HeaderName::from_static(SERVER_TIMING), endpoint.timing.clone()),
    ];
    (headers, reply)
}

/// Returns the first dimension of the first tensor, without parsing the whole request.
fn rows(body: &[u8]) -> usize {
    const KEY: &[u8] = b"\"shape\":[";
    let start = &body[..body.len().min(SEARCHED_BYTES)];
    let after = start.windows(KEY.len()).position(|window| window == KEY);
    let digits = after.map_or(&[][..], |at| &start[at + KEY.len()..]);
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = std::str::from_utf8(&digits[..len]).ok();
    let read = digits.and_then(|digits| digits.parse().ok());
    read.unwrap_or(1).min(MAX_ROWS)
}

/// Answers over gRPC on the same port: HTTP/2 is detected by its first bytes.
async fn infer_over_grpc(State(endpoint): State<Arc<NullServer>>, body: Bytes) -> impl IntoResponse {
    let request = unframed(&body).and_then(|message| ModelInferRequest::decode(message).ok());
    let request = request.unwrap_or_default();
    let rows = request.inputs.first().and_then(|input| input.shape.first().copied());
    let rows = rows.unwrap_or(1).clamp(1, MAX_ROWS as i64);
    drop(body);
    endpoint.wait().await;
    let reply = ModelInferResponse::from(InferReply {
        model_name: request.model_name,
        model_version: "1".into(),
        id: None,
        outputs: vec![Tensor {
            name: "y".into(),
            dtype: DataType::Fp32,
            shape: vec![rows, 1],
            data: 0.5_f32.to_le_bytes().repeat(rows as usize).into(),
        }],
    });
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let headers = [
        (CONTENT_TYPE, "application/grpc".to_owned()),
        (HeaderName::from_static(SERVER_TIMING), endpoint.timing.clone()),
    ];
    let body = Full::new(framed(&reply)).with_trailers(std::future::ready(Some(Ok(trailers))));
    (headers, axum::body::Body::new(body))
}

/// Answers a load request at once, because there is nothing to load.
async fn load(Path(model): Path<String>) -> impl IntoResponse {
    let version = json!({"version": "1", "state": "READY", "seconds": LoadSeconds::default(), "optimized": false});
    Json(json!({"model": model, "versions": [version]}))
}

async fn metrics() -> String {
    format!(
        "# HELP {BUILD_INFO} What runs.\n# TYPE {BUILD_INFO} gauge\n{BUILD_INFO}{{version=\"{}\",onnxruntime=\"none\",\
         providers=\"none\",model_tier=\"null\",feature_tier=\"null\",feature_location=\"\",feature_notes=\"\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_by_one_a_server_does_what_it_can() {
        let server = SingleServer::new(Duration::from_millis(5), None);
        let now = Instant::now();
        let done: Vec<u128> = (0..4).map(|_| (server.done_at(now) - now).as_millis()).collect();
        assert_eq!(done, [5, 10, 15, 20]);
        let later = now + Duration::from_millis(50);
        assert_eq!((server.done_at(later) - later).as_millis(), 5);
    }

    #[test]
    fn exponential_service_times_have_the_mean_of_the_service() {
        let server = SingleServer::new(Duration::from_millis(5), Some(1));
        let start = Instant::now();
        let last = (0..10_000).map(|_| server.done_at(start)).last().unwrap();
        let mean = (last - start).as_secs_f64() / 10_000.0;
        assert!((mean / 0.005 - 1.0).abs() < 0.04, "{mean}");
    }

    #[test]
    fn requests_in_a_stall_wait_for_its_end() {
        let stalls = Stalls {
            length: Duration::from_millis(600),
            every: Duration::from_millis(5_600),
        };
        let wait = |ms| stalls.wait(Duration::from_millis(ms)).as_millis();
        assert_eq!((wait(0), wait(100), wait(599)), (600, 500, 1));
        assert_eq!((wait(600), wait(5_599)), (0, 0));
        assert_eq!(wait(5_600 * 7 + 250), 350);
    }
}
