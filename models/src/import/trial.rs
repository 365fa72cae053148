//! Trial of a model before its import, as the server loads it: a session of ONNX Runtime, its tensors against the
//! config, the warm-up.
//!
//! In: a model's folder as it will be in the repository. Out: the graph's inputs and outputs, or the reason for which
//! the server would refuse it. The checks themselves are those of [`tierlab_formats::model`], which the server uses
//! too.

use super::runtime::{self, data_type, value};
use crate::error::ModelsError;
use bytes::Bytes;
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use ort::value::{Outlet, ValueType};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tierlab_formats::model::{
    ModelConfig, PROBE_ROWS, SessionTensor, Signature, WarmupSample, WarmupTensor, sample_inputs, zero_inputs,
};
use tierlab_formats::onnx::External;

/// Tensor size from which ONNX Runtime does not read weights from memory; the server maps their files as well.
const NEVER_FROM_MEMORY_BYTES: u64 = 1 << 31;

/// Model to try.
pub(super) struct Candidate<'a> {
    /// Folder with its `model.onnx` and the files of its weights.
    pub(super) version: &'a Path,
    pub(super) external: &'a External,
    pub(super) config: &'a ModelConfig,
    /// Files of the warm-up's samples, by name.
    pub(super) warmup: &'a BTreeMap<String, Bytes>,
}

/// Result of a trial.
#[derive(Debug)]
pub(super) struct Trial {
    /// Signature of the graph, before the config.
    pub(super) signature: Signature,
    /// Reason for which a run on zeros failed; the model is served all the same.
    pub(super) not_on_zeros: Option<String>,
}

/// Tries a model; `library` is ONNX Runtime's, or its folder.
///
/// # Errors
/// No ONNX Runtime, or a model that the server would refuse.
pub(super) fn run(candidate: &Candidate<'_>, library: Option<&Path>) -> Result<Trial, ModelsError> {
    let environment = runtime::load(library).map_err(|error| match error {
        ModelsError::Usage(what) => ModelsError::Usage(format!(
            "{what}; or give --unchecked, and see at the server's start whether it serves the model"
        )),
        error => error,
    })?;
    let at = candidate.version.join(tierlab_formats::model::MODEL_FILE);
    let refused = ModelsError::Refused;
    let mut session = open(&environment, candidate, &at)?;
    let tensors = |outlets: &[Outlet]| outlets.iter().map(session_tensor).collect::<Vec<_>>();
    let max_batch_size = candidate.config.max_batch_size;
    let (inputs, outputs) = (tensors(session.inputs()), tensors(session.outputs()));
    let signature = Signature::of_session(&inputs, &outputs, max_batch_size).map_err(refused)?;
    let mut served = signature.clone();
    served.declare(candidate.config).map_err(refused)?;
    served.joined(candidate.config).map_err(refused)?;
    let not_on_zeros = warm_up(&mut session, &signature, candidate).map_err(refused)?;
    Ok(Trial {
        signature,
        not_on_zeros,
    })
}

/// Builds the session as the server does: weights from memory, or mapped if a tensor is too large for that.
fn open(environment: &Environment, candidate: &Candidate<'_>, graph: &Path) -> Result<Session, ModelsError> {
    let refused = |e: String| {
        let hint = if e.contains("Could not find an implementation") {
            ". Its CPU build has no kernel for that operator with these types: export the model with other ones, FP32 in the place \
             of BF16 or FP16 say, or another opset"
        } else if e.contains("Unsupported model IR version") {
            ". The model's format is newer than this ONNX Runtime: set `model.ir_version` to the largest one it takes and save \
             the model again (`onnx.save`), or get a newer ONNX Runtime and name it with --onnxruntime"
        } else {
            ""
        };
        ModelsError::Refused(format!(
            "ONNX Runtime does not take the graph, and so the server does not: {e}{hint}"
        ))
    };
    let mut builder = Session::builder(environment)
        .map_err(|e| refused(e.to_string()))?
        .with_intra_threads(1)
        .map_err(|e| refused(e.to_string()))?;
    if candidate.external.largest_tensor >= NEVER_FROM_MEMORY_BYTES {
        return builder.commit_from_file(graph).map_err(|e| refused(e.to_string()));
    }
    for name in candidate.external.files.keys() {
        let path = candidate.version.join(name);
        let bytes: Arc<[u8]> = fs::read(&path).map_err(ModelsError::io("read", &path))?.into();
        builder = builder
            .with_external_initializer_file_in_memory(name, bytes)
            .map_err(|e| refused(e.to_string()))?;
    }
    let onnx = fs::read(graph).map_err(ModelsError::io("read", graph))?;
    builder.commit_from_memory(&onnx).map_err(|e| refused(e.to_string()))
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
        dtype: outlet.dtype().tensor_type().and_then(data_type),
        type_words: outlet.dtype().to_string(),
        shape,
        symbols,
    }
}

