//! Memory that this process may use, and the share of it that a load may take.
//!
//! In: `/proc`, control groups and resource limits. Out: numbers of bytes, and a limit for as long as sessions are built and
//! warmed up. ONNX Runtime cannot be interrupted while it builds a session, and a small graph can ask for any amount of
//! memory. Under the limit its allocation fails, and the load is refused, before the kernel ends the process.
//!
//! The limit is the process's `RLIMIT_DATA`, over what it holds already. A process for each load would build every session
//! twice, because sessions cannot be handed over. Loads on a GPU have no limit: CUDA reserves address space far beyond what
//! it uses.

use super::cores::{Version, least};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use parking_lot::Mutex;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Memory left to the server's other work while models are loaded, in bytes: at least this, and at least a tenth.
const RESERVE_BYTES: u64 = 256 << 20;

/// Most memory that this process may use, in bytes, with what sets it.
pub(crate) fn of_this_process() -> (u64, &'static str) {
    let rest = |resource, used: &str, by| {
        let (soft, _) = getrlimit(resource).ok()?;
        (soft != RLIM_INFINITY).then(|| (soft.saturating_sub(own(used)), by))
    };
    let group = least(Path::new("/"), "memory", |version, folder| {
        group_limit(version, folder).map(|limit| limit as f64)
    });
    let limits = [
        field("/proc/meminfo", "MemTotal:").map(|total| (total, "the machine's memory")),
        group.map(|limit| (limit as u64, "its control group")),
        rest(Resource::RLIMIT_AS, "VmSize:", "`ulimit -v`"),
        rest(Resource::RLIMIT_DATA, "VmData:", "`ulimit -d`"),
    ];
    let least = limits.into_iter().flatten().min_by_key(|limit| limit.0);
    least.unwrap_or((u64::MAX, "no limit"))
}

/// True if this process may be refused memory: by `ulimit`, or while a load is limited.
static MAY_BE_REFUSED: AtomicBool = AtomicBool::new(false);

/// Memory that is asked for besides what is about to be allocated: other allocations are made at the same time.
const SPARE_BYTES: usize = 16 << 20;

/// Notes whether the process has limits now.
pub(crate) fn note_limits() {
    let is_limited = |resource| getrlimit(resource).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    let limited = is_limited(Resource::RLIMIT_AS) || is_limited(Resource::RLIMIT_DATA);
    MAY_BE_REFUSED.store(limited, Relaxed);
}

/// True if so many bytes can be allocated now. Only asked where the process may be refused memory at all: an allocation that
/// fails elsewhere ends the process.
pub(crate) fn has_room(bytes: usize) -> bool {
    !MAY_BE_REFUSED.load(Relaxed) || {
        let mut trial = Vec::<u8>::new();
        let room = trial.try_reserve_exact(bytes.saturating_add(SPARE_BYTES)).is_ok();
        std::hint::black_box(&trial);
        room
    }
}

