//! Local files through io_uring. In: object paths below a root folder. Out: bytes read straight into aligned buffers.
//! Knows nothing of wrappers.
//!
//! Reads are direct (`O_DIRECT`), widened to the device's alignment; where the file system refuses that they are
//! buffered, and both [`TierInfo`] and each read's `via` say so. Nothing is copied on the way to the caller.
//!
//! **What a version promises.** A version is inode, size, modification and change time. The path is asked once more
//! after the last byte of a call, so the bytes of one call are all of the version that was looked up, or the call
//! answers `Changed` or `NotFound`. One gap remains before Linux 6.13: a writer that overwrites a file in place twice
//! within one clock tick leaves both times as they were. Files that are replaced by renaming, as `put` does, have no
//! such gap. A file that somebody else removes keeps its disk space while it is among the few that stay open.

mod active;
mod buffer;
mod engine;
pub(crate) mod files;
mod op;
pub(crate) mod plan;
mod ring;
pub(crate) mod root;
mod runtime;
mod slots;
pub(crate) mod store;
mod striped;
mod worker;

use crate::config::NvmeConfig;
use crate::error::{ErrorKind, StorageError};
use crate::path::ObjectPath;
use crate::tier::{Body, Object, ReadCost, ReadMany, Tier, TierInfo, check_ranges};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

use buffer::{Arena, Pool};
pub use engine::Driver;
use engine::{Engine, EngineOptions};
use files::{OpenFile, OpenFiles};
use plan::Plan;
use root::Root;
pub use striped::StripedTier;

/// How to open a folder as a tier.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The folder.
    pub root: PathBuf,
    /// The kind that [`TierInfo`] tells: `nvme`, or `nfs` for a kernel mount.
    pub kind: &'static str,
    /// Notes that [`TierInfo`] tells, such as mount options.
    pub notes: Vec<String>,
    /// Reads in flight at most.
    pub queue_depth: u32,
    /// Whether to read with `O_DIRECT` where that is possible.
    pub direct: bool,
}

/// Opens what a config names: one folder, or several striped into one tier.
///
/// # Errors
/// Neither or both of `root` and `roots`, or as [`NvmeTier::open_with`].
pub(crate) async fn open(config: &NvmeConfig) -> Result<Arc<dyn Tier>, StorageError> {
    let tuning = Tuning {
        chunk_bytes: config.chunk_bytes,
        registered_buffers_bytes: config.registered_buffers_bytes,
        driver: config.driver,
    };
    let options = |root: &PathBuf| LocalOptions {
        root: root.clone(),
        kind: "nvme",
        notes: Vec::new(),
        queue_depth: config.queue_depth,
        direct: config.direct,
    };
    match (&config.root, &config.roots[..]) {
        (Some(root), []) => Ok(Arc::new(NvmeTier::open_tuned(options(root), tuning).await?)),
        (None, roots) if !roots.is_empty() => {
            let mut tiers = Vec::with_capacity(roots.len());
            for root in roots {
                tiers.push(NvmeTier::open_tuned(options(root), tuning).await?);
            }
            let stripe_bytes = config.stripe_bytes;
            let striped = blocking("roots", move || StripedTier::new(tiers, stripe_bytes)).await?;
            Ok(Arc::new(striped))
        }
        _ => {
            let detail = "set one of `root` (a folder) and `roots` (folders to stripe over)";
            Err(StorageError::new(ErrorKind::Invalid, "root", detail))
        }
    }
}

/// What is set by measurement rather than by need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of one read at most; longer ranges become several reads that are in flight together.
    pub chunk_bytes: u32,
    /// Bytes of memory to register with the kernel, and to read into first; 0 for none.
    pub registered_buffers_bytes: u64,
    /// Who submits reads and takes their completions.
    pub driver: Driver,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            chunk_bytes: 256 << 10,
            registered_buffers_bytes: 4 << 20,
            driver: Driver::Runtime,
        }
    }
}

