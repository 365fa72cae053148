//! Memory that this process may use, and the limit of a load.
//!
//! In: `/proc`, control groups and resource limits. Out: numbers of bytes, and a limit while sessions are built and
//! warmed up. ONNX Runtime cannot be interrupted while it builds a session, and a small graph can request any amount of
//! memory. Under the limit its allocation fails, and the load is refused, before the kernel kills the process.
//!
//! The limit is the process's `RLIMIT_DATA`, above its current use. A separate process for each load would build every
//! session twice, because sessions cannot be handed over. Loads on a GPU have no limit: CUDA reserves far more address
//! space than it uses.

use super::{CgroupVersion, lowest};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use parking_lot::Mutex;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Minimum memory left to the server's other work during loads, in bytes; also at least a tenth.
const RESERVE_BYTES: u64 = 256 << 20;

/// Maximum memory of this process, in bytes, and what sets it.
pub(crate) fn process_limit() -> (u64, &'static str) {
    let rest = |resource, used: &str, by| {
        let (soft, _) = getrlimit(resource).ok()?;
        (soft != RLIM_INFINITY).then(|| (soft.saturating_sub(process_bytes(used)), by))
    };
    let group = lowest(Path::new("/"), "memory", |version, folder| {
        group_limit(version, folder).map(|limit| limit as f64)
    });
    let limits = [
        field("/proc/meminfo", "MemTotal:").map(|total| (total, "the machine's memory")),
        group.map(|limit| (limit as u64, "its control group")),
        rest(Resource::RLIMIT_AS, "VmSize:", "`ulimit -v`"),
        rest(Resource::RLIMIT_DATA, "VmData:", "`ulimit -d`"),
    ];
    let lowest = limits.into_iter().flatten().min_by_key(|limit| limit.0);
    lowest.unwrap_or((u64::MAX, "no limit"))
}

/// True if the process's allocations may fail: because of `ulimit`, or while a load is limited.
static MAY_BE_REFUSED: AtomicBool = AtomicBool::new(false);

/// Memory checked in addition to the next allocation, for other allocations at the same time.
const SPARE_BYTES: usize = 16 << 20;

/// Records whether the process has limits now.
pub(crate) fn note_limits() {
    let is_limited = |resource| getrlimit(resource).is_ok_and(|(soft, _)| soft != RLIM_INFINITY);
    let limited = is_limited(Resource::RLIMIT_AS) || is_limited(Resource::RLIMIT_DATA);
    MAY_BE_REFUSED.store(limited, Relaxed);
}

/// True if `bytes` bytes can be allocated now. Only checked if allocations of the process may fail: an allocation that
/// fails elsewhere ends the process.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    !MAY_BE_REFUSED.load(Relaxed) || {
        let mut trial = Vec::<u8>::new();
        let fits = trial.try_reserve_exact(bytes.saturating_add(SPARE_BYTES)).is_ok();
        std::hint::black_box(&trial);
        fits
    }
}

/// Free memory for this process, in bytes.
fn available() -> u64 {
    let machine = field("/proc/meminfo", "MemAvailable:").unwrap_or(u64::MAX);
    let group = lowest(Path::new("/"), "memory", |version, folder| {
        let (used, reclaimable) = match version {
            CgroupVersion::V2 => ("memory.current", "inactive_file"),
            CgroupVersion::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
        };
        let used: u64 = fs::read_to_string(folder.join(used)).ok()?.trim().parse().ok()?;
        let statistics = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable = number_after(&statistics, reclaimable).unwrap_or(0);
        let limit = group_limit(version, folder)?;
        Some(limit.saturating_sub(used.saturating_sub(reclaimable)) as f64)
    });
    group.map_or(machine, |group| machine.min(group as u64))
}

