//! Scripted server. In: infer requests. Out: a fixed reply at the script's time. A thread with a minimal timer slack
//! keeps the times, because the runtime's timer rounds up to whole milliseconds.

use crate::script::{Player, Script};
use crate::secure::SecureListener;
use axum::extract::{Path as PathPart, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::error::Error;
use std::future::IntoFuture as _;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tierlab_load::pacer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Reply after the request's id.
const REPLY: &str =
    r#""model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.5]}]}"#;
const IDLE: Duration = Duration::from_secs(1);

/// Waiting request: reply time and channel.
type Call = (Instant, oneshot::Sender<()>);

struct Server {
    started: Instant,
    player: Mutex<Player>,
    calls: mpsc::Sender<Call>,
}

/// Serves until stdin closes; also over TLS if there is a file for its certificate.
pub(crate) async fn serve(script: Script, listen: SocketAddr, ca: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let (calls, waiting) = mpsc::channel();
    thread::Builder::new()
        .name("times".into())
        .spawn(move || keep_times(&waiting))?;
    let server = Arc::new(Server {
        started: Instant::now(),
        player: Mutex::new(Player::new(script)),
        calls,
    });
    let empty = || async { "" };
    let app = Router::new()
        .route(
            "/v2",
            get(|| async { Json(json!({"name": "scripted", "version": "1", "extensions": []})) }),
        )
        .route("/v2/health/live", get(empty))
        .route("/v2/health/ready", get(empty))
        .route("/v2/models/{model}", get(metadata))
        .route("/v2/models/{model}/ready", get(empty))
        .route("/v2/models/{model}/config", get(config))
        .route("/v2/models/{model}/infer", post(infer))
        .route("/metrics", get(empty))
        .with_state(server);
    let secure = match ca {
        Some(ca) => Some(SecureListener::bind(listen, ca).await?),
        None => None,
    };
    let said =
        json!({"listen": address.to_string(), "secure": secure.as_ref().map(|secure| secure.address().to_string())});
    println!("{said}");
    io::stdout().flush()?;
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    if let Some(secure) = secure {
        tokio::spawn(axum::serve(secure, app.clone()).into_future());
    }
    Ok(axum::serve(listener, app).await?)
}

async fn infer(State(server): State<Arc<Server>>, body: Bytes) -> impl IntoResponse {
    // perf_analyzer matches replies by their ids.
    let reply = match id(&body) {
        Some(id) => format!("{{\"id\":\"{id}\",{REPLY}"),
        None => format!("{{{REPLY}"),
    };
    drop(body);
    let (call, answered) = oneshot::channel();
    {
        // Arrivals are read under the lock, so that the script sees them in order.
        let mut player = server.player.lock().unwrap_or_else(PoisonError::into_inner);
        let at = player.answered(server.started.elapsed());
        let _ = server.calls.send((server.started + at, call));
    }
    let _ = answered.await;
    ([(CONTENT_TYPE, "application/json")], reply)
}

/// Returns the id of a request without decoding it: these clients send no other key of that name, and no escapes.
fn id(body: &[u8]) -> Option<&str> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, rest) = body.split_once("\"id\":")?;
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

async fn metadata(PathPart(model): PathPart<String>) -> impl IntoResponse {
    let tensor = |name| json!([{"name": name, "datatype": "FP32", "shape": [-1, 1]}]);
    Json(
        json!({"name": model, "versions": ["1"], "platform": "scripted", "inputs": tensor("x"), "outputs": tensor("y")}),
    )
}

/// Answers the request that perf_analyzer sends before it measures.
async fn config(PathPart(model): PathPart<String>) -> impl IntoResponse {
    let tensor = |name| json!([{"name": name, "data_type": "TYPE_FP32", "dims": [1]}]);
    Json(json!({
        "name": model, "platform": "", "backend": "scripted", "max_batch_size": 64,
        "input": tensor("x"), "output": tensor("y"),
    }))
}

/// Answers calls at their times; calls of one time in the order of arrival.
fn keep_times(calls: &mpsc::Receiver<Call>) {
    let _ = pacer::minimal_timer_slack();
    let mut order = 0_u64;
    let mut times = BinaryHeap::new();
    let mut waiting = std::collections::HashMap::new();
    loop {
        let pause = times.peek().map_or(IDLE, |Reverse((at, _)): &Reverse<(Instant, u64)>| {
            at.saturating_duration_since(Instant::now())
        });
        match calls.recv_timeout(pause) {
            Ok((at, call)) => {
                times.push(Reverse((at, order)));
                waiting.insert(order, call);
                order += 1;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(&Reverse((at, order))) = times.peek()
            && at <= Instant::now()
        {
            times.pop();
            if let Some(call) = waiting.remove(&order) {
                // The client may be gone.
                let _ = call.send(());
            }
        }
    }
}
