//! Builds the stand-in for NVIDIA's libraries (`device_standin.c`) into its own folder. In: nothing. Out: a folder that
//! holds it under the libraries' names. For tests only: host memory plays the device.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the stand-in.
const NAMES: [&str; 3] = ["libcuda.so.1", "libcufile.so.0", "libnvidia-ml.so.1"];

/// A folder with the stand-in, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct StandIn(tempfile::TempDir);

impl StandIn {
    /// Compiles it; needs `cc`, as building the project does.
    pub(crate) fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|above| above.join("storage/tests/standin/device_standin.c"))
            .find(|file| file.exists())
            .expect("the tests run in the project's folder");
        let library = folder.path().join("libtierlab_device_standin.so");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
            .args([&library, &source])
            .output()
            .expect("a C compiler, `cc`, is needed to build the stand-in for NVIDIA's libraries");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for name in NAMES {
            // Links to one file: the loader treats them as one library, which then has one state.
            std::os::unix::fs::symlink(&library, folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    /// The folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}
