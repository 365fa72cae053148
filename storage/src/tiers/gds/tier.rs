//! A local folder and a CUDA device as a tier. In: object paths and ranges. Out: bytes, on the host or on the device, and
//! the path taken according to cuFile's counters.
//!
//! A thread reads into device memory, over one path. Waiting jobs are read together, so that many small reads share a
//! submission, a wait and a reading of the counters. A job owns its memory until it has ended, so its future may be
//! dropped safely.

use super::GdsConfig;
use crate::device::{
    DeviceError, DeviceErrorKind, DevicePath, DevicePool, DeviceReads, Gpu, Landed, Search, missing_for_gds, shortfall,
};
use crate::limits::check_ranges;
use crate::metrics::{DeviceMetrics, StorageMetrics};
use crate::tasks::blocking;
use crate::tiers::check_multiple;
use crate::tiers::nvme::files::{LocalFiles, OpenFile};
use crate::tiers::nvme::plan::Plan;
use crate::tiers::nvme::root::Root;
use crate::{Body, ErrorKind, Object, ObjectPath, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_gds::Reads;
use tierlab_gds::routes::{ALIGN, FileRange, Landing, PhaseTimes, Reader, RouteOptions};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::{mpsc, oneshot};

/// Maximum jobs waiting for the thread; further callers wait.
const BACKLOG: usize = 1024;
/// Maximum number of jobs read together.
const MAX_BATCH_JOBS: usize = 64;
const MAX_BATCH_BYTES: u64 = 64 << 20;

/// Local files into device memory. Writes, listings and look-ups are plain file operations.
#[derive(Debug)]
pub struct GdsTier {
    files: LocalFiles,
    /// Queue of the thread; `None` once it is closed.
    jobs: Option<mpsc::Sender<ReadJob>>,
    thread: Option<JoinHandle<()>>,
    gpu: Arc<Gpu>,
    path: DevicePath,
    /// Detected obstacles to GPUDirect Storage on this machine.
    missing: String,
}

impl GdsTier {
    /// Opens a local folder and a CUDA device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without CUDA, cuFile or the device: one error that lists the searched places and gives
    /// advice. Also fails if the folder is missing or a value is out of range.
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
            let (jobs, thread) = start(Arc::clone(&root), Arc::clone(&gpu), options, memory, metrics)?;
            Ok(Self {
                files: LocalFiles::new(root, path.opens_direct()),
                jobs: Some(jobs),
                thread: Some(thread),
                gpu,
                path,
                missing,
            })
        })
        .await
    }

    /// Sends a job to the thread, and waits for its reply.
    async fn submit<T>(
        &self,
        object: &Object,
        ranges: &[Range<u64>],
        reply_as: impl FnOnce(oneshot::Sender<Result<T, StorageError>>) -> ReplyTo,
    ) -> Result<T, StorageError> {
        check_ranges(object, ranges)?;
        let file = self.files.open(object).await?;
        let stopped = || ErrorKind::Unavailable.error(&object.path, "the device's thread has stopped");
        let (reply, answer) = oneshot::channel();
        let job = ReadJob {
            file,
            ranges: ranges.to_vec(),
            started: Instant::now(),
            reply: reply_as(reply),
        };
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job).await.map_err(|_| stopped())?;
        let read = answer.await.unwrap_or_else(|_| Err(stopped()));
        self.files.noticed(object, read)
    }
}

impl Drop for GdsTier {
    fn drop(&mut self) {
        // Closes the queue, which ends the thread's loop after its current jobs.
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the device's thread panicked");
        }
    }
}

#[async_trait]
impl DeviceReads for GdsTier {
    fn ordinal(&self) -> u32 {
        self.gpu.ordinal
    }

