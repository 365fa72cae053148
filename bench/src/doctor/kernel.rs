//! Kernel settings, and limits of the process. In: the system's files. Out: findings.

use super::finding::{Finding, Tree, bracketed};
use std::collections::BTreeSet;
use std::io;
use tierlab_instrument::units;

/// Open files that a run with a thousand connections needs.
const MIN_OPEN_FILES: u64 = 4096;
/// Share of the cores that other processes may use without a disturbance.
const MAX_LOAD_SHARE: f64 = 0.25;

/// Runs all checks; `pinned_bytes` is the memory that the tier registers with the kernel.
pub(super) fn findings(tree: &Tree, pinned_bytes: u64, ring: &io::Result<()>) -> Vec<Finding> {
    let cores = online(tree);
    let mut found = vec![io_uring(tree, ring)];
    found.extend(limits(tree, pinned_bytes));
    found.extend([governor(tree), huge_pages(tree), numa(tree)]);
    found.extend(affinity(tree, cores));
    found.extend(load(tree, cores));
    found
}

/// Number of online CPUs; 1 if unknown. The process's own number would hide a limit of the control group.
pub(super) fn online(tree: &Tree) -> usize {
    let text = tree.text("sys/devices/system/cpu/online").unwrap_or_default();
    count_list(&text).unwrap_or(1)
}

/// Rest of the first line that begins with a name.
fn rest_of_line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

/// Counts the numbers of a list such as `0-3,8`.
fn count_list(text: &str) -> Option<usize> {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.split(',').map(count).sum()
}

fn affinity(tree: &Tree, cores: usize) -> Option<Finding> {
    let status = tree.text("proc/self/status")?;
    let list = rest_of_line(&status, "Cpus_allowed_list:")?;
    let (allowed, all) = (count_list(list)?, units::count_of(cores, "CPU"));
    let finding = Finding::warning("CPU affinity", format!("{allowed} of {all}, {}", list.trim()))
        .effect("the measured and the measuring processes share them while others may be idle")
        .change("run without taskset, or enlarge the container's cpuset")
        .measured(format!("{:.0} % of the CPUs", 100.0 * allowed as f64 / cores as f64))
        .times(cores as f64 / allowed.max(1) as f64);
    Some(finding.fine_if(allowed >= cores))
}

fn io_uring(tree: &Tree, ring: &io::Result<()>) -> Finding {
    let about = "io_uring";
    let Err(error) = ring else {
        return Finding::fine(about, "available");
    };
    let why = match tree.text("proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("1") => ": only for members of kernel.io_uring_group and privileged processes",
        Some("2") => ": disabled for all",
        _ if error.kind() == io::ErrorKind::PermissionDenied => ", although the kernel allows it: a seccomp filter",
        _ => "",
    };
    Finding::warning(about, format!("refused, {error}{why}"))
        .effect("the nvme tier does not open; local files can only be read by blocking calls")
        .change(
            "run `sysctl kernel.io_uring_disabled=0`; in a container use a seccomp profile that permits io_uring_setup, io_uring_enter and \
             io_uring_register",
        )
        .times(f64::INFINITY)
}

/// Parses a limit from `Max open files 1024 4096 files`, or from `unlimited`.
fn limit(text: &str, name: &str) -> Option<u64> {
    match rest_of_line(text, name)?.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn amount(limit: u64, text: fn(u64) -> String) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        limit => text(limit),
    }
}

fn limits(tree: &Tree, pinned_bytes: u64) -> Vec<Finding> {
    let Some(text) = tree.text("proc/self/limits") else {
        return vec![Finding::unknown(
            "limits of the process",
            "/proc/self/limits cannot be read",
        )];
    };
    let mut found = Vec::new();
    if let Some(locked) = limit(&text, "Max locked memory") {
        let finding = Finding::warning("locked memory (RLIMIT_MEMLOCK)", amount(locked, units::bytes))
            .effect("the kernel maps the memory of each read")
            .change("run `ulimit -l unlimited`, set LimitMEMLOCK=infinity of the service, or lower `registered_buffers_bytes`")
            .measured(format!("registered buffers: {}", units::bytes(pinned_bytes)));
        found.push(finding.fine_if(locked >= pinned_bytes));
    }
    if let Some(files) = limit(&text, "Max open files") {
        let finding = Finding::warning("open files (RLIMIT_NOFILE)", amount(files, |files| files.to_string()))
            .effect("a run with many connections or files fails")
            .change("run `ulimit -n 65536`, or set LimitNOFILE=65536 of the service");
        found.push(finding.fine_if(files >= MIN_OPEN_FILES));
    }
    found
}

