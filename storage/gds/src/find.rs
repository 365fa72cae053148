//! Search for NVIDIA's libraries. In: names, and folders to search first. Out: a loaded library, and a line for every
//! file that was tried.

use super::{DeviceError, DeviceErrorKind};
use libloading::Library;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Names of the CUDA driver.
pub(super) const CUDA: [&str; 2] = ["libcuda.so.1", "libcuda.so"];
/// Names and usual paths of cuFile.
pub(super) const CUFILE: [&str; 4] = [
    "libcufile.so.0",
    "libcufile.so",
    "/usr/local/cuda/lib64/libcufile.so.0",
    "/usr/local/cuda/lib64/libcufile.so",
];
/// Names of NVML.
pub(super) const NVML: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Folders to search, and libraries searched for so far.
#[derive(Debug, Clone, Default)]
pub struct Search {
    folders: Vec<PathBuf>,
    searched: Vec<String>,
}

impl Search {
    /// Searches these folders first, then the paths of the system's loader.
    pub fn in_folders(folders: &[PathBuf]) -> Self {
        Self {
            folders: folders.to_vec(),
            searched: Vec::new(),
        }
    }

    /// Returns the first library that loads.
    pub(super) fn load(&mut self, names: &[&str]) -> Option<Library> {
        let plain = names.iter().filter(|name| !name.contains('/'));
        let folders = self.folders.iter();
        let in_folders = folders.flat_map(|folder| plain.clone().map(move |name| folder.join(name)));
        let paths: Vec<PathBuf> = in_folders.chain(names.iter().map(PathBuf::from)).collect();
        for path in paths {
            // SAFETY: loading runs the library's initialisers; these names are NVIDIA's, and loading them is the purpose.
            match unsafe { Library::new(&path) } {
                Ok(library) => {
                    self.searched.push(format!("{}: found", path.display()));
                    return Some(library);
                }
                Err(error) => {
                    // The loader's message begins with the name.
                    let message = error.source().map(ToString::to_string);
                    let message = message.unwrap_or_else(|| format!("{}: {error}", path.display()));
                    self.searched.push(message);
                }
            }
        }
        None
    }

    /// Returns true if one of these libraries loads. It stays loaded.
    pub fn has(&mut self, names: &[&str]) -> bool {
        self.load(names).map(std::mem::forget).is_some()
    }

    /// Searches so far, one line each.
    pub fn searched(&self) -> &[String] {
        &self.searched
    }

    /// Error for missing libraries: their names, every file that was tried, and advice.
    pub(super) fn missing(&self, device: u32, detail: &str) -> DeviceError {
        let mut text = format!("device memory cannot be used: {detail}. Searched:");
        for line in self.searched.iter().cloned().chain(device_nodes(device)) {
            let _ = write!(text, "\n  {line}");
        }
        text.push_str(
            "\nInstall NVIDIA's driver (libcuda) and, for `path = \"gds\"` and `\"compat\"`, the CUDA toolkit's cuFile \
             (package `libcufile`, or the PyPI wheel `nvidia-cufile`); name the folder of the libraries in `libraries` \
             or on LD_LIBRARY_PATH, and check that the process may open the /dev/nvidia* nodes; /dev/nvidia-fs0 exists \
             only with the nvidia-fs module. Without a GPU, choose another tier: `--tier nvme` reads the same files.",
        );
        DeviceError::new(DeviceErrorKind::Unsupported, text)
    }
}

/// The device's nodes and the loader's path, a line each.
pub fn device_nodes(device: u32) -> Vec<String> {
    let node = |node: String| {
        let state = if Path::new(&node).exists() { "there" } else { "missing" };
        format!("{node}: {state}")
    };
    let mut lines = [
        "/dev/nvidiactl".to_owned(),
        "/dev/nvidia-uvm".to_owned(),
        format!("/dev/nvidia{device}"),
        "/dev/nvidia-fs0".to_owned(),
    ]
    .map(node)
    .to_vec();
    lines.push(match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) => format!("LD_LIBRARY_PATH={path}"),
        Err(_) => "LD_LIBRARY_PATH: not set".to_owned(),
    });
    lines
}
