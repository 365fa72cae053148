//! Finding ONNX Runtime's library and loading it: the one that was named, or the one that `scripts/setup` puts near the
//! current directory or the executable.

use crate::error::ModelsError;
use ort::environment::Environment;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where `scripts/setup onnxruntime` puts the library, below the project's root.
const SETUP_FOLDER: &str = ".runtime/onnxruntime";
/// How the library's file begins.
const LIBRARY: &str = "libonnxruntime.so";
/// Parents of the current directory and of the executable that are searched at most.
const MAX_PARENTS: usize = 8;

/// The library of this process, once it is loaded: ONNX Runtime allows no second environment.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// Loads the library at `path`, a file or a folder, or the first one there is.
///
/// # Errors
/// None is there, or it does not load; how to get it.
pub(super) fn load(path: Option<&Path>) -> Result<Environment, ModelsError> {
    let library = match path {
        Some(folder) if folder.is_dir() => newest_in(folder),
        Some(file) => file.is_file().then(|| file.to_owned()),
        None => setup_folders().iter().find_map(|folder| newest_in(folder)),
    };
    let advice = "get it with `scripts/setup onnxruntime`, or name it with --onnxruntime or ORT_DYLIB_PATH";
    let Some(library) = library else {
        let at = path.unwrap_or(Path::new(SETUP_FOLDER)).display();
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
    *loaded = Some((library.clone(), environment.clone()));
    Ok(environment)
}

fn setup_folders() -> Vec<PathBuf> {
    let executable = std::env::current_exe().ok();
    let folder = executable.and_then(|path| path.parent().map(Path::to_owned));
    let starts = [std::env::current_dir().ok(), folder];
    let parents = |start: PathBuf| {
        let parents = start.ancestors().take(MAX_PARENTS);
        parents.map(|parent| parent.join(SETUP_FOLDER)).collect::<Vec<_>>()
    };
    starts.into_iter().flatten().flat_map(parents).collect()
}

/// The library with the highest version in a folder.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let libraries = files.filter_map(|path| Some((version_of(&path)?, path)));
    libraries.max().map(|(_, path)| path)
}

/// The numbers behind the library's name; none where the file is no such library.
fn version_of(path: &Path) -> Option<Vec<u32>> {
    let tail = path.file_name()?.to_str()?.strip_prefix(LIBRARY)?;
    let numbers = tail.split('.').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_of_a_folder_is_taken_and_a_wrong_path_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1.31.1",
            "libonnxruntime.so",
            "libonnxruntime_providers.so",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let newest = newest_in(folder.path()).unwrap();
        assert!(newest.ends_with("libonnxruntime.so.1.31.1"), "{}", newest.display());
        let error = load(Some(Path::new("/nowhere/lib.so"))).err().unwrap().to_string();
        assert!(error.contains("/nowhere/lib.so") && error.contains("scripts/setup onnxruntime"));
    }
}