impl Tuning {
    /// The smallest chunk, and what chunks are multiples of: the largest alignment of a direct read.
    const CHUNK_UNIT: u32 = 64 << 10;
    /// The kernel takes 1 GiB as one registered buffer at most.
    const LARGEST_ARENA: u64 = 1 << 30;
    const LARGEST_CHUNK: u32 = 1 << 30;

    fn check(&self) -> Result<(), StorageError> {
        let (unit, chunk, arena) = (Self::CHUNK_UNIT, self.chunk_bytes, self.registered_buffers_bytes);
        if chunk == 0 || !chunk.is_multiple_of(unit) || chunk > Self::LARGEST_CHUNK {
            let detail = format!(
                "must be a multiple of {unit}, at most {}, is {chunk}",
                Self::LARGEST_CHUNK
            );
            return Err(StorageError::new(ErrorKind::Invalid, "chunk_bytes", detail));
        }
        if arena > Self::LARGEST_ARENA {
            let detail = format!("must be at most {}, is {arena}", Self::LARGEST_ARENA);
            return Err(StorageError::new(
                ErrorKind::Invalid,
                "registered_buffers_bytes",
                detail,
            ));
        }
        Ok(())
    }
}

/// A local folder read through io_uring. Dropping it stops and joins its thread.
#[derive(Debug)]
pub struct NvmeTier {
    root: Arc<Root>,
    engine: Engine,
    pool: Pool,
    files: OpenFiles,
    options: LocalOptions,
    /// Why reads are buffered, once a file has shown it.
    buffered: OnceLock<&'static str>,
}

impl NvmeTier {
    /// Opens a local folder.
    ///
    /// # Errors
    /// As [`NvmeTier::open_with`].
    pub async fn open(root: &Path, queue_depth: u32, direct: bool) -> Result<Self, StorageError> {
        let options = LocalOptions {
            root: root.to_owned(),
            kind: "nvme",
            notes: Vec::new(),
            queue_depth,
            direct,
        };
        Self::open_tuned(options, Tuning::default()).await
    }

    /// Opens a folder under another kind's name, such as a kernel mount: read by a thread of its own, since what lies
    /// behind it may be slow to take reads.
    ///
    /// # Errors
    /// The folder is missing, the depth is out of range, or the kernel refuses io_uring; the error says what to do.
    pub async fn open_with(options: LocalOptions) -> Result<Self, StorageError> {
        let tuning = Tuning {
            driver: Driver::Thread,
            ..Tuning::default()
        };
        Self::open_tuned(options, tuning).await
    }

    /// Opens a folder with settings of one's own.
    ///
    /// # Errors
    /// As [`NvmeTier::open_with`], or the tuning is out of range.
    pub async fn open_tuned(mut options: LocalOptions, tuning: Tuning) -> Result<Self, StorageError> {
        tuning.check()?;
        let location = options.root.display().to_string();
        blocking(&location, move || {
            let root = Arc::new(Root::open(&options.root)?);
            let arena = arena(tuning.registered_buffers_bytes)?;
            let engine_options = EngineOptions {
                name: options.kind,
                depth: options.queue_depth,
                chunk_bytes: tuning.chunk_bytes as usize,
                arena: arena.clone(),
                driver: tuning.driver,
            };
            let (engine, has_arena) = Engine::start(root.clone(), engine_options)?;
            let pool = match arena {
                Some(arena) if has_arena => Pool::with_arena(arena),
                Some(_) => {
                    let note = "no registered buffers: the limit of locked memory is too low (ulimit -l)";
                    options.notes.push(note.to_owned());
                    Pool::default()
                }
                None => Pool::default(),
            };
            let buffered = OnceLock::new();
            if options.direct && root.is_page_cache() {
                let _ = buffered.set(files::PAGE_CACHE);
            }
            Ok(Self {
                root,
                engine,
                pool,
                files: OpenFiles::default(),
                options,
                buffered,
            })
        })
        .await
    }

