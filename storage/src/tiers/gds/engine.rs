//! The thread that owns the device: one CUDA context, one buffer in device memory, registered files. In: jobs. Out:
//! bytes on the host, and whether they went to the device directly.

use super::counters::{Reads, WORDS};
use super::library::{CuFile, Handle, missing};
use crate::error::{ErrorKind, StorageError};
use crate::tier::{ReadCost, ReadMany};
use crate::tiers::nvme::files::OpenFile;
use crate::tiers::nvme::root::Root;
use bytes::Bytes;
use cudarc::driver::{CudaContext, result as cuda};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tierlab_protocol::via::{Via, ViaSet};
use tokio::sync::{mpsc, oneshot};

/// Device memory that reads go to, and the most of one cuFile read, in bytes: cuFile's own bounce size.
const DEVICE_BYTES: usize = 16 << 20;
/// Jobs waiting for the thread at most; further callers wait.
const BACKLOG: usize = 1024;
/// Files registered with cuFile at most.
const REGISTERED: usize = 64;

struct Job {
    file: Arc<OpenFile>,
    ranges: Vec<Range<u64>>,
    started: Instant,
    reply: oneshot::Sender<Result<ReadMany, StorageError>>,
}

/// The callers' side. Dropping it ends the thread after the job that it is at.
#[derive(Debug)]
pub(super) struct Engine {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread and opens the device. Blocks.
    pub(super) fn start(root: Arc<Root>, cufile: CuFile, device: u32) -> Result<Self, StorageError> {
        let (jobs, mut queue) = mpsc::channel::<Job>(BACKLOG);
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let body = move || match Device::open(root, cufile, device) {
            Ok(mut device) => {
                let _ = ready.send(Ok(()));
                while let Some(job) = queue.blocking_recv() {
                    // Nobody waits for it any more.
                    if !job.reply.is_closed() {
                        let read = device.read(&job);
                        let _ = job.reply.send(read);
                    }
                }
            }
            Err(what) => {
                let _ = ready.send(Err(missing(
                    device,
                    &what,
                    &["libcuda and libcufile: found".to_owned()],
                )));
            }
        };
        let unavailable = |what: String| StorageError::new(ErrorKind::Unavailable, "gds", what);
        let thread = std::thread::Builder::new().name("tierlab-gds".to_owned()).spawn(body);
        let thread = thread.map_err(|e| unavailable(format!("cannot start a thread: {e}")))?;
        match is_ready.recv() {
            Ok(opened) => opened.map(|()| Self {
                jobs: Some(jobs),
                thread: Some(thread),
            }),
            // `cudarc` panics where the driver lacks a function.
            Err(_) => Err(missing(
                device,
                "the CUDA driver is too old or broken (see the message above)",
                &[],
            )),
        }
    }

    pub(super) async fn read(&self, file: Arc<OpenFile>, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        let name = file.path.clone();
        let stopped = || StorageError::new(ErrorKind::Unavailable, name.as_str(), "the device's thread has stopped");
        let (reply, answer) = oneshot::channel();
        let job = Job {
            file,
            ranges: ranges.to_vec(),
            started: Instant::now(),
            reply,
        };
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(job).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Closes the queue, which ends the thread's loop.
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the device's thread had panicked");
        }
    }
}

/// The thread's state.
struct Device {
    root: Arc<Root>,
    cufile: CuFile,
    /// Kept for as long as device memory is.
    _context: Arc<CudaContext>,
    /// `DEVICE_BYTES` of device memory.
    buffer: u64,
    is_registered: bool,
    files: VecDeque<(Arc<OpenFile>, Handle)>,
    words: Box<[u64; WORDS]>,
}

impl Device {
    fn open(root: Arc<Root>, mut cufile: CuFile, device: u32) -> Result<Self, String> {
        let cannot = |what: &str, e: cuda::DriverError| format!("{what}: {e:?}");
        let context =
            CudaContext::new(device as usize).map_err(|e| cannot("no such CUDA device, or no use of it", e))?;
        cufile.open_driver()?;
        // SAFETY: the context is current on this thread; the memory is freed in `drop`.
        let buffer = unsafe { cuda::malloc_sync(DEVICE_BYTES) }.map_err(|e| cannot("no device memory", e))?;
        // SAFETY: just allocated with that length, and deregistered before it is freed.
        let registered = unsafe { cufile.register_buffer(buffer, DEVICE_BYTES) };
        if let Err(error) = &registered {
            tracing::warn!(%error, "cuFile reads through a buffer of its own");
        }
        Ok(Self {
            root,
            cufile,
            _context: context,
            buffer,
            is_registered: registered.is_ok(),
            files: VecDeque::new(),
            words: Box::new([0; WORDS]),
        })
    }

