//! Rates of a service shared by client processes of one machine. In: a file that each process names. Out: grants,
//! serialised over all processes.
//!
//! Every process maps the file, which holds two times of the machine's monotonic clock: the time up to which requests
//! are granted, and the same for bytes. A grant is a single atomic exchange, so a stopped process delays no other
//! process.
#![allow(unsafe_code)]

use crate::{ErrorKind, StorageError};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit on how far ahead a stored time may be. Beyond it, the time is from another boot, whose clock started at zero.
const MAX_AHEAD: Duration = Duration::from_secs(600);

/// Times of a service, and when this client opened it.
pub(super) struct SharedService {
    mapped: Mapped,
    opened_ns: u64,
}

impl SharedService {
    /// Opens or creates the file. Later calls count times from now.
    ///
    /// # Errors
    /// Fails if the file cannot be created or mapped.
    pub(super) fn open(path: &Path) -> Result<Self, StorageError> {
        let invalid = |action: &str, error: &io::Error| {
            let detail = format!("{}: cannot be {action}: {error}", path.display());
            ErrorKind::Invalid.error("emulated.shared", detail)
        };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = file.map_err(|e| invalid("opened", &e))?;
        Ok(Self {
            mapped: Mapped::of(&file).map_err(|e| invalid("mapped", &e))?,
            opened_ns: now_ns().map_err(|e| invalid("timed", &e))?,
        })
    }

    /// Start time of a request that arrives at `now` and takes `cost`. Both times count from the opening, like answers.
    pub(super) fn request(&self, now: Duration, cost: Duration) -> Duration {
        self.reserve(&self.mapped.moments().requests, now, cost)
    }

    /// Start time of bytes that arrive at `now` and take `cost`, counted separately from requests.
    pub(super) fn bytes(&self, now: Duration, cost: Duration) -> Duration {
        self.reserve(&self.mapped.moments().bytes, now, cost)
    }

    fn reserve(&self, until: &AtomicU64, now: Duration, cost: Duration) -> Duration {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4);
        let now_ns = self.opened_ns.saturating_add(ns(now));
        let start_of = |until: u64| {
            let is_stale = until > now_ns.saturating_add(ns(MAX_AHEAD));
            if is_stale { now_ns } else { until.max(now_ns) }
        };
        let next = |until: u64| Some(start_of(until).saturating_add(ns(cost)));
        let before = until.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        let begin_ns = start_of(before.unwrap_or_else(|before| before));
        Duration::from_nanos(begin_ns - self.opened_ns)
    }
}

/// The machine's monotonic clock, the same for every process.
fn now_ns() -> io::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
}

const FILE_BYTES: u64 = size_of::<Moments>() as u64;

/// Times in nanoseconds of the monotonic clock.
#[repr(C)]
pub(super) struct Moments {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// The file in memory.
pub(super) struct Mapped(NonNull<Moments>);

// SAFETY: it points only to atomics, which stay mapped until this is dropped.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file that is open for reading and writing, and extends an empty file to the needed length. Any other file
    /// would lose its first bytes.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        match file.metadata()?.len() {
            0 => file.set_len(FILE_BYTES)?,
            FILE_BYTES => {}
            len => return Err(io::Error::other(format!("its {len} bytes are of another file"))),
        }
        // SAFETY: a new mapping of a file that is as long; nothing here shortens it.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Moments>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(mapped.cast::<Moments>()) {
            Some(moments) if mapped != libc::MAP_FAILED => Ok(Self(moments)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn moments(&self) -> &Moments {
        // SAFETY: mapped by `of` for the lifetime of `self`.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and no longer in use.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), size_of::<Moments>());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn clients_take_turns_whoever_asks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service");
        let (one, other) = (SharedService::open(&file).unwrap(), SharedService::open(&file).unwrap());
        let shift = Duration::from_nanos(other.opened_ns - one.opened_ns);
        assert_eq!(one.request(ms(5), ms(10)), ms(5));
        // The other process has its own time origin.
        assert_eq!(other.request(ms(5), ms(10)) + shift, ms(15));
        assert_eq!(one.request(ms(5), ms(10)), ms(25));
        // Bytes have their own.
        assert_eq!(other.bytes(ms(5), ms(1)), ms(5));
        // Unused rate is not saved up.
        assert_eq!(one.request(ms(500), ms(10)), ms(500));
    }

    #[test]
    fn many_threads_take_as_many_turns() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service");
        let all = std::sync::Mutex::new(Vec::new());
        let origin = SharedService::open(&file).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mine = SharedService::open(&file).unwrap();
                    let shift = Duration::from_nanos(mine.opened_ns - origin.opened_ns);
                    let times: Vec<Duration> = (0..500).map(|_| mine.request(Duration::ZERO, ms(1)) + shift).collect();
                    all.lock().unwrap().extend(times);
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        all.sort();
        assert_eq!(all.len(), 2000);
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= ms(1)), "none overlaps");
    }

    #[test]
    fn moments_of_another_boot_hold_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("service");
        let shared = SharedService::open(&file).unwrap();
        shared.mapped.moments().requests.store(u64::MAX / 2, Ordering::Release);
        assert_eq!(shared.request(ms(3), ms(10)), ms(3));
        assert_eq!(shared.request(ms(3), ms(10)), ms(13));
    }

    #[test]
    fn other_files_keep_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        std::fs::write(&file, "seventeen bytes..").unwrap();
        let error = SharedService::open(&file).err().unwrap();
        assert!(error.to_string().contains("17 bytes are of another file"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"seventeen bytes..");
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let error = SharedService::open(Path::new("/nowhere/service")).err().unwrap();
        assert!(error.to_string().contains("/nowhere/service"), "{error}");
    }
}