    /// The open file of the version that was looked up.
    async fn open_file(&self, object: &Object) -> Result<Arc<OpenFile>, StorageError> {
        let (root, direct) = (self.root.clone(), self.options.direct);
        let file = self
            .files
            .get_or_open(object, move |path| OpenFile::open(&root, path, direct))
            .await?;
        if let Some(why) = file.refusal {
            self.buffered.get_or_init(|| why);
        }
        Ok(file)
    }

    async fn read_file(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let started = Instant::now();
        let file = self.open_file(object).await?;
        let plan = Plan::new(ranges, file.direct_align.map_or(1, u64::from));
        if plan.segments.is_empty() {
            return Ok(ReadMany {
                parts: vec![Bytes::new(); ranges.len()],
                cost: ReadCost::default(),
            });
        }
        let place = self.engine.place(&file).await?;
        let mut segments = Vec::with_capacity(plan.segments.len());
        for segment in &plan.segments {
            let len = segment.end - segment.start;
            let buffer = usize::try_from(len)
                .ok()
                .and_then(|len| self.pool.take(len))
                .ok_or_else(|| {
                    let detail = format!("no memory for {len} bytes; read it in smaller ranges");
                    StorageError::new(ErrorKind::Unavailable, object.path.as_str(), detail)
                })?;
            segments.push((*segment, buffer));
        }
        let done = self.engine.read(&file, segments, place, started).await?;
        let buffers = done.segments.into_iter().map(|(_, buffer)| buffer);
        let whole: Vec<Bytes> = buffers.map(Bytes::from_owner).collect();
        let slice = |part: &plan::Part| match part.len {
            0 => Bytes::new(),
            len => whole[part.segment].slice(part.offset..part.offset + len),
        };
        let via = if file.direct_align.is_some() {
            Via::Direct
        } else {
            Via::PageCache
        };
        let cost = ReadCost {
            via: ViaSet::of(via),
            queue: done.queue,
            device: done.device,
            wire_bytes: done.wire_bytes,
            requests: done.requests,
            retries: done.retries,
            ..ReadCost::default()
        };
        Ok(ReadMany {
            parts: plan.parts.iter().map(slice).collect(),
            cost,
        })
    }
}

/// Memory to register, if any is wanted.
fn arena(bytes: u64) -> Result<Option<Arc<Arena>>, StorageError> {
    if bytes == 0 {
        return Ok(None);
    }
    let arena = usize::try_from(bytes).ok().and_then(Arena::new).ok_or_else(|| {
        let detail = format!("no memory for {bytes} bytes; lower it");
        StorageError::new(ErrorKind::Unavailable, "registered_buffers_bytes", detail)
    })?;
    Ok(Some(Arc::new(arena)))
}

/// Runs what blocks off the reactor. Dropping the future does not undo it.
pub(crate) async fn blocking<T: Send + 'static>(
    object: &str,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(StorageError::new(
            ErrorKind::Unavailable,
            object,
            format!("a blocking call failed: {e}"),
        )),
    }
}

#[async_trait]
impl Tier for NvmeTier {
    fn info(&self) -> TierInfo {
        let mut notes = self.options.notes.clone();
        match self.buffered.get() {
            Some(why) => notes.push(format!("buffered: {why}")),
            None if !self.options.direct => notes.push("buffered: configured".to_owned()),
            None => {}
        }
        let location = self.root.location().display().to_string();
        TierInfo {
            kind: self.options.kind,
            location,
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
        let read = self.read_file(object, ranges).await;
        if let Err(e) = &read
            && matches!(e.kind(), ErrorKind::Changed | ErrorKind::NotFound)
        {
            self.files.forget(&object.path);
        }
        read
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let (root, prefix) = (self.root.clone(), prefix.cloned());
        let location = self.root.location().display().to_string();
        blocking(&location, move || store::list(&root, prefix.as_ref())).await
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
mod tests;
