//! Kernel settings, and limits of the process. In: the system's files. Out: findings.

use super::finding::Finding;
use super::tree::{Tree, bracketed};
use tierlab_instrument::units;

/// Open files that a run with a thousand connections needs.
const ENOUGH_FILES: u64 = 4096;
/// Share of the cores that other processes may use without a disturbance.
const QUIET: f64 = 0.25;

/// Runs all checks; `pinned_bytes` is the memory that the tier registers with the kernel.
pub(super) fn findings(tree: &Tree, cores: usize, pinned_bytes: u64) -> Vec<Finding> {
    let mut found = vec![io_uring(tree)];
    found.extend(limits(tree, pinned_bytes));
    found.extend([governor(tree), huge_pages(tree), numa(tree)]);
    found.extend(load(tree, cores));
    found
}

fn io_uring(tree: &Tree) -> Finding {
    let about = "io_uring";
    let change = "sysctl kernel.io_uring_disabled=0; in a container a seccomp profile that permits io_uring_setup, \
                  io_uring_enter and io_uring_register";
    let effect = "the nvme tier does not open; without it local files are read by blocking calls";
    match tree.text("proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("0") => Finding::fine(about, "allowed"),
        Some("1") => Finding::warning(
            about,
            "only for members of kernel.io_uring_group and privileged processes",
        )
        .effect(effect)
        .change(change),
        Some(_) => Finding::warning(about, "disabled for all")
            .effect(effect)
            .change(change),
        None => Finding::unknown(
            about,
            "this kernel has no switch for it (older than 6.6): the nvme tier tells when it is opened",
        ),
    }
}

/// Parses a limit from `Max open files 1024 4096 files`, or from `unlimited`.
fn limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn amount(bytes: u64) -> String {
    if bytes == u64::MAX {
        "unlimited".to_owned()
    } else {
        units::bytes(bytes)
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
        let (about, is) = ("locked memory (RLIMIT_MEMLOCK)", amount(locked));
        found.push(if locked < pinned_bytes {
            Finding::warning(
                about,
                format!("{is}, and the tier registers {}", units::bytes(pinned_bytes)),
            )
            .effect("reads go into memory that the kernel maps for each of them")
            .change("ulimit -l unlimited, LimitMEMLOCK=infinity of the service, or a smaller registered_buffers_bytes")
        } else {
            Finding::fine(about, is)
        });
    }
    if let Some(files) = limit(&text, "Max open files") {
        let shown = match files {
            u64::MAX => "unlimited".to_owned(),
            files => files.to_string(),
        };
        let finding = Finding::warning("open files (RLIMIT_NOFILE)", shown)
            .effect("a run with many connections or files ends in errors")
            .change("ulimit -n 65536, or LimitNOFILE=65536 of the service");
        found.push(finding.fine_if(files >= ENOUGH_FILES));
    }
    found
}

fn governor(tree: &Tree) -> Finding {
    let about = "CPU governor";
    let cpus = tree.names("sys/devices/system/cpu");
    let of = |cpu: &String| tree.text(format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"));
    let mut governors: Vec<String> = cpus.iter().filter_map(of).collect();
    governors.sort();
    governors.dedup();
    match governors.as_slice() {
        [] => Finding::unknown(about, "not to be seen: a virtual machine's host decides"),
        [only] if only == "performance" => Finding::fine(about, "performance"),
        others => Finding::warning(about, others.join(", "))
            .effect("the clock follows the load, so that the same run differs and light loads are slow")
            .change("cpupower frequency-set -g performance"),
    }
}

fn huge_pages(tree: &Tree) -> Finding {
    let about = "transparent huge pages";
    let Some(text) = tree.text("sys/kernel/mm/transparent_hugepage/enabled") else {
        return Finding::unknown(about, "this kernel has none");
    };
    let chosen = bracketed(&text);
    match chosen {
        Some("always") => Finding::warning(about, "always")
            .effect("memory is compacted while requests wait for it, which shows in the tail")
            .change("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(word) => Finding::fine(about, word),
        None => Finding::unknown(about, text),
    }
}

fn numa(tree: &Tree) -> Finding {
    let names = tree.names("sys/devices/system/node");
    let is_node = |name: &&String| {
        name.strip_prefix("node")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let nodes = names.iter().filter(is_node).count();
    match nodes {
        0 => Finding::unknown("NUMA", "not to be seen"),
        1 => Finding::fine("NUMA", "one node"),
        nodes => Finding::warning("NUMA", format!("{nodes} nodes"))
            .effect(
                "threads and memory away from the device's node make each read longer, and differently so from run to \
                 run",
            )
            .change("numactl --cpunodebind=N --membind=N, N being numa_node of the device"),
    }
}

fn load(tree: &Tree, cores: usize) -> Option<Finding> {
    let text = tree.text("proc/loadavg")?;
    let load: f64 = text.split(' ').next()?.parse().ok()?;
    let found = format!("{load:.2} processes ready to run on {cores} cores, mean of a minute");
    let finding = Finding::warning("other work", found)
        .effect("it shares the cores with what is measured")
        .change("end it, or wait: `uptime` tells when it is over");
    Some(finding.fine_if(load <= QUIET * cores as f64))
}