    fn reads_so_far(&mut self) -> Option<Reads> {
        if self.cufile.counters(&mut self.words) {
            Reads::parse(&self.words[..])
        } else {
            None
        }
    }

    /// The file's registration, the least recently used one giving way.
    fn handle(&mut self, file: &Arc<OpenFile>) -> Result<Handle, String> {
        if let Some(at) = self.files.iter().position(|(known, _)| Arc::ptr_eq(known, file))
            && let Some(entry) = self.files.remove(at)
        {
            let handle = entry.1;
            self.files.push_back(entry);
            return Ok(handle);
        }
        if self.files.len() >= REGISTERED
            && let Some((_, oldest)) = self.files.pop_front()
        {
            // SAFETY: registered below, gone from the list, and reads are never under way between two calls.
            unsafe { self.cufile.deregister(oldest) };
        }
        let handle = self.cufile.register(file.fd.as_raw_fd())?;
        self.files.push_back((file.clone(), handle));
        Ok(handle)
    }

    fn read(&mut self, job: &Job) -> Result<ReadMany, StorageError> {
        let path = job.file.path.as_str();
        let failed = |what: String| StorageError::new(ErrorKind::Unavailable, path, what);
        let mut cost = ReadCost {
            queue: job.started.elapsed(),
            ..ReadCost::default()
        };
        let handle = self.handle(&job.file).map_err(failed)?;
        let before = self.reads_so_far();
        let mut parts = Vec::with_capacity(job.ranges.len());
        for range in &job.ranges {
            parts.push(self.read_range(job, handle, range, &mut cost)?);
        }
        let after = self.reads_so_far();
        let direct = before
            .zip(after)
            .is_some_and(|(before, after)| after.prove_direct(&before, cost.wire_bytes));
        cost.via = ViaSet::of(if direct { Via::Gds } else { Via::CufilePosix });
        // Asked after the last byte, as in the nvme tier: then every byte was of the version looked up.
        match self.root.identity(&job.file.c_path) {
            Ok(id) if id == job.file.id => Ok(ReadMany { parts, cost }),
            Ok(_) => Err(StorageError::new(
                ErrorKind::Changed,
                path,
                "changed since it was looked up",
            )),
            Err(e) => Err(self.root.explain(path, &e)),
        }
    }

    fn read_range(
        &self,
        job: &Job,
        handle: Handle,
        range: &Range<u64>,
        cost: &mut ReadCost,
    ) -> Result<Bytes, StorageError> {
        let error = |kind, what: String| StorageError::new(kind, job.file.path.as_str(), what);
        let mut bytes = vec![0u8; (range.end - range.start) as usize];
        let mut done = 0;
        while done < bytes.len() {
            let want = (bytes.len() - done).min(DEVICE_BYTES);
            let begun = Instant::now();
            // SAFETY: `handle` stands in `files`, and `buffer` is DEVICE_BYTES >= `want` bytes of device memory.
            let came = unsafe { self.cufile.read(handle, self.buffer, want, range.start + done as u64) };
            let came = came.map_err(|what| error(ErrorKind::Unavailable, what))?;
            cost.device += begun.elapsed();
            cost.requests += 1;
            if came == 0 || came > want {
                let what = format!("ends at byte {}, before what was looked up", range.start + done as u64);
                return Err(error(ErrorKind::Changed, what));
            }
            cost.wire_bytes += came as u64;
            cost.copy += self
                .to_host(&mut bytes[done..done + came])
                .map_err(|e| error(ErrorKind::Unavailable, e))?;
            done += came;
        }
        Ok(bytes.into())
    }

    fn to_host(&self, into: &mut [u8]) -> Result<Duration, String> {
        let begun = Instant::now();
        // SAFETY: `into` is at most DEVICE_BYTES, the context is current on this thread, and bytes of any value are u8.
        unsafe { cuda::memcpy_dtoh_sync(into, self.buffer) }.map_err(|e| format!("copy to the host: {e:?}"))?;
        Ok(begun.elapsed())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for (_, handle) in self.files.drain(..) {
            // SAFETY: registered, and used no more.
            unsafe { self.cufile.deregister(handle) };
        }
        // SAFETY: the memory is ours, no read is under way, and it is not used after this.
        unsafe {
            if self.is_registered {
                self.cufile.deregister_buffer(self.buffer);
            }
            if let Err(error) = cuda::free_sync(self.buffer) {
                tracing::warn!(?error, "device memory could not be freed");
            }
        }
    }
}
