//! Local files into device memory, by the way that the config names; read by the server as bytes on the host, or left on
//! the device for whoever can use them there. In: object paths below a root. Out: bytes, and the way that they took:
//! `gds` only where cuFile's own counters prove it.
//!
//! **This tier has not run on hardware yet.** The tests run all of it against a stand-in for CUDA and cuFile, in which
//! host memory plays the device; what that cannot show is said in the README.

use super::nvme::files::{OpenFile, OpenFiles};
use super::nvme::root::Root;
use super::nvme::{blocking, store};
use crate::device::engine::{Engine, EngineOptions};
use crate::device::{DevicePath, DeviceReads, Gpu, Landed, Search, missing_for_gds, shortfall};
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadMany, Tier, TierInfo, check_ranges};
use crate::wrappers::StorageMetrics;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::sync::Arc;
use tierlab_protocol::via::ViaSet;

/// Bytes of one piece, and what they are multiples of: the largest alignment of a direct read.
const CHUNK_UNIT: u32 = 64 << 10;
const LARGEST_CHUNK: u32 = 64 << 20;
const PINNED_BUFFERS: RangeInclusive<u32> = 2..=256;
const THREADS: RangeInclusive<u32> = 1..=64;

/// Local files into device memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GdsConfig {
    /// The directory.
    pub root: PathBuf,
    /// The CUDA device.
    #[serde(default)]
    pub device: u32,
    /// The way that the bytes take.
    #[serde(default)]
    pub path: DevicePath,
    /// Bytes of one read of cuFile, or of one pinned buffer; longer ranges become several.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u32,
    /// Pinned host buffers of `chunk_bytes`, for `bounce` and `bounce-direct`.
    #[serde(default = "default_pinned_buffers")]
    pub pinned_buffers: u32,
    /// Threads that call cuFile, for `gds` and `compat`.
    #[serde(default = "default_threads")]
    pub threads: u32,
    /// Device memory for reads at most.
    #[serde(default = "default_device_memory_bytes")]
    pub device_memory_bytes: u64,
    /// Folders where NVIDIA's libraries are looked for first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PathBuf>,
}

/// As `KvikIO`'s tasks.
const fn default_chunk_bytes() -> u32 {
    4 << 20
}
const fn default_pinned_buffers() -> u32 {
    4
}
const fn default_threads() -> u32 {
    4
}
const fn default_device_memory_bytes() -> u64 {
    2 << 30
}

impl GdsConfig {
    /// A folder on the first device, everything else as it is by default.
    #[must_use]
    pub fn new(root: PathBuf, path: DevicePath) -> Self {
        Self {
            root,
            device: 0,
            path,
            chunk_bytes: default_chunk_bytes(),
            pinned_buffers: default_pinned_buffers(),
            threads: default_threads(),
            device_memory_bytes: default_device_memory_bytes(),
            libraries: Vec::new(),
        }
    }

    fn options(&self) -> Result<EngineOptions, StorageError> {
        let invalid = |key: &str, what: String| StorageError::new(ErrorKind::Invalid, key, what);
        let chunk = self.chunk_bytes;
        if chunk == 0 || !chunk.is_multiple_of(CHUNK_UNIT) || chunk > LARGEST_CHUNK {
            let what = format!("must be a multiple of {CHUNK_UNIT}, at most {LARGEST_CHUNK}, is {chunk}");
            return Err(invalid("chunk_bytes", what));
        }
        for (key, value, allowed) in [
            ("pinned_buffers", self.pinned_buffers, PINNED_BUFFERS),
            ("threads", self.threads, THREADS),
        ] {
            if !allowed.contains(&value) {
                let what = format!("must be from {} to {}, is {value}", allowed.start(), allowed.end());
                return Err(invalid(key, what));
            }
        }
        let whole = |_| {
            invalid(
                "device_memory_bytes",
                "is more than this machine can address".to_owned(),
            )
        };
        Ok(EngineOptions {
            path: self.path,
            chunk_bytes: chunk as usize,
            pinned_buffers: self.pinned_buffers as usize,
            threads: self.threads as usize,
            device_memory_bytes: usize::try_from(self.device_memory_bytes).map_err(whole)?,
        })
    }
}

