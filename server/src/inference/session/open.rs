//! Building a session on the thread that will own it: the graph into ONNX Runtime, its signature, its warm-up.

use super::engine::Engine;
use super::interrupt::RunControl;
use super::pinned::{Host, PinnedRun};
use super::warmup::{Warmup, fastest_run};
use crate::inference::runtime::provider::Provider;
use crate::inference::runtime::{Built, Graph, GraphSource, Runtime, Threads};
use crate::inference::tensors;
use ort::session::Session;
use ort::value::{Outlet, ValueType};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_formats::model::{SessionTensor, Signature};
use tokio::sync::oneshot;

/// Specification of a session.
pub(crate) struct SessionSpec {
    pub(crate) runtime: Runtime,
    pub(crate) graph: Graph,
    pub(crate) source: GraphSource,
    pub(crate) provider: Provider,
    pub(crate) threads: Threads,
    /// Rows of a run at most; 0 where the model is not batched.
    pub(crate) max_batch_size: u32,
    pub(crate) warmup: Arc<Warmup>,
    /// Time to measure runs for after the warm-up; `None` measures nothing.
    pub(crate) measure: Option<Duration>,
}

impl SessionSpec {
    /// The same with other threads, and without writing the optimised graph down.
    pub(crate) fn with_threads(&self, threads: Threads, measure: Option<Duration>) -> Self {
        let source = match &self.source {
            GraphSource::Saving(_) => GraphSource::Original,
            source => source.clone(),
        };
        Self {
            runtime: self.runtime.clone(),
            graph: self.graph.clone(),
            source,
            threads,
            warmup: Arc::clone(&self.warmup),
            measure,
            ..*self
        }
    }
}

/// Report of a session that is ready.
#[derive(Debug)]
pub(crate) struct SessionReport {
    pub(crate) signature: Signature,
    /// `cpu`, `cuda` or `tensorrt`.
    pub(crate) provider: &'static str,
    /// The CUDA device whose memory its inputs can be bound to.
    pub(crate) binds_device: Option<u32>,
    /// True if the session was built from a graph that had been optimised before.
    pub(crate) optimized: bool,
    pub(crate) session_time: Duration,
    pub(crate) warmup_time: Duration,
    /// The time of one run, where it was asked for and the model runs on what it was tried with.
    pub(crate) run_time: Option<Duration>,
}

/// Builds a session and warms it up on the calling thread. The spec, and with it the model's files, is dropped before the
/// warm-up; `built` is told before it.
///
/// # Errors
/// A refusal by ONNX Runtime, a type that the protocol has no name for, a warm-up sample that does not run, or a warm-up that
/// was stopped.
pub(crate) fn open(
    spec: Arc<SessionSpec>,
    control: RunControl,
    built: oneshot::Sender<()>,
) -> Result<(Engine, SessionReport), String> {
    let began = Instant::now();
    let SessionSpec { runtime, graph, .. } = &*spec;
    let Built {
        session,
        provider,
        optimized,
    } = runtime.session(graph, &spec.source, spec.threads, spec.provider)?;
    let signature = signature_of(&session, spec.max_batch_size)?;
    let session_time = began.elapsed();
    let buffers = signature
        .inputs
        .iter()
        .map(|input| tensors::buffer(input.dtype))
        .collect();
    let pinned = match provider {
        "cpu" => None,
        _ => {
            let host = Host::Cuda(runtime.cuda_device());
            PinnedRun::new(&session, &signature.inputs, &signature.outputs, host).map_err(|e| e.to_string())?
        }
    };
    let binds_device = pinned.as_ref().map(|_| runtime.cuda_device());
    let mut engine = Engine {
        session,
        signature: signature.clone(),
        buffers,
        admission: None,
        pinned,
        control,
    };
    let (warmup, measured) = (Arc::clone(&spec.warmup), spec.measure);
    let max_batch_size = spec.max_batch_size;
    drop(spec);
    // If the load was given up, nobody receives this: the warm-up is stopped.
    let _ = built.send(());
    let began = Instant::now();
    warmup.run(&mut engine, max_batch_size)?;
    let warmup_time = began.elapsed();
    let run_time = measured.and_then(|budget| fastest_run(&mut engine, &warmup, budget));
    let report = SessionReport {
        signature,
        provider,
        binds_device,
        optimized,
        session_time,
        warmup_time,
        run_time,
    };
    Ok((engine, report))
}

/// Inputs and outputs of the graph.
fn signature_of(session: &Session, max_batch_size: u32) -> Result<Signature, String> {
    let inputs: Vec<SessionTensor> = session.inputs().iter().map(session_tensor).collect();
    let outputs: Vec<SessionTensor> = session.outputs().iter().map(session_tensor).collect();
    Signature::of_session(&inputs, &outputs, max_batch_size)
}

fn session_tensor(outlet: &Outlet) -> SessionTensor {
    let (shape, symbols) = match outlet.dtype() {
        ValueType::Tensor {
            shape,
            dimension_symbols,
            ..
        } => (shape.to_vec(), dimension_symbols.to_vec()),
        _ => (Vec::new(), Vec::new()),
    };
    SessionTensor {
        name: outlet.name().to_owned(),
        dtype: outlet.dtype().tensor_type().and_then(tensors::data_type),
        type_words: outlet.dtype().to_string(),
        shape,
        symbols,
    }
}
