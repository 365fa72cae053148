//! A local folder and a CUDA device as a tier. In: object paths and ranges. Out: bytes, on the host or on the device.

use super::GdsConfig;
use super::engine::{DeviceEngine, ReplyTo, route_options};
use crate::device::{DevicePath, DeviceReads, Gpu, Landed, Search, missing_for_gds, shortfall};
use crate::limits::check_ranges;
use crate::metrics::StorageMetrics;
use crate::tasks::blocking;
use crate::tiers::nvme::files::LocalFiles;
use crate::tiers::nvme::root::Root;
use crate::{Body, Object, ObjectPath, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;
use tierlab_protocol::via::ViaSet;

/// Local files into device memory. Writes, listings and look-ups are plain file operations.
#[derive(Debug)]
pub struct GdsTier {
    files: LocalFiles,
    engine: DeviceEngine,
    gpu: Arc<Gpu>,
    path: DevicePath,
    /// Detected obstacles to GPUDirect Storage on this machine.
    missing: String,
}

impl GdsTier {
    /// Opens a local folder and a CUDA device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without CUDA, cuFile or the device: one error that
    /// lists the searched places and gives advice. Also fails if the folder is missing or a value is out of range.
    pub async fn open(config: &GdsConfig) -> Result<Self, StorageError> {
        Self::open_counted(config, &StorageMetrics::unscraped()?).await
    }

    pub(crate) async fn open_counted(config: &GdsConfig, metrics: &StorageMetrics) -> Result<Self, StorageError> {
        let options = route_options(config)?;
        let (config, metrics) = (config.clone(), metrics.clone());
        blocking("gds", move || {
            // Conditions that `mkdir` cannot fix are checked first.
            let search = Search::in_folders(&config.libraries);
            let gpu = Gpu::open(search, config.device, config.path).map_err(|e| StorageError::of_device("gds", e))?;
            let root = Arc::new(Root::open(&config.root)?);
            let missing = missing_for_gds(gpu.counts_reads(), root.is_page_cache());
            let path = config.path;
            let metrics = metrics.device("gds", path.as_str(), &missing, gpu.counts_reads());
            let memory = config.device_memory_bytes;
            let engine = DeviceEngine::start(Arc::clone(&root), Arc::clone(&gpu), options, memory, metrics)?;
            Ok(Self {
                files: LocalFiles::new(root, path.opens_direct()),
                engine,
                gpu,
                path,
                missing,
            })
        })
        .await
    }
}

#[async_trait]
impl DeviceReads for GdsTier {
    fn ordinal(&self) -> u32 {
        self.gpu.ordinal
    }

    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError> {
        check_ranges(object, ranges)?;
        let file = self.files.open(object).await?;
        self.files
            .noticed(object, self.engine.ask(file, ranges, ReplyTo::Device).await)
    }
}

#[async_trait]
impl Tier for GdsTier {
    fn info(&self) -> TierInfo {
        let mut notes = vec![
            format!("CUDA device {}: {}", self.gpu.ordinal, self.gpu.name),
            format!("path {}", self.path.as_str()),
        ];
        if self.path == DevicePath::Gds {
            notes.push(format!("GPUDirect Storage lacks: {}", self.missing));
        }
        TierInfo::new("gds", self.files.root.location.display().to_string(), notes)
    }

    fn shortfall(&self, took: ViaSet) -> Option<String> {
        shortfall(self.path, took, &self.missing)
    }

    fn device(&self) -> Option<&dyn DeviceReads> {
        Some(self)
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.files.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let file = self.files.open(object).await?;
        self.files
            .noticed(object, self.engine.ask(file, ranges, ReplyTo::Host).await)
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        self.files.list(prefix).await
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        self.files.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.files.delete(path).await
    }
}
