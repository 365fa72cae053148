//! Savings of the short way to the most frequent route: the same infer requests by it and by axum's router, of as many routes
//! as the server has. Both end in a handler that does nothing.
//!
//! `cargo run --release -p tierlab-server --example router`

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode, Uri};
use models::served_models::Target;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::Service;

mod models;
#[path = "../../src/front/http/shortcut.rs"]
mod shortcut;

/// The server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of each way, in turn; the median counts.
const ROUNDS: usize = 41;
/// The least time of a round.
const ROUND: Duration = Duration::from_millis(25);
/// Routes beside inference, as far as a router sees them.
const OTHERS: [&str; 28] = [
    "/",
    "/v2",
    "/v2/",
    "/v2/health/live",
    "/v2/health/ready",
    "/openapi.json",
    "/metrics",
    "/v2/models/stats",
    "/v2/models/{model}",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/config",
    "/v2/models/{model}/stats",
    "/v2/models/{model}/trace/setting",
    "/v2/models/{model}/versions/{version}",
    "/v2/models/{model}/versions/{version}/ready",
    "/v2/models/{model}/versions/{version}/config",
    "/v2/models/{model}/versions/{version}/stats",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/v2/repository/models/{model}/unload",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/systemsharedmemory/status",
    "/v2/systemsharedmemory/unregister",
    "/v2/systemsharedmemory/region/{region}/status",
    "/v2/cudasharedmemory/status",
    "/v2/cudasharedmemory/unregister",
    "/v2/cudasharedmemory/region/{region}/status",
];

/// State of the server as a handler sees it.
type Shared = Arc<StatusCode>;

async fn answer(state: &Shared, target: &Target, request: Request) -> Response {
    black_box((&target.model, &target.version, request));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = **state;
    response
}

async fn infer(State(state): State<Shared>, Path(target): Path<Target>, request: Request) -> Response {
    answer(&state, &target, request).await
}

async fn other() -> StatusCode {
    StatusCode::NOT_FOUND
}

fn router(state: &Shared) -> Router {
    let mut router = Router::new()
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer));
    for path in OTHERS {
        router = router.route(path, get(other));
    }
    let router = router.fallback(other).method_not_allowed_fallback(other);
    router.with_state(Arc::clone(state))
}

/// Both ways end in a boxed future, as in the server.
async fn answered(short: bool, state: &Shared, router: &Router, uri: &Uri) -> Response {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    if short {
        let target = shortcut::target(request.method(), request.uri().path());
        let target = target.expect("the path of an infer request");
        return Box::pin(answer(state, &target, request)).await;
    }
    let Ok(response) = Box::pin(async { router.clone().call(request).await }).await;
    response
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without timers and sockets");
    let state = Arc::new(StatusCode::OK);
    let router = router(&state);
    println!("{:<36} {:>8} {:>9} {:>9}", "path", "short ns", "router ns", "saved ns");
    for path in ["/v2/models/ctr/infer", "/v2/models/ctr/versions/3/infer"] {
        let uri = Uri::from_static(path);
        let round = |short: bool| {
            runtime.block_on(async {
                let began = Instant::now();
                let mut requests = 0_u32;
                while began.elapsed() < ROUND {
                    for _ in 0..64 {
                        let response = answered(short, &state, &router, black_box(&uri)).await;
                        assert_eq!(response.status(), StatusCode::OK);
                    }
                    requests += 64;
                }
                began.elapsed().as_secs_f64() / f64::from(requests)
            })
        };
        let (mut short, mut routed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            short.push(round(true));
            routed.push(round(false));
        }
        let (short, routed) = (median(short) * 1e9, median(routed) * 1e9);
        println!("{path:<36} {short:>8.0} {routed:>9.0} {:>9.0}", routed - short);
    }
}
