//! Trial of a model before its import, as the server loads it: a session of ONNX Runtime, its tensors against the
//! config, the warm-up.
//!
//! In: a model's folder as it will be in the repository. Out: the graph's inputs and outputs, or the reason for which
//! the server would refuse it. The checks themselves are those of [`tierlab_formats::model`], which the server uses
//! too.

use super::ConfigBundle;
use super::runtime::{self, session_tensors, value};
use crate::error::ModelsError;
use anyhow::anyhow;
use ort::environment::Environment;
use ort::session::{Session, SessionInputValue};
use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tierlab_formats::model::{MODEL_FILE, PROBE_ROWS, Signature, WarmupTensor, sample_inputs, zero_inputs};
use tierlab_formats::onnx::External;

/// Tensor size from which ONNX Runtime does not read weights from memory; the server maps their files as well.
const MIN_MAPPED_TENSOR_BYTES: u64 = 1 << 31;

/// Tries the model in a version's folder; `library` is ONNX Runtime's, or its folder. Returns the signature of the graph,
/// before the config, and the reason for which a run on zeros failed; the model is served all the same.
///
/// # Errors
/// No ONNX Runtime, or a model that the server would refuse.
pub(super) fn run(
    version: &Path,
    external: &External,
    bundle: &ConfigBundle,
    library: Option<&Path>,
) -> Result<(Signature, Option<String>), ModelsError> {
    let environment = runtime::load(library).map_err(|error| {
        ModelsError::Usage(format!(
            "{error}; or pass --unchecked, and check at the server's start that it serves the model"
        ))
    })?;
    let refused = |error: anyhow::Error| ModelsError::Refused(error.to_string());
    let mut session = open(&environment, version, external)?;
    let (inputs, outputs) = session_tensors(&session);
    let signature = Signature::of_session(&inputs, &outputs, bundle.config.max_batch_size).map_err(refused)?;
    let mut served_signature = signature.clone();
    served_signature.declare(&bundle.config).map_err(refused)?;
    served_signature.joined(&bundle.config).map_err(refused)?;
    let zero_run_error = warm_up(&mut session, &signature, bundle).map_err(refused)?;
    Ok((signature, zero_run_error))
}

/// Builds the session as the server does: weights from memory, or mapped if a tensor is too large for that.
fn open(environment: &Environment, version: &Path, external: &External) -> Result<Session, ModelsError> {
    let graph = &version.join(MODEL_FILE);
    let refused = |e: ort::Error| {
        let e = e.to_string();
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
            "ONNX Runtime refuses the graph, and so would the server: {e}{hint}"
        ))
    };
    let mut builder = runtime::builder(environment).map_err(refused)?;
    if external.largest_tensor >= MIN_MAPPED_TENSOR_BYTES {
        return builder.commit_from_file(graph).map_err(refused);
    }
    for name in external.files.keys() {
        let path = version.join(name);
        let bytes: Arc<[u8]> = fs::read(&path).map_err(ModelsError::io("read", &path))?.into();
        let with_file = builder.with_external_initializer_file_in_memory(name, bytes);
        builder = with_file.map_err(|e| refused(e.into()))?;
    }
    let onnx = fs::read(graph).map_err(ModelsError::io("read", graph))?;
    builder.commit_from_memory(&onnx).map_err(refused)
}

/// Makes the server's warm-up runs. Returns the reason if a run on zeros fails.
fn warm_up(session: &mut Session, signature: &Signature, bundle: &ConfigBundle) -> anyhow::Result<Option<String>> {
    let samples = bundle.config.graph_warmup();
    let mut zero_run_error = None;
    let max = bundle.config.max_batch_size;
    let probe = (max > 1 && samples.iter().all(|sample| sample.batch_size <= 1)).then(|| PROBE_ROWS.min(max));
    let single_row = samples.is_empty().then_some(1);
    for rows in single_row.into_iter().chain(probe) {
        let inputs = zero_inputs(signature, rows).map_err(RunError::Failed);
        match inputs.and_then(|inputs| run_once(session, signature, inputs, rows)) {
            Err(RunError::Failed(error)) => zero_run_error = zero_run_error.or(Some(error.to_string())),
            result => result?,
        }
    }
    for sample in &samples {
        sample_inputs(sample, &bundle.warmup, signature)
            .and_then(|inputs| Ok(run_once(session, signature, inputs, sample.batch_size)?))
            .map_err(|what| anyhow!("warm-up `{}`: {what}", sample.name))?;
    }
    Ok(zero_run_error)
}

/// Reason for which a run of the graph is refused.
#[derive(Debug, thiserror::Error)]
enum RunError {
    /// Failure on these inputs.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
    /// The graph runs, but an output has another number of rows than the inputs.
    #[error(
        "output `{name}` has shape {shape:?} for a batch of {rows} rows; its first dimension is not a batch: set \
         `max_batch_size` to 0 in the model's config"
    )]
    Unbatched { name: String, shape: Vec<i64>, rows: u32 },
}

/// Runs the graph once.
fn run_once(
    session: &mut Session,
    signature: &Signature,
    inputs: Vec<WarmupTensor>,
    rows: u32,
) -> Result<(), RunError> {
    let values = signature.inputs.iter().zip(inputs).map(|(spec, input)| {
        let value = value(spec.dtype, &input)?;
        Ok((Cow::Borrowed(spec.name.as_str()), value))
    });
    let values = values.collect::<anyhow::Result<Vec<(Cow<'_, str>, SessionInputValue<'_>)>>>()?;
    let outputs = session.run(values).map_err(anyhow::Error::from)?;
    for (index, spec) in signature.outputs.iter().enumerate().filter(|_| signature.batched) {
        let shape = outputs[index].dtype().tensor_shape().map(|shape| shape.to_vec());
        let shape = shape.unwrap_or_default();
        if shape.first() != Some(&i64::from(rows)) {
            let name = spec.name.clone();
            return Err(RunError::Unbatched { name, shape, rows });
        }
    }
    Ok(())
}
