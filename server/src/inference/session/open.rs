//! Thread of a session: it builds the session (the graph into ONNX Runtime, its signature, its warm-up), reports, waits
//! for its queue, and serves. One named thread owns one ONNX Runtime session, so there is no lock around it.

use super::engine::{Assignment, Engine, RunControl};
use super::pinned::PinnedRun;
use super::warmup::{Warmup, fastest_run};
use crate::batch::runs::ActiveRun;
use crate::inference::runtime::{Graph, GraphSource, Provider, Runtime, Threads};
use crate::inference::tensors;
use crate::request::{Reason, Refusal};
use crate::telemetry::AbandonedSession;
use ort::memory::AllocationDevice;
use ort::value::{Outlet, ValueType};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_formats::model::{SessionTensor, Signature};
use tokio::sync::oneshot;

/// Specification of a session.
#[derive(Clone)]
pub(crate) struct SessionSpec {
    pub(crate) runtime: Runtime,
    pub(crate) graph: Graph,
    pub(crate) source: GraphSource,
    pub(crate) provider: Provider,
    pub(crate) threads: Threads,
    /// Maximum rows of a run; 0 if the model is not batched.
    pub(crate) max_batch_size: u32,
    pub(crate) warmup: Arc<Warmup>,
    /// Time limit for measured runs after the warm-up; `None` measures nothing.
    pub(crate) measure: Option<Duration>,
}

/// Report of a session that is ready.
#[derive(Debug)]
pub(crate) struct SessionReport {
    pub(crate) signature: Signature,
    /// `cpu`, `cuda` or `tensorrt`.
    pub(crate) provider: &'static str,
    /// CUDA device whose memory its inputs can be bound to.
    pub(crate) binds_device: Option<u32>,
    /// True if the session was built from a stored optimised graph.
    pub(crate) optimized: bool,
    pub(crate) session_time: Duration,
    pub(crate) warmup_time: Duration,
    /// Time of a run, if requested and if the model runs on the tried inputs.
    pub(crate) run_time: Option<Duration>,
}

/// Builds a session and warms it up on the calling thread. Before the warm-up, the spec, and with it the model's files,
/// is dropped, and `built` is notified.
///
/// # Errors
/// Fails if ONNX Runtime refuses the graph, if the protocol has no name for a type, if a warm-up sample does not run,
/// or if the warm-up was stopped.
pub(crate) fn open(
    spec: Arc<SessionSpec>,
    control: RunControl,
    built: oneshot::Sender<()>,
) -> Result<(Engine, SessionReport), String> {
    let began = Instant::now();
    let SessionSpec { runtime, graph, .. } = &*spec;
    let opened = runtime.session(graph, &spec.source, spec.threads, spec.provider)?;
    let (session, provider, optimized) = (opened.session, opened.provider, opened.optimized);
    let inputs: Vec<SessionTensor> = session.inputs().iter().map(session_tensor).collect();
    let outputs: Vec<SessionTensor> = session.outputs().iter().map(session_tensor).collect();
    let signature = Signature::of_session(&inputs, &outputs, spec.max_batch_size)?;
    let session_time = began.elapsed();
    let inputs = signature.inputs.iter();
    let buffers = inputs.map(|input| tensors::buffer(input.dtype)).collect();
    // Device of sessions that run on a GPU.
    let device = runtime.providers.cuda.device_id;
    let pinned = match provider {
        "cpu" => None,
        _ => {
            let host = (AllocationDevice::CUDA_PINNED, AllocationDevice::CUDA, device);
            PinnedRun::new(&session, &signature.inputs, &signature.outputs, host).map_err(|e| e.to_string())?
        }
    };
    let binds_device = pinned.as_ref().map(|_| device);
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

/// Starts the named thread of a session: it builds the session, reports, waits for its queue, and serves. `session` is
/// its number in the model.
///
/// # Errors
/// The operating system's, if it refuses the thread; ONNX Runtime's.
pub(crate) fn spawn(
    name: &str,
    session: u32,
    open: impl FnOnce(RunControl, oneshot::Sender<()>) -> Result<(Engine, SessionReport), String> + Send + 'static,
) -> Result<SpawnedSession, String> {
    let control = RunControl::new(session)?;
    let opening = Arc::<OnceLock<AbandonedSession>>::default();
    let stop = StopUnlessServing(Some((Arc::clone(&control.active), Arc::clone(&opening))));
    let (report, opened) = oneshot::channel();
    let (built_by_now, built) = oneshot::channel();
    let (assign, assigned) = std::sync::mpsc::sync_channel::<Assignment>(1);
    let thread = std::thread::Builder::new().name(format!("{name}-{session}"));
    let thread = thread.spawn(move || {
        let opened = catch_unwind(AssertUnwindSafe(|| open(control, built_by_now)))
            .unwrap_or_else(|_| Err("panicked during loading".into()));
        drop(opening);
        let (engine, ready) = match opened {
            Ok((engine, ready)) => (Some(engine), Ok(ready)),
            Err(error) => (None, Err(error)),
        };
        let _ = report.send(ready);
        // Dropped without an assignment if the model was refused.
        if let Some(engine) = engine
            && let Ok(work) = assigned.recv()
        {
            engine.serve(&work);
        }
    });
    Ok(SpawnedSession {
        number: session,
        built,
        opened,
        assign,
        thread: thread.map_err(|e| format!("cannot start a session's thread: {e}"))?,
        stop,
    })
}

/// Thread that builds its session. If dropped before it serves, it ends at its next operator.
pub(crate) struct SpawnedSession {
    /// Number in its model; there may be gaps if a session was opened only for measuring.
    pub(crate) number: u32,
    /// Notified when the session is built; its sender is dropped if that fails.
    pub(crate) built: oneshot::Receiver<()>,
    /// The session's report, or the reason of its failure.
    pub(crate) opened: oneshot::Receiver<Result<SessionReport, String>>,
    assign: std::sync::mpsc::SyncSender<Assignment>,
    thread: JoinHandle<()>,
    stop: StopUnlessServing,
}

impl SpawnedSession {
    /// Sends the thread to its queue. The thread has already reported, so this neither blocks nor fails.
    pub(crate) fn serve(mut self, assignment: Assignment) -> JoinHandle<()> {
        self.stop.0 = None;
        let _ = self.assign.send(assignment);
        self.thread
    }
}

/// Stops the warm-up of a session that is no longer needed, and counts the session as abandoned until its thread, which
/// shares the second value, has opened it.
struct StopUnlessServing(Option<(Arc<ActiveRun>, Arc<OnceLock<AbandonedSession>>)>);

impl Drop for StopUnlessServing {
    fn drop(&mut self) {
        if let Some((active, opening)) = self.0.take() {
            opening.get_or_init(AbandonedSession::new);
            active.stop(Refusal::new(Reason::NotReady, "the load was given up"));
        }
    }
}