/// Local files into device memory. Writing, listing and looking up are plain file operations.
#[derive(Debug)]
pub struct GdsTier {
    root: Arc<Root>,
    engine: Engine,
    files: OpenFiles,
    gpu: Arc<Gpu>,
    path: DevicePath,
    /// What GPUDirect Storage lacks here, as far as that can be seen.
    missing: String,
}

impl GdsTier {
    /// Opens a local folder and a CUDA device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without CUDA, cuFile or the device: one error that lists what was looked for and
    /// says what to do. The folder is missing. A value that is out of range.
    pub async fn open(config: &GdsConfig) -> Result<Self, StorageError> {
        Self::open_counted(config, &StorageMetrics::unscraped()?).await
    }

    pub(crate) async fn open_counted(config: &GdsConfig, metrics: &StorageMetrics) -> Result<Self, StorageError> {
        let options = config.options()?;
        let (config, metrics) = (config.clone(), metrics.clone());
        blocking("gds", move || {
            // First what cannot be created by a `mkdir`.
            let search = Search::in_folders(&config.libraries);
            let gpu = Gpu::open_with(search, config.device, config.path.wants_cufile())?;
            let root = Arc::new(Root::open(&config.root)?);
            let missing = missing_for_gds(gpu.counts_reads(), root.is_page_cache());
            let path = config.path;
            let metrics = metrics.device("gds", path.as_str(), &missing, gpu.counts_reads());
            let engine = Engine::start(Arc::clone(&root), Arc::clone(&gpu), options, metrics)?;
            Ok(Self {
                root,
                engine,
                files: OpenFiles::default(),
                gpu,
                path,
                missing,
            })
        })
        .await
    }

    async fn open_file(&self, object: &Object) -> Result<Arc<OpenFile>, StorageError> {
        let (root, direct) = (self.root.clone(), self.path.opens_direct());
        self.files
            .get_or_open(object, move |path| OpenFile::open(&root, path, direct))
            .await
    }

    /// Lets go of a file that is no more what was looked up.
    fn noticed<T>(&self, object: &Object, read: Result<T, StorageError>) -> Result<T, StorageError> {
        if let Err(e) = &read
            && matches!(e.kind(), ErrorKind::Changed | ErrorKind::NotFound)
        {
            self.files.forget(&object.path);
        }
        read
    }
}

#[async_trait]
impl DeviceReads for GdsTier {
    fn ordinal(&self) -> u32 {
        self.gpu.ordinal()
    }

    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError> {
        check_ranges(object, ranges)?;
        let file = self.open_file(object).await?;
        self.noticed(object, self.engine.read(file, ranges).await)
    }
}

#[async_trait]
impl Tier for GdsTier {
    fn info(&self) -> TierInfo {
        let mut notes = vec![
            format!("CUDA device {}: {}", self.gpu.ordinal(), self.gpu.name()),
            format!("path {}", self.path.as_str()),
        ];
        if self.path == DevicePath::Gds {
            notes.push(format!("GPUDirect Storage lacks: {}", self.missing));
        }
        TierInfo {
            kind: "gds",
            location: self.root.location().display().to_string(),
            wrappers: Vec::new(),
            notes,
        }
    }

    fn shortfall(&self, took: ViaSet) -> Option<String> {
        shortfall(self.path, took, &self.missing)
    }

    fn device(&self) -> Option<&dyn DeviceReads> {
        Some(self)
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        let (root, of) = (self.root.clone(), path.clone());
        blocking(path.as_str(), move || root.stat_file(&of).map(|id| id.describe(&of))).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let file = self.open_file(object).await?;
        self.noticed(object, self.engine.read_to_host(file, ranges).await)
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
