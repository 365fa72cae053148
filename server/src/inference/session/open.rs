//! Thread of a session: it builds the session (the graph into ONNX Runtime, its signature, its warm-up), reports, waits
//! for its queue, and serves. One named thread owns one ONNX Runtime session, so there is no lock around it.
//!
//! Warm-up: runs before a session takes requests, since the first run allocates and plans, and a version that cannot
//! run is refused. Without samples there is one run on zeros. A graph that cannot run on zeros is served all the same,
//! because zeros may be invalid input. If the model is batched, one run has several rows: a graph whose outputs have
//! another number of rows is refused. A warm-up that takes too long is stopped from outside. After it, if requested,
//! the fastest of a few runs is timed: other work on the machine only makes a run slower.

use super::engine::{Assignment, Engine, RunControl};
use super::padding::padded_rows;
use super::pinned::PinnedRun;
use super::{Fault, RunError};
use crate::batch::runs::ActiveRun;
use crate::host::memory::is_for_memory;
use crate::inference::runtime::{Graph, GraphSource, Provider, Runtime, Threads};
use crate::inference::tensors;
use crate::request::{Part, Reason, Refusal};
use crate::telemetry::AbandonedSession;
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use ort::memory::AllocationDevice;
use ort::value::{Outlet, ValueType};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_formats::model::{
    PROBE_ROWS, SessionTensor, Signature, WarmupSample, WarmupTensor, sample_inputs, zero_bytes, zero_inputs,
};
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
) -> Result<(Engine, SessionReport)> {
    let SessionSpec { runtime, graph, .. } = &*spec;
    let opened = runtime.session(graph, &spec.source, spec.threads, spec.provider)?;
    let (session, provider, optimized) = (opened.session, opened.provider, opened.optimized);
    let inputs: Vec<SessionTensor> = session.inputs().iter().map(session_tensor).collect();
    let outputs: Vec<SessionTensor> = session.outputs().iter().map(session_tensor).collect();
    let signature = Signature::of_session(&inputs, &outputs, spec.max_batch_size)?;
    let inputs = signature.inputs.iter();
    let buffers = inputs.map(|input| tensors::buffer(input.dtype)).collect();
    // Device of sessions that run on a GPU.
    let device = runtime.providers.cuda.device_id;
    let pinned = match provider {
        "cpu" => None,
        _ => {
            let host = (AllocationDevice::CUDA_PINNED, AllocationDevice::CUDA, device);
            PinnedRun::new(&session, &signature.inputs, &signature.outputs, host)?
        }
    };
    let binds_device = pinned.as_ref().map(|_| device);
    let mut engine = Engine {
        session,
        signature: signature.clone(),
        buffers,
        admission: None,
        pinned,
        padded_rows: None,
        control,
    };
    let (warmup, measured) = (Arc::clone(&spec.warmup), spec.measure);
    let max_batch_size = spec.max_batch_size;
    let pad_batches = runtime.providers.cuda.pad_batches;
    drop(spec);
    // If the load was given up, nobody receives this: the warm-up is stopped.
    let _ = built.send(());
    let began = Instant::now();
    warmup.run(&mut engine, max_batch_size)?;
    if pad_batches && engine.pinned.is_some() {
        engine.padded_rows = padded_rows(max_batch_size, |rows| time_zeros(&mut engine, rows));
    }
    let warmup_time = began.elapsed();
    let run_time = measured.and_then(|budget| fastest_run(&mut engine, &warmup, budget));
    let report = SessionReport {
        signature,
        provider,
        binds_device,
        optimized,
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
        type_name: outlet.dtype().to_string(),
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
    open: impl FnOnce(RunControl, oneshot::Sender<()>) -> Result<(Engine, SessionReport)> + Send + 'static,
) -> Result<SpawnedSession> {
    let control = RunControl::new(session)?;
    let opening = Arc::<OnceLock<AbandonedSession>>::default();
    let stop = StopOnDrop(Some((Arc::clone(&control.active), Arc::clone(&opening))));
    let (report, opened) = oneshot::channel();
    let (built_by_now, built) = oneshot::channel();
    let (assign, assigned) = std::sync::mpsc::sync_channel::<Assignment>(1);
    let thread = std::thread::Builder::new().name(format!("{name}-{session}"));
    let thread = thread.spawn(move || {
        let opened = catch_unwind(AssertUnwindSafe(|| open(control, built_by_now)))
            .unwrap_or_else(|_| Err(anyhow!("panicked during loading")));
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
        thread: thread.map_err(|e| anyhow!("cannot start a session's thread: {e}"))?,
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
    pub(crate) opened: oneshot::Receiver<Result<SessionReport>>,
    assign: std::sync::mpsc::SyncSender<Assignment>,
    thread: JoinHandle<()>,
    stop: StopOnDrop,
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
struct StopOnDrop(Option<(Arc<ActiveRun>, Arc<OnceLock<AbandonedSession>>)>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some((active, opening)) = self.0.take() {
            opening.get_or_init(AbandonedSession::new);
            active.stop(Refusal::new(Reason::NotReady, "the load was given up"));
        }
    }
}

/// Warm-up of a model.
#[derive(Debug, Default)]
pub(crate) struct Warmup {
    pub(crate) samples: Vec<WarmupSample>,
    /// Files of samples, by name.
    pub(crate) files: BTreeMap<String, Bytes>,
}

impl Warmup {
    /// Runs every sample.
    ///
    /// # Errors
    /// Fails at the first sample that does not match or run, or if an output of a batched model has other rows than its
    /// inputs.
    pub(super) fn run(&self, engine: &mut Engine, max_batch_size: u32) -> Result<()> {
        // ONNX Runtime plans memory by the first run of each shape, and treats shapes that differ in the rows of an
        // even number of inputs as equal. So the first run has as many rows as most requests.
        if self.samples.is_empty() {
            run_zeros(engine, 1)?;
        }
        for sample in &self.samples {
            let failed = |why: &dyn std::fmt::Display| anyhow!("warm-up `{}`: {why}", sample.name);
            let (parts, rows) = self.parts(engine, sample).map_err(|error| failed(&error))?;
            for _ in 0..sample.count {
                run_once(engine, &parts, rows).map_err(|error| failed(&error.message))?;
            }
        }
        if !self.samples.iter().any(|sample| sample.batch_size > 1) && max_batch_size > 1 {
            run_zeros(engine, PROBE_ROWS.min(max_batch_size))?;
        }
        Ok(())
    }

    /// Inputs of a sample, and their number of rows.
    fn parts(&self, engine: &Engine, sample: &WarmupSample) -> Result<(Vec<Part>, usize)> {
        let inputs = sample_inputs(sample, &self.files, &engine.signature)?;
        let rows = if engine.signature.batched { sample.batch_size } else { 1 };
        Ok((inputs.into_iter().map(part).collect(), rows as usize))
    }
}

fn part(WarmupTensor { shape, data }: WarmupTensor) -> Part {
    let data = data.into();
    Part { shape, data }
}

/// Runs the model on `rows` rows of zeros.
///
/// # Errors
/// Fails if outputs have another number of rows, when stopped, or without memory. If the model does not run at all,
/// only logs it.
fn run_zeros(engine: &mut Engine, rows: u32) -> Result<()> {
    let run = zero_inputs(&engine.signature, rows)
        .map(|inputs| inputs.into_iter().map(part).collect::<Vec<_>>())
        .map_err(RunError::from)
        .and_then(|parts| run_once(engine, &parts, rows as usize));
    match run {
        Err(error) if error.fault == Fault::Rows || is_for_memory(&error.message) => bail!(error.message),
        Err(error) => {
            if let Some(refusal) = engine.control.active.stopped() {
                bail!(refusal.message);
            }
            tracing::warn!(error = %error.message, rows, "model does not run on zeros: not warmed up");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Time of a run of so many rows of zeros; `None` if the model does not run on them.
fn time_zeros(engine: &mut Engine, rows: u32) -> Option<Duration> {
    let inputs = zero_inputs(&engine.signature, rows).ok()?;
    let parts: Vec<Part> = inputs.into_iter().map(part).collect();
    let began = Instant::now();
    run_once(engine, &parts, rows as usize).ok()?;
    Some(began.elapsed())
}

fn run_once(engine: &mut Engine, parts: &[Part], rows: usize) -> Result<(), RunError> {
    let active = Arc::clone(&engine.control.active);
    let begun = active.begin(&mut [], Instant::now());
    begun.map_err(|e| RunError::new(Fault::Run, e.message))?;
    let run = catch_unwind(AssertUnwindSafe(|| engine.run_parts(&[parts], &[rows])));
    active.end(&mut []);
    match run {
        Ok(run) => run.map(drop),
        Err(_) => Err(RunError::new(Fault::Run, "the run panicked")),
    }
}

/// Maximum runs.
const MAX_RUNS: usize = 5;
/// Sizes tried for free dimensions after the first: a short text, a small picture. If neither runs, the warm-up's sizes
/// are used.
const FREE_DIMS: [i64; 2] = [64, 1];

/// Time of a run. Only the first run may start after `budget`.
pub(super) fn fastest_run(engine: &mut Engine, warmup: &Warmup, budget: Duration) -> Option<Duration> {
    let began = Instant::now();
    if let Some(sample) = warmup.samples.first() {
        let (parts, rows) = warmup.parts(engine, sample).ok()?;
        return fastest(engine, &parts, rows, began + budget);
    }
    FREE_DIMS.into_iter().find_map(|free| {
        let parts = zeros(engine, free)?;
        fastest(engine, &parts, 1, began + budget)
    })
}

fn fastest(engine: &mut Engine, parts: &[Part], rows: usize, deadline: Instant) -> Option<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..MAX_RUNS {
        let began = Instant::now();
        run_once(engine, parts, rows).ok()?;
        best = best.min(began.elapsed());
        if Instant::now() >= deadline {
            break;
        }
    }
    Some(best)
}

/// A row of zeros; free dimensions after the first have size `free`.
fn zeros(engine: &Engine, free: i64) -> Option<Vec<Part>> {
    let inputs = engine.signature.inputs.iter();
    let part = inputs.map(|spec| {
        let dims = spec.shape.iter().enumerate();
        let shape: Vec<i64> = dims
            .map(|(at, &dim)| match (at, dim) {
                (_, 0..) => dim,
                (0, _) => 1,
                _ => free,
            })
            .collect();
        let data = zero_bytes(spec.dtype, &shape).ok()?.into();
        Some(Part { shape, data })
    });
    part.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::session::tests as engines;

    #[test]
    fn a_run_is_timed_and_a_budget_that_is_out_leaves_one() {
        let [mut engine, _] = engines::engines();
        for budget in [Duration::ZERO, Duration::from_secs(1)] {
            let time = fastest_run(&mut engine, &Warmup::default(), budget);
            assert!(time.is_some_and(|time| time > Duration::ZERO));
        }
    }

    #[test]
    fn what_does_not_run_has_no_time() {
        let [mut engine, _] = engines::engines();
        engine.signature.inputs[0].shape = vec![-1, engines::WIDTH as i64 + 1];
        assert_eq!(
            fastest_run(&mut engine, &Warmup::default(), Duration::from_secs(1)),
            None
        );
        // A free dimension that the graph wants as 64.
        engine.signature.inputs[0].shape = vec![-1, -1];
        assert!(fastest_run(&mut engine, &Warmup::default(), Duration::from_secs(1)).is_some());
    }
}
