//! Limits of the control group. In: the system's files. Out: findings. Both versions of control groups.

use super::finding::{Finding, Tree};
use std::path::Path;
use tierlab_instrument::host::memory_bytes;
use tierlab_instrument::units::{bytes, count_of};

/// Root of the groups.
const ROOT: &str = "sys/fs/cgroup";
/// Value above which a version 1 group has no memory limit; the kernel reports about 2^63.
const NO_LIMIT: u64 = 1 << 60;

pub(super) fn findings(tree: &Tree, cores: usize) -> Vec<Finding> {
    let Some(groups) = tree.text("proc/self/cgroup") else {
        return vec![Finding::unknown("control group", "/proc/self/cgroup cannot be read")];
    };
    let found = [cpu(tree, &groups, cores), memory(tree, &groups), io(tree, &groups)];
    let found: Vec<Finding> = found.into_iter().flatten().collect();
    match found.is_empty() {
        true => vec![Finding::fine("control group", "no limit on CPU, memory or I/O")],
        false => found,
    }
}

/// Texts of a file of the group and of each parent group; in a container the group's own path may be that of the host.
fn texts(tree: &Tree, groups: &str, controller: &str, file: &str) -> Vec<String> {
    // A line is `4:memory:/a/b`, and in version 2 `0::/a/b`.
    let mut lines = groups
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let Some((_, path)) = lines.find(|(names, _)| names.split(',').any(|name| name == controller)) else {
        return Vec::new();
    };
    let base = Path::new(ROOT).join(controller);
    let folders = Path::new(path.trim_matches('/')).ancestors();
    folders
        .filter_map(|folder| tree.text(base.join(folder).join(file)))
        .collect()
}

/// Texts of a file in both versions of control groups: version 2's single hierarchy, then version 1's of the controller.
fn both_versions(tree: &Tree, groups: &str, file: &str, (controller, v1_file): (&str, &str)) -> Vec<String> {
    let mut found = texts(tree, groups, "", file);
    found.extend(texts(tree, groups, controller, v1_file));
    found
}

fn cpu(tree: &Tree, groups: &str, cores: usize) -> Option<Finding> {
    let quotas = texts(tree, groups, "cpu", "cpu.cfs_quota_us");
    let periods = texts(tree, groups, "cpu", "cpu.cfs_period_us");
    let pairs = quotas.iter().zip(&periods);
    let mut limits = texts(tree, groups, "", "cpu.max");
    limits.extend(pairs.map(|(quota, period)| format!("{quota} {period}")));
    // `150000 100000`: microseconds of CPU per period. Without a limit the quota is `max`, and in version 1 -1.
    let share = |text: &String| {
        let (quota, period) = text.split_once(' ')?;
        let share = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
        (share > 0.0).then_some(share)
    };
    let share = limits.iter().filter_map(share).reduce(f64::min)?;
    let all = count_of(cores, "core");
    let of_machine = || format!("{:.0} % of the machine", 100.0 * share / cores as f64);
    (share < cores as f64).then(|| {
        Finding::warning("CPU of the control group", format!("{share:.2} of {all}"))
            .effect("a process that has used its share waits for the next tenth of a second, which shows in the tail")
            .change("remove the CPU limit of the container or service (a request or weight keeps it fair)")
            .measured(throttled(tree, groups).unwrap_or_else(of_machine))
            .times(cores as f64 / share)
    })
}

/// Periods in which the group used up its share, from the group nearest to the process that counts them.
fn throttled(tree: &Tree, groups: &str) -> Option<String> {
    let texts = both_versions(tree, groups, "cpu.stat", ("cpu", "cpu.stat"));
    texts.iter().find_map(|text| {
        let number = |line: &str, name: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
        let value = |name: &str| text.lines().find_map(|line| number(line, name));
        let (throttled, periods) = (value("nr_throttled ")?, value("nr_periods ")?);
        Some(format!("throttled periods so far: {throttled} of {periods}"))
    })
}

fn memory(tree: &Tree, groups: &str) -> Option<Finding> {
    let limits = both_versions(tree, groups, "memory.max", ("memory", "memory.limit_in_bytes"));
    let limits = limits.iter().filter_map(|text| text.parse::<u64>().ok());
    let least = limits.filter(|bytes| *bytes < NO_LIMIT).min()?;
    let all = memory_bytes(&tree.text("proc/meminfo")?)?;
    let used = both_versions(tree, groups, "memory.current", ("memory", "memory.usage_in_bytes"));
    let used = used.first().and_then(|text| text.parse().ok());
    let used = used.map_or_else(|| "an unknown amount".to_owned(), bytes);
    let found = format!("{} of {}", bytes(least), bytes(all));
    (least < all).then(|| {
        Finding::warning("memory of the control group", found)
            .effect("it includes the page cache: warm reads become cold earlier than the machine's memory suggests")
            .change("raise the memory limit of the container or service, or bypass the page cache")
            .measured(format!("{used} in use, page cache included"))
    })
}

fn io(tree: &Tree, groups: &str) -> Option<Finding> {
    let mut limits = Vec::new();
    for text in texts(tree, groups, "", "io.max") {
        limits.extend(text.lines().map(str::to_owned));
    }
    for name in ["read_bps", "read_iops", "write_bps", "write_iops"] {
        for text in texts(tree, groups, "blkio", &format!("blkio.throttle.{name}_device")) {
            limits.extend(text.lines().map(|line| format!("{name} {line}")));
        }
    }
    (!limits.is_empty()).then(|| {
        Finding::warning("I/O of the control group", limits.join("; "))
            .effect("no tier on that device is faster than this")
            .change("remove io.max or blkio.throttle of the group (IOReadBandwidthMax, IOReadIOPSMax of the service)")
            .measured("the limit itself; reads of a tier on that device are measured under it")
    })
}