/// Memory that is free for this process now, in bytes.
fn available() -> u64 {
    let machine = field("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
    let group = least(Path::new("/"), "memory", |version, folder| {
        let (used, reclaimable) = match version {
            Version::V2 => ("memory.current", "inactive_file"),
            Version::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        let used: u64 = fs::read_to_string(folder.join(used)).ok()?.trim().parse().ok()?;
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = number_behind(&statistics, reclaimable).unwrap_or(0);
        let limit = group_limit(version, folder)?;
        Some(limit.saturating_sub(used.saturating_sub(reclaimable)) as f64)
    });
    group.map_or(machine, |group| machine.min(group as u64))
}

/// The memory limit of one control group, in bytes.
fn group_limit(version: Version, folder: &Path) -> Option<u64> {
    let name = match version {
        Version::V2 => "memory.max",
        Version::V1 => "memory.limit_in_bytes",
    };
    // `max` is no number, and no limit; the first version says a number that no machine has.
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// Figure of this process in `/proc/self/status`, in bytes.
fn own(name: &str) -> u64 {
    field("/proc/self/status", name).unwrap_or(0)
}

/// A line `NAME NUMBER kB` of a file, in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    number_behind(&fs::read_to_string(file).ok()?, name)?.checked_mul(1024)
}

fn number_behind(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
}

/// The loads under way.
struct Loads {
    count: u64,
    /// `VmData` and limits when the first began.
    base: u64,
    before: (u64, u64),
}

static LOADS: Mutex<Loads> = Mutex::new(Loads {
    count: 0,
    base: 0,
    before: (RLIM_INFINITY, RLIM_INFINITY),
});

/// A load whose memory is limited, until this is dropped. Loads at the same time share the sum of their limits.
pub(crate) struct LimitedLoad {
    bytes: u64,
}

impl LimitedLoad {
    /// Begins a load that may take `configured` bytes; 0 stands for what is available, less a reserve.
    pub(crate) fn begin(configured: u64) -> Self {
        let available = available();
        let bytes = match configured {
            0 => available.saturating_sub(RESERVE_BYTES.max(available / 10)),
            bytes => bytes,
        };
        let mut loads = LOADS.lock();
        let held = own("VmData:");
        if loads.count == 0 {
            loads.base = held;
            loads.before = getrlimit(Resource::RLIMIT_DATA).unwrap_or((RLIM_INFINITY, RLIM_INFINITY));
        }
        loads.count += 1;
        let wanted = loads.base.saturating_add(bytes.saturating_mul(loads.count));
        set(wanted.min(held.saturating_add(available)), loads.before);
        Self { bytes }
    }

    /// An error of a load; one for want of memory says what set the limit.
    pub(crate) fn explain(&self, error: String) -> String {
        if !is_for_memory(&error) {
            return error;
        }
        let bytes = self.bytes;
        format!("{error}: loading it takes more than {bytes} bytes of memory (`runtime.max_load_bytes`)")
    }
}

impl Drop for LimitedLoad {
    fn drop(&mut self) {
        let mut loads = LOADS.lock();
        loads.count -= 1;
        if loads.count == 0 {
            set(loads.before.0, loads.before);
        }
    }
}

/// Sets the soft limit, never above that of before.
fn set(soft: u64, before: (u64, u64)) {
    if let Err(error) = setrlimit(Resource::RLIMIT_DATA, soft.min(before.0), before.1) {
        tracing::warn!(%error, "the memory of loads is not limited");
    }
    note_limits();
}

/// True if ONNX Runtime says that it was refused memory.
pub(crate) fn is_for_memory(error: &str) -> bool {
    ["bad_alloc", "bad allocation", "Failed to allocate memory"]
        .iter()
        .any(|words| error.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_a_limit_and_the_last_one_gives_the_old_one_back() {
        let before = getrlimit(Resource::RLIMIT_DATA).unwrap();
        let soft = || getrlimit(Resource::RLIMIT_DATA).unwrap().0;
        let first = LimitedLoad::begin(64 << 20);
        let held = own("VmData:");
        assert!(soft() <= held + (64 << 20) && soft() < before.0);
        let one = soft();
        let second = LimitedLoad::begin(64 << 20);
        assert_eq!(soft() - one, 64 << 20);
        drop(first);
        assert!(soft() < before.0);
        drop(second);
        assert_eq!(getrlimit(Resource::RLIMIT_DATA).unwrap(), before);
        assert!(LimitedLoad::begin(0).bytes > 0);
    }

    #[test]
    fn memory_is_what_the_tightest_limit_leaves() {
        let (whole, _) = of_this_process();
        assert!(whole > 0 && available() <= field("/proc/meminfo", "MemTotal:").unwrap());
        let (_, hard) = getrlimit(Resource::RLIMIT_DATA).unwrap();
        setrlimit(Resource::RLIMIT_DATA, own("VmData:") + (100 << 20), hard).unwrap();
        let (bytes, by) = of_this_process();
        assert!(bytes <= 100 << 20, "{bytes}");
        assert_eq!(by, "`ulimit -d`");
    }
}