/// Reason for a failed run.
enum TrialFailure {
    /// The graph does not run on these inputs.
    Run(String),
    /// The graph runs, but its outputs have another number of rows than its inputs.
    Rows(String),
}

impl TrialFailure {
    fn told(self) -> String {
        match self {
            Self::Run(what) | Self::Rows(what) => what,
        }
    }
}

/// Makes the server's warm-up runs. Returns the reason if a run on zeros fails.
fn warm_up(session: &mut Session, signature: &Signature, candidate: &Candidate<'_>) -> Result<Option<String>, String> {
    let samples = candidate.config.graph_warmup();
    let mut not_on_zeros = None;
    let max = candidate.config.max_batch_size;
    let probe = (max > 1 && samples.iter().all(|sample| sample.batch_size <= 1)).then(|| PROBE_ROWS.min(max));
    let alone = samples.is_empty().then_some(1);
    for rows in alone.into_iter().chain(probe) {
        match zero_inputs(signature, rows)
            .map_err(TrialFailure::Run)
            .and_then(|inputs| run_once(session, signature, inputs, rows))
        {
            Ok(()) => {}
            Err(TrialFailure::Rows(what)) => return Err(what),
            Err(TrialFailure::Run(what)) => not_on_zeros = not_on_zeros.or(Some(what)),
        }
    }
    for sample in &samples {
        sample_run(session, signature, sample, candidate.warmup)
            .map_err(|what| format!("warm-up `{}`: {what}", sample.name))?;
    }
    Ok(not_on_zeros)
}

fn sample_run(
    session: &mut Session,
    signature: &Signature,
    sample: &WarmupSample,
    files: &BTreeMap<String, Bytes>,
) -> Result<(), String> {
    let inputs = sample_inputs(sample, files, signature)?;
    run_once(session, signature, inputs, sample.batch_size).map_err(TrialFailure::told)
}

fn run_once(
    session: &mut Session,
    signature: &Signature,
    inputs: Vec<WarmupTensor>,
    rows: u32,
) -> Result<(), TrialFailure> {
    let values = signature.inputs.iter().zip(inputs).map(|(spec, input)| {
        let value = value(spec.dtype, &input)?;
        Ok((Cow::Borrowed(spec.name.as_str()), value))
    });
    let values: Vec<(Cow<'_, str>, SessionInputValue<'_>)> =
        values.collect::<Result<_, String>>().map_err(TrialFailure::Run)?;
    let outputs = session.run(values).map_err(|e| TrialFailure::Run(e.to_string()))?;
    for (index, spec) in signature.outputs.iter().enumerate().filter(|_| signature.batched) {
        let shape = outputs[index].dtype().tensor_shape().map(|shape| shape.to_vec());
        let shape = shape.unwrap_or_default();
        if shape.first() != Some(&i64::from(rows)) {
            return Err(TrialFailure::Rows(format!(
                "output `{}` has shape {shape:?} for a batch of {rows} rows: its first dimension is no batch, and \
                 `max_batch_size` must be 0 in the model's config",
                spec.name
            )));
        }
    }
    Ok(())
}
