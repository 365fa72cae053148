//! The machine that measures: CPU, memory, kernel, the file systems below folders, and its page cache. In: `/proc`,
//! and files. Out: facts, `unknown` if not available.

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use tierlab_formats::mounts::mount_of;

const UNKNOWN: &str = "unknown";

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Host {
    /// CPU model as the kernel names it.
    pub cpu: String,
    /// Logical cores of the machine; 0 if unknown.
    pub cores: u32,
    /// Memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Host {
    /// This machine.
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or_else(|| UNKNOWN.to_owned()),
            cores: cores(&cpuinfo),
            memory_bytes: memory_bytes(&read("/proc/meminfo")).unwrap_or_default(),
            kernel: if kernel.is_empty() { UNKNOWN.to_owned() } else { kernel },
        }
    }
}

/// All online cores: a control group or an affinity may allow this process fewer.
fn cores(cpuinfo: &str) -> u32 {
    cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let value = |key: &str| fields().find(|(name, _)| name.trim() == key);
    let keys = ["model name", "Model", "Hardware", "Processor"];
    let (_, model) = keys.into_iter().find_map(value)?;
    Some(model.trim().to_owned())
}

/// Total memory in bytes, from the text of `/proc/meminfo`.
pub fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// Type, device and options of the file system that holds a path.
pub fn filesystem(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount_of(&mounts, &path).map_or_else(|| UNKNOWN.to_owned(), |mount| mount.to_string())
}

/// Drops a file from the page cache and returns its length. Writes it out first, because `POSIX_FADV_DONTNEED` only
/// drops clean pages. Pages mapped by another process stay. A remote origin's cache is not affected.
///
/// # Errors
/// The file cannot be opened or written out, or the file system does not support dropping.
pub fn drop_cached(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    file.sync_data()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(file.metadata()?.len())
}

/// Drops every file below `folder` from the page cache, like [`drop_cached`].
///
/// # Errors
/// A folder cannot be read, or a file cannot be dropped.
pub fn drop_cached_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_cached_below(&entry.path())?;
        } else if kind.is_file() {
            drop_cached(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let here = Host::here();
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20, "{here:?}");
        assert_ne!(here.kernel, UNKNOWN);
        assert_ne!(filesystem(Path::new("/")), UNKNOWN);
    }

    #[test]
    fn cores_are_those_of_the_machine() {
        assert_eq!(cores("processor : 0\nmodel name\t: A 1\n\nprocessor : 1\n"), 2);
    }

    #[test]
    fn a_cpu_without_a_model_name_is_known_by_another_key() {
        assert_eq!(cpu_model("processor : 0\nmodel name\t: A 1\n").unwrap(), "A 1");
        assert_eq!(cpu_model("processor : 0\nHardware\t: BCM\n").unwrap(), "BCM");
        assert_eq!(cpu_model("processor : 0\n"), None);
    }

    #[test]
    fn every_file_below_is_dropped_and_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("in")).unwrap();
        fs::write(folder.path().join("a"), [1; 5_000]).unwrap();
        fs::write(folder.path().join("in/b"), [2; 100]).unwrap();
        assert_eq!(drop_cached(&folder.path().join("in/b")).unwrap(), 100);
        drop_cached_below(folder.path()).unwrap();
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), [1; 5_000]);
        assert!(drop_cached_below(&folder.path().join("none")).is_err());
    }
}
