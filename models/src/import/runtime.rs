//! ONNX Runtime: its library, its sessions' tensors, and conversion of raw little-endian elements to its values.

use crate::error::ModelsError;
use crate::onnx::dtype;
use anyhow::{Result, anyhow, bail};
use half::{bf16, f16};
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::builder::SessionBuilder;
use ort::session::{Session, SessionInputValue};
use ort::value::{Outlet, Tensor, ValueType};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use tierlab_formats::model::{SessionTensor, WarmupTensor};
use tierlab_program::onnxruntime::{self, newest_in};
use tierlab_protocol::infer::{BadRequest, bytes_elements};
use tierlab_protocol::tensor::DataType;

/// Returns a builder of sessions with one thread, with which every run gives the same result.
pub(super) fn builder(environment: &Environment) -> ort::Result<SessionBuilder> {
    Ok(Session::builder(environment)?.with_intra_threads(1)?)
}

/// Returns the inputs and the outputs of a session.
pub(super) fn session_tensors(session: &Session) -> (Vec<SessionTensor>, Vec<SessionTensor>) {
    let tensors = |outlets: &[Outlet]| outlets.iter().map(session_tensor).collect::<Vec<_>>();
    (tensors(session.inputs()), tensors(session.outputs()))
}

/// Returns an input or output of a session. ONNX Runtime numbers its element types as ONNX files do.
fn session_tensor(outlet: &Outlet) -> SessionTensor {
    let (shape, symbols) = match outlet.dtype() {
        ValueType::Tensor {
            shape,
            dimension_symbols,
            ..
        } => (shape.to_vec(), dimension_symbols.to_vec()),
        _ => (Vec::new(), Vec::new()),
    };
    let element = outlet.dtype().tensor_type();
    SessionTensor {
        name: outlet.name().to_owned(),
        dtype: element.and_then(|element| dtype(ort::sys::ONNXTensorElementDataType::from(element) as i32)),
        type_name: outlet.dtype().to_string(),
        shape,
        symbols,
    }
}

/// Returns a tensor as an input of a run.
///
/// # Errors
/// Truncated elements, or text that is not UTF-8.
pub fn value(dtype: DataType, tensor: &WarmupTensor) -> Result<SessionInputValue<'static>> {
    let WarmupTensor { shape, data } = tensor;
    let shape = shape.clone();
    macro_rules! numbers {
        ($element:ty) => {{
            let (elements, rest) = data.as_chunks();
            if !rest.is_empty() {
                bail!("{} bytes are not whole elements of {dtype}", data.len());
            }
            let elements: Vec<$element> = elements.iter().map(|bytes| <$element>::from_le_bytes(*bytes)).collect();
            Ok(Tensor::from_array((shape, elements))?.into())
        }};
    }
    match dtype {
        DataType::Bool => {
            let elements: Vec<bool> = data.iter().map(|&byte| byte != 0).collect();
            Ok(Tensor::from_array((shape, elements))?.into())
        }
        DataType::Uint8 => numbers!(u8),
        DataType::Uint16 => numbers!(u16),
        DataType::Uint32 => numbers!(u32),
        DataType::Uint64 => numbers!(u64),
        DataType::Int8 => numbers!(i8),
        DataType::Int16 => numbers!(i16),
        DataType::Int32 => numbers!(i32),
        DataType::Int64 => numbers!(i64),
        DataType::Fp16 => numbers!(f16),
        DataType::Bf16 => numbers!(bf16),
        DataType::Fp32 => numbers!(f32),
        DataType::Fp64 => numbers!(f64),
        DataType::Bytes => {
            let decode = |element: Result<&[u8], BadRequest>| -> Result<String> {
                let text = std::str::from_utf8(element?).map_err(|e| anyhow!("a BYTES element is not UTF-8: {e}"))?;
                Ok(text.to_owned())
            };
            let texts = bytes_elements(data).map(decode).collect::<Result<Vec<_>>>()?;
            Ok(Tensor::from_string_array((shape, texts.as_slice()))?.into())
        }
    }
}

/// Loaded library of this process: ONNX Runtime allows no second environment.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Loads the library at `path`, a file or a folder, or the first in the usual places.
///
/// # Errors
/// A missing library, or one that does not load; the message says how to get it.
pub fn load(path: Option<&Path>) -> Result<Environment, ModelsError> {
    let library = match path {
        Some(folder) if folder.is_dir() => newest_in(folder),
        Some(file) => file.is_file().then(|| file.to_owned()),
        None => onnxruntime::folders().iter().find_map(|folder| newest_in(folder)),
    };
    let advice = "get it with `pip install onnxruntime` or, in a checkout, `scripts/setup onnxruntime`; or name it with --onnxruntime or ORT_DYLIB_PATH";
    let Some(library) = library else {
        let at = path.unwrap_or(Path::new(onnxruntime::SETUP_FOLDER)).display();
        return Err(ModelsError::Usage(format!("no ONNX Runtime at {at}: {advice}")));
    };
    let refused = |e: String| ModelsError::Usage(format!("ONNX Runtime {}: {e}; {advice}", library.display()));
    let mut loaded = LOADED.lock();
    match &*loaded {
        Some((path, environment)) if *path == library => return Ok(environment.clone()),
        Some((path, _)) => return Err(refused(format!("{} is loaded already", path.display()))),
        None => {}
    }
    let builder = ort::init_from(&library).map_err(|e| refused(e.to_string()))?;
    let environment = builder.with_telemetry(false).build();
    let environment = environment.map_err(|e| refused(e.to_string()))?;
    // Its errors are results here, and printed as such.
    environment.set_log_level(LogLevel::Fatal);
    *loaded = Some((library.clone(), environment.clone()));
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_path_is_named_with_how_to_get_the_library() {
        let error = load(Some(Path::new("/nowhere/lib.so"))).err().unwrap().to_string();
        assert!(error.contains("/nowhere/lib.so") && error.contains("scripts/setup onnxruntime"));
    }
}
