//! Cores and memory of this process, and CPU pinning of its threads.
//!
//! Number of cores that this process may use: its CPU affinity, limited by its control groups' CPU quota. Also pins a
//! session's threads to cores: a pinned thread, and threads that it starts (including ONNX Runtime's), run only there.
//!
//! In: the affinity of the process, `/proc/self/cgroup` and `/proc/self/mountinfo`, and the files that they point to.
//! Out: a number of cores, at least 1, and its source. A missing or unreadable file sets no limit.

pub(crate) mod memory;

use anyhow::{Result, anyhow};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::path::{Component, Path, PathBuf};
use std::{fmt, fs};
use tierlab_formats::mounts::{self, Mount};

/// Maximum levels of control groups that are read.
const MAX_LEVELS: usize = 64;

/// Cores of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cores {
    /// Number of cores; at least 1.
    pub(crate) count: u32,
    /// Number of CPUs that it may run on.
    bound_to: u32,
    /// CPU seconds per second granted by its control groups; `None` without a quota.
    quota: Option<f64>,
    /// True if the number is configured.
    configured: bool,
}

impl Cores {
    /// Cores of the calling process, or `configured` unless it is 0.
    pub(crate) fn of_this_process(configured: u32) -> Self {
        Self::new(configured, affinity(), quota(Path::new("/")))
    }

    fn new(configured: u32, bound_to: u32, quota: Option<f64>) -> Self {
        // A quota of 1.5 keeps two threads busy most of the time; with 1.4, throttling costs more than a second thread
        // gains.
        let by_quota = quota.map_or(u32::MAX, |cores| cores.round() as u32);
        let count = match configured {
            0 => bound_to.min(by_quota),
            count => count,
        };
        Self {
            count: count.max(1),
            bound_to,
            quota,
            configured: configured > 0,
        }
    }
}

/// `2 cores (4 by affinity, 2.00 by cgroup quota)`.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "{} core{plural} (", self.count)?;
        if self.configured {
            f.write_str("`runtime.instances.cores`; ")?;
        }
        write!(f, "{} by affinity, ", self.bound_to)?;
        match self.quota {
            Some(cores) => write!(f, "{cores:.2} by cgroup quota)"),
            None => f.write_str("no cgroup quota)"),
        }
    }
}

/// CPUs that this process may run on.
fn affinity() -> u32 {
    let allowed = sched_getaffinity(Pid::from_raw(0)).ok().map(|set| {
        let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
        (0..CpuSet::count()).filter(is_set).count()
    });
    // The machine has more CPUs than a set holds.
    let others = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(allowed.unwrap_or_else(others)).unwrap_or(u32::MAX)
}

/// Smallest quota among the control groups of this process, in cores; `root` is `/` except in tests.
fn quota(root: &Path) -> Option<f64> {
    lowest(root, "cpu", CgroupVersion::quota)
}

/// Smallest number that `read` finds in the folders of this process's control groups and their parents; `root` is `/`
/// except in tests.
fn lowest(root: &Path, controller: &str, read: impl Fn(CgroupVersion, &Path) -> Option<f64>) -> Option<f64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounted_hierarchies = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut lowest: Option<f64> = None;
    for mount in mounts::all(&mounted_hierarchies) {
        let Some(version) = CgroupVersion::of(&mount, controller) else {
            continue;
        };
        let Some(group) = groups.lines().find_map(|line| version.group(line, controller)) else {
            continue;
        };
        let mounted = root.join(mount.folder.strip_prefix("/").unwrap_or(&mount.folder));
        // A group outside the mounted part is shown as its root, as in a container without a namespace.
        let below = Path::new(group).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        let folder = match below.components().all(is_plain) {
            true => mounted.join(below),
            false => mounted.clone(),
        };
        let levels = folder.ancestors().take_while(|level| level.starts_with(&mounted));
        for level in levels.take(MAX_LEVELS) {
            lowest = [lowest, read(version, level)].into_iter().flatten().reduce(f64::min);
        }
    }
    lowest
}

