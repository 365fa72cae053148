//! Loads ONNX Runtime's library: the named one, or the first in the usual places.

use crate::error::ModelsError;
use ort::environment::Environment;
use ort::logging::LogLevel;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tierlab_program::onnxruntime::{self, newest_in};

/// Loaded library of this process: ONNX Runtime allows no second environment.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Loads the library at `path`, a file or a folder, or the first in the usual places.
///
/// # Errors
/// No library is there, or it does not load; the message says how to get it.
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
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
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