    async fn read_to_device(&self, object: &Object, ranges: &[Range<u64>]) -> Result<Landed, StorageError> {
        self.submit(object, ranges, ReplyTo::Device).await
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

    fn shortfall(&self, used: ViaSet) -> Option<String> {
        shortfall(self.path, used, &self.missing)
    }

    fn device(&self) -> Option<&dyn DeviceReads> {
        Some(self)
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.files.stat(path).await
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        self.submit(object, ranges, ReplyTo::Host).await
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

/// Destination of a job's bytes: device or host memory.
enum ReplyTo {
    Device(oneshot::Sender<Result<Landed, StorageError>>),
    Host(oneshot::Sender<Result<ReadMany, StorageError>>),
}

impl ReplyTo {
    fn is_closed(&self) -> bool {
        match self {
            Self::Device(reply) => reply.is_closed(),
            Self::Host(reply) => reply.is_closed(),
        }
    }

    fn send(self, landed: Result<Landed, StorageError>, path: &str) {
        // If the caller stopped waiting, the memory is returned here.
        match self {
            Self::Device(reply) => drop(reply.send(landed)),
            Self::Host(reply) => drop(reply.send(landed.and_then(|landed| on_host(landed, path)))),
        }
    }
}

struct ReadJob {
    file: Arc<OpenFile>,
    ranges: Vec<Range<u64>>,
    started: Instant,
    reply: ReplyTo,
}

impl ReadJob {
    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

/// Starts the thread and its path. Blocks.
fn start(
    root: Arc<Root>,
    gpu: Arc<Gpu>,
    options: RouteOptions,
    device_memory_bytes: u64,
    metrics: DeviceMetrics,
) -> Result<(mpsc::Sender<ReadJob>, JoinHandle<()>), StorageError> {
    let (jobs, queue) = mpsc::channel::<ReadJob>(BACKLOG);
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    let body = move || {
        let opened = Reader::open(&gpu, &options).map(|reader| DeviceWorker {
            root,
            pool: DevicePool::new(&gpu, device_memory_bytes as usize, true),
            gpu,
            reader,
            path: options.path,
            chunk_bytes: options.chunk_bytes,
            metrics,
            held: VecDeque::new(),
        });
        match opened {
            Ok(worker) => {
                let _ = ready.send(Ok(()));
                worker.serve(queue);
            }
            Err(error) => {
                let _ = ready.send(Err(StorageError::of_device("gds", error)));
            }
        }
    };
    let unavailable = |detail: String| ErrorKind::Unavailable.error("gds", detail);
    let thread = std::thread::Builder::new().name("tierlab-gds".to_owned()).spawn(body);
    let thread = thread.map_err(|e| unavailable(format!("cannot start a thread: {e}")))?;
    match is_ready.recv() {
        Ok(opened) => opened.map(|()| (jobs, thread)),
        Err(_) => Err(unavailable("the device's thread ended during its start".to_owned())),
    }
}

/// Copies the requested bytes to the host.
fn on_host(landed: Landed, path: &str) -> Result<ReadMany, StorageError> {
    let Landed { bytes, parts, mut cost } = landed;
    let began = Instant::now();
    let mut copies = Vec::with_capacity(parts.len());
    for part in parts {
        let mut copy = vec![0; part.len()];
        let copied = bytes.to_host(part.start, &mut copy);
        copied.map_err(|e| StorageError::of_device(path, e))?;
        copies.push(Bytes::from(copy));
    }
    cost.copy += began.elapsed();
    Ok(ReadMany { parts: copies, cost })
}

/// Job being read.
struct DeviceReading {
    job: ReadJob,
    landing: Landing,
    parts: Vec<Range<usize>>,
    queue: Duration,
}

/// State of the thread. The reader is dropped first: its registrations must end before the device is released.
struct DeviceWorker {
    reader: Reader,
    pool: Arc<DevicePool>,
    root: Arc<Root>,
    gpu: Arc<Gpu>,
    path: DevicePath,
    chunk_bytes: usize,
    metrics: DeviceMetrics,
    /// Jobs that wait for memory used by other jobs.
    held: VecDeque<ReadJob>,
}

impl DeviceWorker {
    fn serve(mut self, mut queue: mpsc::Receiver<ReadJob>) {
        while let Some(first) = self.held.pop_front().or_else(|| queue.blocking_recv()) {
            let mut bytes = first.bytes();
            let mut jobs = vec![first];
            while jobs.len() < MAX_BATCH_JOBS && bytes < MAX_BATCH_BYTES {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.bytes();
                jobs.push(next);
            }
            // Jobs without a waiting caller are not read.
            jobs.retain(|job| !job.reply.is_closed());
            self.read(jobs);
        }
    }

    fn read(&mut self, jobs: Vec<ReadJob>) {
        let mut readings: Vec<DeviceReading> = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.lay_out(&job) {
                Ok((landing, parts)) => readings.push(DeviceReading {
                    queue: job.started.elapsed(),
                    job,
                    landing,
                    parts,
                }),
                // Memory becomes free once the other jobs are answered.
                Err(error) if error.kind == DeviceErrorKind::Unavailable && !readings.is_empty() => {
                    self.held.push_back(job);
                }
                Err(error) => {
                    let error = StorageError::of_device(&job.file.path, error);
                    job.reply.send(Err(error), job.file.path.as_str());
                }
            }
        }
        if readings.is_empty() {
            return;
        }
        let before = self.gpu.reads_so_far();
        let times = self.reader.run(readings.iter_mut().map(|reading| &mut reading.landing));
        let after = self.gpu.reads_so_far();
        let bytes = readings.iter().map(|reading| reading.landing.bytes_read()).sum();
        let direct = self.count(before, after, bytes);
        for reading in readings {
            let cost = self.cost_of(&reading, times, direct);
            let (job, bytes, parts) = (reading.job, reading.landing.into_bytes(), reading.parts);
            let landed = cost.map(|cost| Landed { bytes, parts, cost });
            job.reply.send(landed, job.file.path.as_str());
        }
    }

    /// Allocates memory for a job, queues its reads, and returns the position of each range in the memory.
    fn lay_out(&self, job: &ReadJob) -> Result<(Landing, Vec<Range<usize>>), DeviceError> {
        let plan = Plan::new(&job.ranges, self.alignment(&job.file));
        let mut starts = Vec::with_capacity(plan.segments.len());
        let mut total = 0usize;
        for segment in &plan.segments {
            starts.push(total);
            // Each starts at a multiple of the largest usual alignment, as direct reads require.
            total += ((segment.end - segment.start) as usize).next_multiple_of(ALIGN);
        }
        let mut landing = Landing::new(self.pool.take(total)?);
        for (segment, &start) in plan.segments.iter().zip(&starts) {
            let mut at = 0;
            let len = (segment.end - segment.start) as usize;
            let wanted = (segment.wanted_end - segment.start) as usize;
            while at < wanted {
                let piece = self.chunk_bytes.min(len - at);
                let range = FileRange {
                    offset: segment.start + at as u64,
                    len: piece,
                    wanted: piece.min(wanted - at),
                    into: start + at,
                };
                landing.add(job.file.clone(), range)?;
                at += piece;
            }
        }
        let parts = plan.parts.iter().map(|part| match part.len {
            0 => 0..0,
            len => {
                let from = starts[part.segment] + part.offset;
                from..from + len
            }
        });
        Ok((landing, parts.collect()))
    }

    /// Alignment of reads of a file. cuFile accepts any range, but reads ranges that are not multiples of 4 KiB through
    /// its own buffer.
    fn alignment(&self, file: &OpenFile) -> u64 {
        let direct = file.direct_align.map_or(1, u64::from);
        if self.path.uses_cufile() {
            direct.max(ALIGN as u64)
        } else {
            direct
        }
    }

    /// Adds cuFile's counts to the metrics. Returns true if they prove that `bytes` went to the device directly.
    fn count(&self, before: Option<Reads>, after: Option<Reads>, bytes: u64) -> bool {
        let Some((before, after)) = before.zip(after) else {
            return false;
        };
        let since = after.since(&before);
        if let Some(since) = &since {
            self.metrics.count(since.peer_to_peer, since.nvidia_fs, since.posix);
        }
        bytes > 0 && since.is_some_and(|since| since.prove_direct(bytes))
    }

    /// Returns the cost of a job's reads, or the job's error.
    fn cost_of(&self, reading: &DeviceReading, times: PhaseTimes, direct: bool) -> Result<ReadCost, StorageError> {
        let file = &reading.job.file;
        let path = file.path.as_str();
        let totals = reading.landing.totals().map_err(|e| StorageError::of_device(path, e))?;
        let mut cost = ReadCost {
            queue: reading.queue,
            device: times.reading,
            copy: times.copying,
            wire_bytes: totals.bytes,
            requests: totals.requests,
            retries: totals.retries,
            ..ReadCost::default()
        };
        if cost.requests > 0 {
            cost.via = ViaSet::of(self.via(file, direct));
        }
        // Checked after the last byte, as in the nvme tier, so every byte is of the looked-up version.
        file.check_current(&self.root, &self.root.identity(&file.c_path))?;
        Ok(cost)
    }

    fn via(&self, file: &OpenFile, direct: bool) -> Via {
        match self.path {
            DevicePath::Gds | DevicePath::Compat if direct => Via::Gds,
            DevicePath::Gds | DevicePath::Compat => Via::CufilePosix,
            DevicePath::BounceDirect if file.direct_align.is_some() => Via::BounceDirect,
            DevicePath::Bounce | DevicePath::BounceDirect => Via::Bounce,
            DevicePath::Pageable => Via::Pageable,
        }
    }
}

/// Unit of piece sizes, in bytes: the largest alignment of a direct read.
const CHUNK_UNIT: u64 = 64 << 10;
const MAX_CHUNK_BYTES: u64 = 64 << 20;
const PINNED_BUFFERS: RangeInclusive<u32> = 2..=256;
const THREADS: RangeInclusive<u32> = 1..=64;

/// Checks a config's options, and returns those of its route.
fn route_options(config: &GdsConfig) -> Result<RouteOptions, StorageError> {
    check_multiple("chunk_bytes", config.chunk_bytes.into(), CHUNK_UNIT, MAX_CHUNK_BYTES)?;
    for (key, value, allowed) in [
        ("pinned_buffers", config.pinned_buffers, PINNED_BUFFERS),
        ("threads", config.threads, THREADS),
    ] {
        if !allowed.contains(&value) {
            let detail = format!("must be from {} to {}: {value}", allowed.start(), allowed.end());
            return Err(ErrorKind::Invalid.error(key, detail));
        }
    }
    Ok(RouteOptions {
        path: config.path,
        chunk_bytes: config.chunk_bytes as usize,
        pinned_buffers: config.pinned_buffers as usize,
        threads: config.threads as usize,
    })
}
