//! Servers that `scripts/bench/server` compares the overhead with: the handler that one writes in an afternoon, a
//! handler that only replies, and the model's run in process.
//!
//! ```text
//! peers naive MODEL ADDRESS   axum, serde_json and one mutex around one session: no batching, no checks, no metrics
//! peers bare MODEL ADDRESS    axum with a fixed reply of the same size
//! peers run MODEL RUNS        the session alone: prints the median time of a run of one row, in microseconds
//! ```
//! MODEL is the path of the `mlp` model's graph; ORT_DYLIB_PATH names ONNX Runtime's library.

use anyhow::{Context, Result, anyhow, bail};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use ort::session::Session;
use ort::value::TensorRef;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

#[derive(Deserialize)]
struct Request {
    inputs: Vec<Tensor>,
}

#[derive(Serialize)]
struct Reply {
    model_name: &'static str,
    model_version: &'static str,
    outputs: Vec<Tensor>,
}

#[derive(Serialize, Deserialize)]
struct Tensor {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    data: Vec<f32>,
}

fn infer(session: &Mutex<Session>, request: Request) -> Result<Reply> {
    let input = request.inputs.into_iter().next().context("no input")?;
    let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
    let values = session.run(ort::inputs![TensorRef::from_array_view((
        input.shape,
        input.data.as_slice()
    ))?])?;
    let (shape, data) = values[0].try_extract_tensor::<f32>()?;
    Ok(Reply {
        model_name: "mlp",
        model_version: "1",
        outputs: vec![Tensor {
            name: "output".into(),
            datatype: "FP32".into(),
            shape: shape.to_vec(),
            data: data.to_vec(),
        }],
    })
}

/// Request of both handlers, and reply of the bare one.
const PATH: &str = "/v2/models/mlp/infer";
const FIXED: &str = r#"{"model_name":"mlp","model_version":"1","outputs":[{"name":"output","datatype":"FP32","shape":[1,1],"data":[0.12345678]}]}"#;

fn naive(session: Session) -> Router {
    let handler = async |State(session): State<Arc<Mutex<Session>>>, Json(request): Json<Request>| {
        infer(&session, request).map(Json).map_err(|e| e.to_string())
    };
    Router::new()
        .route(PATH, post(handler))
        .with_state(Arc::new(Mutex::new(session)))
}

fn serve(router: &Router, address: &str) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("{}", listener.local_addr()?);
        let connections = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (connections, service) = (connections.clone(), router.clone());
            tokio::spawn(async move {
                let service = hyper_util::service::TowerToHyperService::new(service);
                let _ = connections
                    .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
                    .await;
            });
        }
    })
}

fn run(mut session: Session, runs: usize) -> Result<()> {
    let row = vec![0.25_f32; 64];
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let began = Instant::now();
        let values = session.run(ort::inputs![TensorRef::from_array_view(([1_i64, 64], row.as_slice()))?])?;
        let _ = values[0].try_extract_tensor::<f32>()?.1[0];
        times.push(began.elapsed());
    }
    times.sort_unstable();
    println!("{}", times[runs / 2].as_nanos() as f64 / 1e3);
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, model, target] = arguments.as_slice() else {
        bail!("usage: peers naive|bare|run MODEL ADDRESS|RUNS");
    };
    let library = std::env::var("ORT_DYLIB_PATH").context("ORT_DYLIB_PATH is not set")?;
    let environment = ort::init_from(library)?.build()?;
    let builder = Session::builder(&environment)?
        .with_intra_threads(1)
        .map_err(|e| anyhow!("{e}"))?;
    let session = { builder }.commit_from_file(model)?;
    match mode.as_str() {
        "naive" => serve(&naive(session), target),
        "bare" => {
            let json = [("content-type", "application/json")];
            let handler = move |_: axum::body::Bytes| async move { (json, FIXED) };
            serve(&Router::new().route(PATH, post(handler)), target)
        }
        "run" => run(session, target.parse().context("RUNS is no number")?),
        other => bail!("no mode `{other}`"),
    }
}