/// Versions of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

impl CgroupVersion {
    /// Version of a mounted hierarchy that has the controller.
    fn of(mount: &Mount, controller: &str) -> Option<Self> {
        match mount.kind.as_str() {
            "cgroup2" => Some(Self::V2),
            "cgroup" => {
                let mut options = mount.filesystem_options.split(',');
                options.any(|option| option == controller).then_some(Self::V1)
            }
            _ => None,
        }
    }

    /// Group that a line of `/proc/self/cgroup` puts the process into: `0::GROUP`, or `4:cpu,cpuacct:GROUP`.
    fn group<'a>(self, line: &'a str, controller: &str) -> Option<&'a str> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
        let matches = match self {
            Self::V2 => number == "0" && controllers.is_empty(),
            Self::V1 => controllers.split(',').any(|name| name == controller),
        };
        matches.then_some(group)
    }

    /// Quota of a group, in cores.
    fn quota(self, folder: &Path) -> Option<f64> {
        let read = |name: &str| fs::read_to_string(PathBuf::from(folder).join(name)).ok();
        let (quota, period) = match self {
            Self::V2 => {
                let text = read("cpu.max")?;
                let mut fields = text.split_whitespace();
                // `max` means no limit, and is not a number.
                (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)
            }
            Self::V1 => {
                let number = |name| read(name)?.trim().parse().ok();
                (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
            }
        };
        let (quota, period): (i64, i64) = (quota, period);
        // -1 means no limit.
        (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
    }
}

/// CPUs of an instance: the next `each` of `cpus`, starting over after the last.
pub(crate) fn of_instance(cpus: &[u32], instance: u32, each: u32) -> Vec<u32> {
    let (each, len) = (each as usize, cpus.len());
    let from_first = cpus.iter().cycle().skip(instance as usize * each % len.max(1));
    from_first.take(each.min(len)).copied().collect()
}

/// Pins the calling thread; does nothing for an empty list.
///
/// # Errors
/// Fails for a CPU that the machine does not have or the process may not use.
pub(crate) fn pin(cpus: &[u32]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize)
            .map_err(|_| anyhow!("`instances.cpus`: CPU {cpu} exceeds the system's limit"))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|e| anyhow!("`instances.cpus`: cannot run on CPUs {cpus:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    /// Files below a folder that stands for `/`.
    fn quota_of(files: &[(&str, &str)]) -> Option<f64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        quota(root.path())
    }

    #[test]
    fn the_least_quota_on_the_way_up_counts() {
        let files = |own: &'static str, parent: &'static str| {
            quota_of(&[
                ("proc/self/cgroup", "0::/kubepods/pod1/c1\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/kubepods/pod1/c1/cpu.max", own),
                ("sys/fs/cgroup/kubepods/pod1/cpu.max", parent),
                ("sys/fs/cgroup/kubepods/cpu.max", "max 100000\n"),
            ])
        };
        assert_eq!(files("max 100000\n", "max 100000\n"), None);
        assert_eq!(files("max 100000\n", "150000 100000\n"), Some(1.5));
        assert_eq!(files("100000 50000\n", "800000 100000\n"), Some(2.0));
        assert_eq!(files("", "nonsense\n"), None);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_top() {
        let in_namespace = quota_of(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "250000 100000\n"),
        ]);
        assert_eq!(in_namespace, Some(2.5));
        // The paths of the host, of which only the container's own group is mounted.
        let v1 = quota_of(&[
            (
                "proc/self/cgroup",
                "4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
            ),
            (
                "proc/self/mountinfo",
                "41 32 0:37 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro master:16 - cgroup cgroup rw,cpu,cpuacct\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(v1, Some(3.0));
        // A group outside of what is mounted.
        let outside = quota_of(&[
            ("proc/self/cgroup", "0::/../sibling\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
        ]);
        assert_eq!(outside, Some(1.0));
    }

    #[test]
    fn both_versions_at_once_and_no_limits() {
        let mounts = format!("{V2_MOUNT}31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
        let files = |v1: &'static str| {
            quota_of(&[
                ("proc/self/cgroup", "3:cpuset:/\n1:cpu:/\n0::/\n"),
                ("proc/self/mountinfo", &mounts),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", v1),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
            ])
        };
        assert_eq!(files("-1\n"), None);
        assert_eq!(files("50000\n"), Some(0.5));
        assert_eq!(quota_of(&[]), None);
    }

    #[test]
    fn cores_are_rounded_to_the_nearest_and_never_none() {
        for (configured, bound_to, quota, count) in [
            (0, 4, None, 4),
            (0, 4, Some(1.5), 2),
            (0, 4, Some(1.4), 1),
            (0, 4, Some(0.2), 1),
            (0, 4, Some(64.0), 4),
            (0, 0, None, 1),
            (3, 2, Some(1.0), 3),
        ] {
            assert_eq!(
                Cores::new(configured, bound_to, quota).count,
                count,
                "{bound_to} {quota:?}"
            );
        }
        let text = |configured, quota| Cores::new(configured, 4, quota).to_string();
        assert_eq!(text(0, Some(1.5)), "2 cores (4 by affinity, 1.50 by cgroup quota)");
        assert_eq!(
            text(1, None),
            "1 core (`runtime.instances.cores`; 4 by affinity, no cgroup quota)"
        );
    }

    #[test]
    fn a_bound_process_has_the_cores_that_it_is_bound_to() {
        let bound = std::thread::spawn(|| {
            let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let cpu = (0..CpuSet::count()).find(|&cpu| mine.is_set(cpu).unwrap()).unwrap();
            crate::host::pin(&[cpu as u32]).unwrap();
            Cores::of_this_process(0)
        });
        let bound = bound.join().unwrap();
        assert_eq!((bound.count, bound.bound_to), (1, 1));
    }

    proptest! {
        #[test]
        fn no_file_is_too_strange(groups in "[0-9:,/a-z\n.]{0,80}", mounts in "[ 0-9:,/a-z\n.-]{0,120}", max in "[0-9 a-z-]{0,20}") {
            let quota = quota_of(&[
                ("proc/self/cgroup", &groups),
                ("proc/self/mountinfo", &format!("{mounts}\n{V2_MOUNT}")),
                ("sys/fs/cgroup/cpu.max", &max),
            ]);
            prop_assert!(Cores::new(0, 8, quota).count >= 1);
        }
    }

    #[test]
    fn instances_share_the_list_in_turn() {
        let cpus = [4, 5, 6];
        assert_eq!(of_instance(&cpus, 0, 2), [4, 5]);
        assert_eq!(of_instance(&cpus, 1, 2), [6, 4]);
        assert_eq!(of_instance(&cpus, 2, 1), [6]);
        assert_eq!(of_instance(&cpus, 0, 9), [4, 5, 6]);
        assert!(of_instance(&[], 3, 2).is_empty());
    }

    #[test]
    fn a_pinned_thread_stays_where_it_was_put_and_so_do_its_children() {
        let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpu = (0..CpuSet::count()).find(|&cpu| mine.is_set(cpu).unwrap()).unwrap();
        let pinned = std::thread::spawn(move || {
            pin(&[cpu as u32]).unwrap();
            let child = std::thread::spawn(|| sched_getaffinity(Pid::from_raw(0)).unwrap());
            [sched_getaffinity(Pid::from_raw(0)).unwrap(), child.join().unwrap()]
        });
        for set in pinned.join().unwrap() {
            assert!((0..CpuSet::count()).all(|one| set.is_set(one).unwrap() == (one == cpu)));
        }
        assert!(pin(&[1_000_000]).unwrap_err().to_string().contains("1000000"));
        pin(&[]).unwrap();
    }
}
