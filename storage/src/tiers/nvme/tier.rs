//! Tier over a local folder. In: object paths and ranges. Out: bytes, and the cost of reading them.

use super::LocalOptions;
use super::buffer::{Arena, Buffer, BufferPool};
use super::engine::Engine;
use super::files::{self, LocalFiles, OpenFile};
use super::plan::{self, Plan, Segment};
use super::root::Root;
use super::worker::Done;
use crate::limits::check_ranges;
use crate::tasks::blocking;
use crate::{Body, ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tierlab_protocol::via::{Via, ViaSet};

/// Maximum bytes that a caller copies out of the page cache itself. Larger copies would delay the tasks behind it.
const CACHED_BYTES: u64 = 64 << 10;

/// Local folder read through io_uring. Dropping it ends its engine, and joins the thread if a thread drives it.
#[derive(Debug)]
pub struct NvmeTier {
    pub(super) files: LocalFiles,
    engine: Engine,
    pool: BufferPool,
    options: LocalOptions,
    /// Reason for buffered reads, set by the first such file.
    buffered: OnceLock<&'static str>,
}

impl NvmeTier {
    /// Opens a local folder.
    ///
    /// # Errors
    /// Same as [`NvmeTier::open_with`].
    pub async fn open(root: &Path, queue_depth: u32, direct: bool) -> Result<Self, StorageError> {
        Self::open_with(LocalOptions::new(root, queue_depth, direct)).await
    }

    /// Opens a folder, optionally under the name of another kind, such as a kernel mount.
    ///
    /// # Errors
    /// Fails if the folder is missing, an option is out of range, or the kernel refuses io_uring; the error gives
    /// advice.
    pub async fn open_with(mut options: LocalOptions) -> Result<Self, StorageError> {
        options.check()?;
        let location = options.root.display().to_string();
        blocking(&location, move || {
            let root = Arc::new(Root::open(&options.root)?);
            let arena = arena(options.registered_buffers_bytes)?;
            let (engine, has_arena) = Engine::start(root.clone(), &options, arena.clone())?;
            let pool = match arena {
                Some(arena) if has_arena => BufferPool::with_arena(arena),
                Some(_) => {
                    let note = "no registered buffers: the limit of locked memory is too low (ulimit -l)";
                    options.notes.push(note.to_owned());
                    BufferPool::default()
                }
                None => BufferPool::default(),
            };
            let buffered = OnceLock::new();
            if options.direct && root.is_page_cache() {
                let _ = buffered.set(files::PAGE_CACHE);
            }
            Ok(Self {
                files: LocalFiles::new(root, options.direct),
                engine,
                pool,
                options,
                buffered,
            })
        })
        .await
    }

    async fn open_file(&self, object: &Object) -> Result<Arc<OpenFile>, StorageError> {
        let file = self.files.open(object).await?;
        if let Some(why) = file.refusal {
            self.buffered.get_or_init(|| why);
        }
        Ok(file)
    }

    /// Reads ranges of an open file. If `try_cache` is true, a few bytes are copied from the page cache.
    async fn read_file(
        &self,
        file: &Arc<OpenFile>,
        ranges: &[Range<u64>],
        started: Instant,
        try_cache: bool,
    ) -> Result<ReadMany, StorageError> {
        let plan = Plan::new(ranges, file.direct_align.map_or(1, u64::from));
        if plan.segments.is_empty() {
            return Ok(ReadMany {
                parts: vec![Bytes::new(); ranges.len()],
                cost: ReadCost::default(),
            });
        }
        let cached = match try_cache {
            true => self.read_cached(file, &plan, started)?,
            false => None,
        };
        let Done { segments, mut cost } = match cached {
            Some(done) => done,
            None => {
                let slot = self.engine.slot(file).await?;
                let segments = self.with_buffers(file, &plan)?;
                self.engine.read(file, segments, slot, started).await?
            }
        };
        let buffers = segments.into_iter().map(|(_, buffer)| buffer);
        let whole: Vec<Bytes> = buffers.map(Bytes::from_owner).collect();
        let slice = |part: &plan::Part| match part.len {
            0 => Bytes::new(),
            len => whole[part.segment].slice(part.offset..part.offset + len),
        };
        cost.via = ViaSet::of(match file.direct_align {
            Some(_) => Via::Direct,
            None => Via::PageCache,
        });
        let parts = plan.parts.iter().map(slice).collect();
        Ok(ReadMany { parts, cost })
    }

    fn with_buffers(&self, file: &OpenFile, plan: &Plan) -> Result<Vec<(Segment, Buffer)>, StorageError> {
        let with_buffer = |segment: &Segment| Ok((*segment, self.buffer(file, segment.end - segment.start)?));
        plan.segments.iter().map(with_buffer).collect()
    }

    fn buffer(&self, file: &OpenFile, len: u64) -> Result<Buffer, StorageError> {
        let buffer = usize::try_from(len).ok().and_then(|len| self.pool.take(len));
        buffer.ok_or_else(|| {
            let detail = format!("no memory for {len} bytes; read it in smaller ranges");
            ErrorKind::Unavailable.error(&file.path, detail)
        })
    }

    /// Copies a few bytes from the page cache, which takes less time than waking another thread. `None` if the page
    /// cache lacks some of them, or for direct reads.
    fn read_cached(&self, file: &Arc<OpenFile>, plan: &Plan, started: Instant) -> Result<Option<Done>, StorageError> {
        let bytes: u64 = plan.segments.iter().map(|segment| segment.end - segment.start).sum();
        if file.direct_align.is_some() || bytes > CACHED_BYTES {
            return Ok(None);
        }
        let mut segments = self.with_buffers(file, plan)?;
        let mut filled = segments.iter_mut();
        if !filled.all(|(segment, buffer)| buffer.fill_cached(file.fd.as_fd(), segment.start)) {
            return Ok(None);
        }
        let cost = self.cached_cost(file, segments.len(), bytes, started)?;
        Ok(Some(Done { segments, cost }))
    }

    /// Same as `read_cached` for a single range, the commonest small read: it needs no plan.
    fn read_range_cached(
        &self,
        file: &Arc<OpenFile>,
        range: &Range<u64>,
        started: Instant,
    ) -> Result<Option<Read>, StorageError> {
        let bytes = range.end - range.start;
        if file.direct_align.is_some() || !(1..=CACHED_BYTES).contains(&bytes) {
            return Ok(None);
        }
        let mut buffer = self.buffer(file, bytes)?;
        if !buffer.fill_cached(file.fd.as_fd(), range.start) {
            return Ok(None);
        }
        let cost = self.cached_cost(file, 1, bytes, started)?;
        let bytes = Bytes::from_owner(buffer);
        Ok(Some(Read { bytes, cost }))
    }

    /// Checks the file after its last byte, and returns the cost of reads from the page cache.
    fn cached_cost(
        &self,
        file: &Arc<OpenFile>,
        requests: usize,
        bytes: u64,
        started: Instant,
    ) -> Result<ReadCost, StorageError> {
        let ended = Instant::now();
        file.check_soon(&self.files.root, ended)?;
        Ok(ReadCost {
            requests: u32::try_from(requests).unwrap_or(u32::MAX),
            device: ended - started,
            wire_bytes: bytes,
            via: ViaSet::of(Via::PageCache),
            ..ReadCost::default()
        })
    }
}

/// Allocates the memory to register, if configured.
fn arena(bytes: u64) -> Result<Option<Arc<Arena>>, StorageError> {
    if bytes == 0 {
        return Ok(None);
    }
    let arena = usize::try_from(bytes).ok().and_then(Arena::new).ok_or_else(|| {
        let detail = format!("no memory for {bytes} bytes; lower the value");
        ErrorKind::Unavailable.error("registered_buffers_bytes", detail)
    })?;
    Ok(Some(Arc::new(arena)))
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
        let location = self.files.root.location.display().to_string();
        TierInfo::new(self.options.kind, location, notes)
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.files.stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        let started = Instant::now();
        let ranges = [range];
        check_ranges(object, &ranges)?;
        let read = async {
            let file = self.open_file(object).await?;
            if let Some(read) = self.read_range_cached(&file, &ranges[0], started)? {
                return Ok(read);
            }
            // The page cache is not tried again. Boxed, so that the future of a cached read stays small.
            let read = Box::pin(self.read_file(&file, &ranges, started, false)).await?;
            Ok::<_, StorageError>(read.into_single())
        };
        self.files.noticed(object, read.await)
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let started = Instant::now();
        check_ranges(object, ranges)?;
        let read = async {
            let file = self.open_file(object).await?;
            self.read_file(&file, ranges, started, true).await
        };
        self.files.noticed(object, read.await)
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

    async fn remove_folder(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.files.remove_folder(path).await
    }
}

#[cfg(test)]
mod tests;
