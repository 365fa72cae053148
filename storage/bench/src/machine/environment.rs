//! Environment of a run. In: folders. Out: the machine in words.

use super::mounts::holding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Machine and build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) version: String,
    /// File system, device and mount options below the scratch folders.
    pub(crate) filesystems: BTreeMap<PathBuf, String>,
    /// Load average over one minute at the start.
    pub(crate) load_average: String,
}

impl Environment {
    pub(crate) fn here(folders: &[PathBuf]) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(key))
                .and_then(|line| line.split_once(':'));
            line.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = value(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        Self {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            cpu: value(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            filesystems: folders
                .iter()
                .map(|folder| (folder.clone(), mount(&mounts, folder).unwrap_or_default()))
                .collect(),
            load_average: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the innermost mount that holds a folder: `ext4 on /dev/vda, rw,relatime`.
fn mount(mounts: &str, folder: &Path) -> Option<String> {
    let mount = holding(mounts, &folder.canonicalize().ok()?)?;
    Some(format!("{} on {}, {}", mount.kind, mount.source, mount.options))
}
