//! GPUDirect Storage: local files read to device memory through cuFile, then copied to the host. In: object paths
//! below a root. Out: bytes, with the way that cuFile's own counters prove (`gds`) or else `cufile-posix`.
//!
//! **This tier has not run on hardware yet.** What is tested is all that needs no GPU: what is said where CUDA or
//! cuFile is missing, and how the counters are read. It makes one read at a time; handing device memory on without the
//! copy, and overlapping reads, are left to when it can be measured.

mod counters;
mod engine;
mod library;

use super::nvme::files::{OpenFile, OpenFiles};
use super::nvme::root::Root;
use super::nvme::{blocking, store};
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadMany, Tier, TierInfo, check_ranges};
use async_trait::async_trait;
use engine::Engine;
use library::CuFile;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Local files through cuFile. Writing, listing and looking up are plain file operations.
#[derive(Debug)]
pub struct GdsTier {
    root: Arc<Root>,
    engine: Engine,
    files: OpenFiles,
    device: u32,
}

impl GdsTier {
    /// Opens a local folder and a CUDA device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without CUDA, cuFile or the device: one error that lists what was looked for and
    /// says what to do. The folder is missing.
    pub async fn open(root: &Path, device: u32) -> Result<Self, StorageError> {
        let root = root.to_owned();
        blocking("gds", move || {
            // First what cannot be created by a `mkdir`.
            let cufile = CuFile::find(device)?;
            let root = Arc::new(Root::open(&root)?);
            let engine = Engine::start(root.clone(), cufile, device)?;
            Ok(Self {
                root,
                engine,
                files: OpenFiles::default(),
                device,
            })
        })
        .await
    }
}

#[async_trait]
impl Tier for GdsTier {
    fn info(&self) -> TierInfo {
        let notes = vec![
            format!("CUDA device {}", self.device),
            "copied to the host after the read".to_owned(),
        ];
        TierInfo {
            kind: "gds",
            location: self.root.location().display().to_string(),
            wrappers: Vec::new(),
            notes,
        }
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let (root, of) = (self.root.clone(), path.clone());
        blocking(path.as_str(), move || root.stat_file(&of).map(|id| id.describe(&of))).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let root = self.root.clone();
        let file = self
            .files
            .get_or_open(object, move |path| OpenFile::open(&root, path, true))
            .await?;
        let read = self.engine.read(file, ranges).await;
        if let Err(e) = &read
            && matches!(e.kind(), ErrorKind::Changed | ErrorKind::NotFound)
        {
            self.files.forget(&object.path);
        }
        read
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let (root, prefix) = (self.root.clone(), prefix.cloned());
        blocking("gds", move || store::list(&root, prefix.as_ref())).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let (root, of) = (self.root.clone(), path.clone());
        blocking(path.as_str(), move || store::put(&root, &of, &body)).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        let (root, of) = (self.root.clone(), path.clone());
        let deleted = blocking(path.as_str(), move || store::delete(&root, &of)).await;
        self.files.forget(path);
        deleted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Suite;

    /// Either there is a GPU with cuFile, and the tier conforms; or there is one error that helps.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn it_conforms_or_says_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("made-later");
        let error = match GdsTier::open(&folder, 0).await {
            // With CUDA, the missing folder is what is named.
            Err(error) if error.kind() == ErrorKind::NotFound => GdsTier::open(root.path(), 0).await,
            other => other,
        };
        let error = match error {
            Ok(tier) => {
                let scratch = tempfile::tempdir().unwrap();
                let suite = Suite {
                    tier: Arc::new(tier),
                    folder: ObjectPath::new("suite").unwrap(),
                    scratch: scratch.path().to_owned(),
                    notices_changes: true,
                };
                return suite.run().await.unwrap();
            }
            Err(error) => error,
        };
        assert_eq!((error.kind(), error.object()), (ErrorKind::Unsupported, "gds"));
        for named in [
            "libcuda",
            "libcufile",
            "/dev/nvidiactl",
            "/dev/nvidia0",
            "LD_LIBRARY_PATH",
            "--tier nvme",
        ] {
            assert!(error.detail().contains(named), "no {named} in {error}");
        }
    }
}
