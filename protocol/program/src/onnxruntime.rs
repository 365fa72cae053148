//! Default search path of ONNX Runtime's library. In: the executable's path and the current directory. Out: folders in search
//! order. Loads nothing.

use std::path::{Path, PathBuf};

/// Folder of the library in the packages, relative to the parent of `bin`.
const PACKAGED_FOLDER: &str = "lib/tierlab";
/// Folder of the library in Python's package `onnxruntime`, below `site-packages`.
const WHEEL_FOLDER: &str = "onnxruntime/capi";
/// Folder used by `scripts/setup onnxruntime`, below the project's root.
pub const SETUP_FOLDER: &str = ".runtime/onnxruntime";
/// Prefix of the library's file name.
const LIBRARY: &str = "libonnxruntime.so";
/// Maximum parents of the current directory and of the executable to search.
const MAX_PARENTS: usize = 8;

/// Returns the folders installed with the executable (by its package, or in its Python environment), then the set-up
/// folder below the current directory, below the executable's folder, and below their parents.
pub fn folders() -> Vec<PathBuf> {
    let executable = std::env::current_exe().ok();
    let own = executable.as_deref().and_then(Path::parent);
    let here = std::env::current_dir().ok();
    let mut folders = own.map(installed_with).unwrap_or_default();
    for start in [here.as_deref(), own].into_iter().flatten() {
        let parents = start.ancestors().take(MAX_PARENTS);
        folders.extend(parents.map(|parent| parent.join(SETUP_FOLDER)));
    }
    let mut seen = std::collections::HashSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}

/// Returns the folders beside `bin`; empty if the executable is elsewhere, as in a build's folder.
fn installed_with(bin: &Path) -> Vec<PathBuf> {
    if bin.file_name().is_none_or(|name| name != "bin") {
        return Vec::new();
    }
    let Some(prefix) = bin.parent() else { return Vec::new() };
    // `pip install --target FOLDER` puts packages beside `bin`.
    let mut folders = vec![prefix.join(PACKAGED_FOLDER), prefix.join(WHEEL_FOLDER)];
    for library in ["lib", "lib64"] {
        for python in pythons_in(&prefix.join(library)) {
            // Debian's Python uses `dist-packages` for system-wide packages.
            for packages in ["site-packages", "dist-packages"] {
                folders.push(python.join(packages).join(WHEEL_FOLDER));
            }
        }
    }
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Returns the `python3.*` folders, in order; an environment has one.
fn pythons_in(library: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(library).into_iter().flatten().flatten();
    let mut pythons: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path())
        .collect();
    pythons.sort();
    pythons
}

/// Returns the library with the highest version in a folder.
pub fn newest_in(folder: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let libraries = files.filter_map(|path| Some((version_of(&path)?, path)));
    libraries.max().map(|(_, path)| path)
}

/// Returns the version in the library's file name; `None` for other files.
fn version_of(path: &Path) -> Option<Vec<u32>> {
    let tail = path.file_name()?.to_str()?.strip_prefix(LIBRARY)?;
    let numbers = tail.split('.').filter(|number| !number.is_empty());
    numbers.map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let file = folder.join(name);
        std::fs::write(&file, "").unwrap();
        file
    }

    #[test]
    fn the_highest_version_of_a_folder_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest_in(folder.path()), None);
        for name in [
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1.31.1",
            "libonnxruntime.so",
            "libonnxruntime_providers.so",
            "other",
        ] {
            put(folder.path(), name);
        }
        assert_eq!(
            newest_in(folder.path()),
            Some(folder.path().join("libonnxruntime.so.1.31.1"))
        );
        assert_eq!(newest_in(&folder.path().join("none")), None);
    }

    #[test]
    fn the_package_goes_before_the_python_environment() {
        let prefix = tempfile::tempdir().unwrap();
        let prefix = prefix.path();
        let bin = prefix.join("bin");
        assert_eq!(installed_with(&bin), Vec::<PathBuf>::new());
        let wheel = prefix.join("lib/python3.11/site-packages/onnxruntime/capi");
        put(&wheel, "libonnxruntime.so.1.31.1");
        assert_eq!(installed_with(&bin), std::slice::from_ref(&wheel));
        let package = prefix.join("lib/tierlab");
        put(&package, "libonnxruntime.so.1.31.1");
        assert_eq!(installed_with(&bin), [package, wheel]);
        // A build's folder has no environment around it.
        assert_eq!(installed_with(&prefix.join("release")), Vec::<PathBuf>::new());
    }
}