/// Memory limit of a control group, in bytes.
fn group_limit(version: CgroupVersion, folder: &Path) -> Option<u64> {
    let name = match version {
        CgroupVersion::V2 => "memory.max",
        CgroupVersion::V1 => "memory.limit_in_bytes",
    };
    // `max` means no limit, and is not a number; version 1 reports a number larger than any memory.
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

/// Figure of this process in `/proc/self/status`, in bytes.
fn process_bytes(name: &str) -> u64 {
    field("/proc/self/status", name).unwrap_or(0)
}

/// Value of a line `NAME NUMBER kB` of a file, in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    number_after(&fs::read_to_string(file).ok()?, name)?.checked_mul(1024)
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.next()?.parse().ok())?)
}

/// Loads in progress.
struct Loads {
    count: u64,
    /// `VmData` and limits when the first load started.
    base: u64,
    before: (u64, u64),
}

static LOADS: Mutex<Loads> = Mutex::new(Loads {
    count: 0,
    base: 0,
    before: (RLIM_INFINITY, RLIM_INFINITY),
});

/// Load with limited memory, until this is dropped. Concurrent loads share the sum of their limits.
pub(crate) struct LimitedLoad {
    bytes: u64,
}

impl LimitedLoad {
    /// Starts a load that may take `configured` bytes; 0 means the available memory minus a reserve.
    pub(crate) fn begin(configured: u64) -> Self {
        let available = available();
        let bytes = match configured {
            0 => available.saturating_sub(RESERVE_BYTES.max(available / 10)),
            bytes => bytes,
        };
        let mut loads = LOADS.lock();
        let held = process_bytes("VmData:");
        if loads.count == 0 {
            loads.base = held;
            loads.before = getrlimit(Resource::RLIMIT_DATA).unwrap_or((RLIM_INFINITY, RLIM_INFINITY));
        }
        loads.count += 1;
        let wanted = loads.base.saturating_add(bytes.saturating_mul(loads.count));
        set(wanted.min(held.saturating_add(available)), loads.before);
        Self { bytes }
    }

    /// Adds the limit and its key to an error caused by lack of memory.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        if !is_for_memory(&error.to_string()) {
            return error;
        }
        let bytes = self.bytes;
        anyhow::anyhow!("{error}: loading exceeds {bytes} bytes of memory; raise `runtime.max_load_bytes`")
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

/// Sets the soft limit, never above the previous one.
fn set(soft: u64, before: (u64, u64)) {
    if let Err(error) = setrlimit(Resource::RLIMIT_DATA, soft.min(before.0), before.1) {
        tracing::warn!(%error, "cannot limit the memory of loads");
    }
    note_limits();
}

/// True if ONNX Runtime reports a failed allocation.
pub(crate) fn is_for_memory(error: &str) -> bool {
    let patterns = ["bad_alloc", "bad allocation", "Failed to allocate memory"];
    patterns.iter().any(|pattern| error.contains(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_a_limit_and_the_last_one_gives_the_old_one_back() {
        let before = getrlimit(Resource::RLIMIT_DATA).unwrap();
        let soft = || getrlimit(Resource::RLIMIT_DATA).unwrap().0;
        let first = LimitedLoad::begin(64 << 20);
        let held = process_bytes("VmData:");
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
    fn a_control_group_has_the_limit_of_its_version() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let limit = |version| group_limit(version, folder.path());
        assert_eq!(limit(CgroupVersion::V2), None);
        write("memory.max", "1073741824\n");
        write("memory.limit_in_bytes", "536870912\n");
        assert_eq!(limit(CgroupVersion::V2), Some(1 << 30));
        assert_eq!(limit(CgroupVersion::V1), Some(1 << 29));
        write("memory.max", "max\n");
        assert_eq!(limit(CgroupVersion::V2), None);
    }

    #[test]
    fn memory_is_what_the_tightest_limit_leaves() {
        let (whole, _) = process_limit();
        assert!(whole > 0 && available() <= field("/proc/meminfo", "MemTotal:").unwrap());
        let (_, hard) = getrlimit(Resource::RLIMIT_DATA).unwrap();
        setrlimit(Resource::RLIMIT_DATA, process_bytes("VmData:") + (100 << 20), hard).unwrap();
        let (bytes, by) = process_limit();
        assert!(bytes <= 100 << 20, "{bytes}");
        assert_eq!(by, "`ulimit -d`");
    }
}