fn governor(tree: &Tree) -> Finding {
    let about = "CPU governor";
    let cpus = tree.names("sys/devices/system/cpu");
    let file = |cpu: &String, name: &str| tree.text(format!("sys/devices/system/cpu/{cpu}/cpufreq/{name}"));
    let governor = |cpu: &String| file(cpu, "scaling_governor");
    let governors: BTreeSet<String> = cpus.iter().filter_map(governor).collect();
    let found = Vec::from_iter(governors).join(", ");
    if found.is_empty() {
        return Finding::unknown(about, "not visible: a virtual machine's host decides");
    }
    let is_fine = found == "performance";
    let mhz = |cpu: &String, name: &str| Some(file(cpu, name)?.parse::<u64>().ok()? / 1000);
    let clock = |cpu: &String| Some((mhz(cpu, "scaling_cur_freq")?, mhz(cpu, "cpuinfo_max_freq")?));
    let slowest = cpus.iter().filter_map(clock).min();
    let mut finding = Finding::warning(about, found)
        .effect("the clock follows the load: equal runs differ, and light loads are slow")
        .change("run `cpupower frequency-set -g performance`");
    finding.measured = slowest.map(|(now, max)| format!("slowest CPU at {now} of {max} MHz now; effect not measured"));
    finding.fine_if(is_fine)
}

fn huge_pages(tree: &Tree) -> Finding {
    let about = "transparent huge pages";
    let Some(text) = tree.text("sys/kernel/mm/transparent_hugepage/enabled") else {
        return Finding::unknown(about, "not supported by this kernel");
    };
    let events = tree.text("proc/vmstat").unwrap_or_default();
    let stalls = rest_of_line(&events, "compact_stall ").unwrap_or("an unknown number of");
    match bracketed(&text) {
        Some("always") => Finding::warning(about, "always")
            .effect("requests wait for memory compaction, which shows in the tail")
            .change("run `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`")
            .measured(format!("waits for compaction since the start of the machine: {stalls}")),
        Some(word) => Finding::fine(about, word),
        None => Finding::unknown(about, text),
    }
}

fn numa(tree: &Tree) -> Finding {
    let cpus = |node: &String| tree.text(format!("sys/devices/system/node/{node}/cpulist"));
    let node = |node: &String| Some(format!("{node} has CPUs {}", cpus(node)?));
    let names = tree.names("sys/devices/system/node");
    let mut nodes: Vec<String> = names.iter().filter_map(node).collect();
    let count = nodes.len();
    // The number is in the folder of the device, or of a bus above it.
    let disk = |disk: &String| {
        let mut above = (0..6).map(|up| format!("sys/block/{disk}/device/{}numa_node", "../".repeat(up)));
        let node = above.find_map(|file| tree.number(file))?;
        Some(format!("{disk} is on node{node}"))
    };
    nodes.extend(tree.names("sys/block").iter().filter_map(disk));
    let status = tree.text("proc/self/status").unwrap_or_default();
    let own = rest_of_line(&status, "Cpus_allowed_list:").unwrap_or_default().trim();
    let figure = format!("CPUs of this process: {own}; {}; effect not measured", nodes.join(", "));
    match count {
        0 => Finding::unknown("NUMA", "not visible"),
        1 => Finding::fine("NUMA", "one node"),
        _ => Finding::warning("NUMA", format!("{count} nodes"))
            .effect("reads take longer and vary if threads or memory are on another node than the device")
            .measured(figure)
            .change("run with `numactl --cpunodebind=N --membind=N`, where N is the device's numa_node"),
    }
}

fn load(tree: &Tree, cores: usize) -> Option<Finding> {
    let text = tree.text("proc/loadavg")?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let found = format!("{load:.2} processes running or waiting (mean of one minute), cores: {cores}");
    let finding = Finding::warning("other work", found)
        .effect("it shares the cores with the measurement")
        .change("stop it, or wait until `uptime` shows a low load")
        .measured(format!("{:.1} per core", load / cores as f64))
        .times((load / cores as f64).max(1.0));
    Some(finding.fine_if(load <= MAX_LOAD_SHARE * cores as f64))
}
