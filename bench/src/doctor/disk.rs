//! Block device below a folder, and the NVMe devices of the machine. In: the system's files. Out: findings.

use super::finding::Finding;
use super::pcie::link;
use super::tree::{Tree, bracketed};
use tierlab_instrument::mounts::Mount;

/// Read-ahead in KiB from which a random read through the page cache fetches far more than requested.
const MUCH_AHEAD_KB: u64 = 512;
/// Read-ahead in KiB below which a sequential read is split into many small reads.
const LITTLE_AHEAD_KB: u64 = 64;

/// Checks the file system of a folder, and its device.
pub(super) fn below(tree: &Tree, mount: &Mount) -> Vec<Finding> {
    let mut found = vec![filesystem(mount)];
    found.extend(access_times(mount));
    if let Some(disk) = disk(tree, &mount.device) {
        let queue = format!("sys/class/block/{disk}/queue");
        found.extend(scheduler(tree, &disk, &queue));
        found.extend(read_ahead(tree, &disk, &queue));
        found.extend(layers(tree, &disk));
    }
    found
}

/// Returns the name of the whole disk, also for a partition.
fn disk(tree: &Tree, device: &str) -> Option<String> {
    let folder = format!("sys/dev/block/{device}");
    let name = tree.link_name(&folder)?;
    if !tree.has(format!("{folder}/partition")) {
        return Some(name);
    }
    let disks = tree.names("sys/block");
    disks
        .into_iter()
        .find(|disk| tree.has(format!("sys/block/{disk}/{name}")))
}

fn filesystem(mount: &Mount) -> Finding {
    let found = format!("{} on {}, {}", mount.kind, mount.source, mount.options);
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => Finding::warning("file system", found)
            .effect("it lies in memory: nothing of a disk is measured, and O_DIRECT is refused or means nothing")
            .change("a folder on the disk that is meant"),
        "overlay" => Finding::warning("file system", found)
            .effect("a container's layers lie between the folder and its disk")
            .change("a volume: a folder of the host mounted into the container"),
        kind if kind.starts_with("fuse") => Finding::warning("file system", found)
            .effect("every call goes through another process")
            .change("the tier of the storage behind it (s3, nfs), or a mount of the kernel"),
        _ => Finding::fine("file system", found),
    }
}

fn access_times(mount: &Mount) -> Vec<Finding> {
    let mut found = Vec::new();
    if !mount.has("noatime") && !mount.has("relatime") && !mount.kind.starts_with("nfs") {
        found.push(
            Finding::warning("access times", "strictatime: neither noatime nor relatime")
                .effect("every read of a file writes when it was read")
                .change("mount -o remount,noatime"),
        );
    }
    if mount.has("discard") {
        found.push(
            Finding::warning("discard", "at once, with every delete")
                .effect("deletes wait for the device, and reads beside them too")
                .change("mount -o remount,nodiscard, and fstrim.timer in its place"),
        );
    }
    if mount.has("sync") {
        found.push(
            Finding::warning("synchronous mount", "sync")
                .effect("every write waits for the device")
                .change("mount -o remount,async"),
        );
    }
    found
}

fn scheduler(tree: &Tree, disk: &str, queue: &str) -> Option<Finding> {
    let text = tree.text(format!("{queue}/scheduler"))?;
    let about = format!("I/O scheduler of {disk}");
    let chosen = bracketed(&text).unwrap_or(&text);
    if tree.number(format!("{queue}/rotational")) == Some(1) {
        let found = format!("{chosen}, a device that says that it spins");
        return Some(Finding::fine(about, found));
    }
    let is_fast = chosen == "none" || (chosen == "mq-deadline" && !disk.starts_with("nvme"));
    let finding = Finding::warning(about, chosen)
        .effect("it takes CPU and locks for each request, which a flash device has no use for")
        .change(format!("echo none > /sys/block/{disk}/queue/scheduler"));
    Some(finding.fine_if(is_fast))
}

fn read_ahead(tree: &Tree, disk: &str, queue: &str) -> Option<Finding> {
    let kb = tree.number(format!("{queue}/read_ahead_kb"))?;
    let about = format!("read-ahead of {disk}");
    let found = format!("{kb} KiB");
    let change = |to: u64| format!("echo {to} > /sys/block/{disk}/queue/read_ahead_kb; direct reads do not have any");
    Some(match kb {
        MUCH_AHEAD_KB.. => Finding::warning(about, found)
            .effect("reads through the page cache and memory maps may fetch far more than they ask for")
            .change(change(128)),
        ..LITTLE_AHEAD_KB => Finding::warning(about, found)
            .effect("files that are read in order through the page cache wait for each small piece")
            .change(change(128)),
        _ => Finding::fine(about, found),
    })
}

/// Layers between the file system and the device.
fn layers(tree: &Tree, disk: &str) -> Option<Finding> {
    let uuid = tree.text(format!("sys/class/block/{disk}/dm/uuid")).unwrap_or_default();
    if uuid.starts_with("CRYPT-") {
        let change =
            "cryptsetup refresh --perf-no_read_workqueue, a device that encrypts by itself, or a folder without";
        return Some(
            Finding::warning(format!("encryption of {disk}"), "dm-crypt")
                .effect("each byte is decrypted by a core, by default on another thread")
                .change(change),
        );
    }
    disk.starts_with("loop").then(|| {
        Finding::warning(format!("loop device {disk}"), "a file stands for the disk")
            .effect("every read goes through a second file system and its page cache")
            .change("a folder on the disk itself")
    })
}

/// Checks the links of all NVMe devices.
pub(super) fn nvme(tree: &Tree) -> Vec<Finding> {
    let devices = tree.names("sys/class/nvme");
    devices
        .iter()
        .map(|name| link(tree, name, &format!("sys/class/nvme/{name}/device"), false))
        .collect()
}
