//! Block device or NFS mount below a folder, the NVMe devices of the machine, and links on the PCI bus. In: the system's files. Out: findings.

use super::finding::{Finding, Tree, bracketed};
use tierlab_formats::mounts::Mount;
use tierlab_instrument::units::{bytes, digits3};

/// Read-ahead in KiB from which a random read through the page cache fetches far more than requested.
const HIGH_READ_AHEAD_KB: u64 = 512;
/// Read-ahead in KiB below which a sequential read is split into many small reads.
const LOW_READ_AHEAD_KB: u64 = 64;
/// Bytes that current servers return for one READ.
const TYPICAL_RSIZE: u64 = 1 << 20;
/// Read-ahead in KiB from which one stream has several READs in flight.
const MIN_NFS_READ_AHEAD_KB: u64 = 1024;

/// Effect of a large read-ahead; a small one affects sequential reads.
pub(super) const FETCHES_MORE: &str = "reads through the page cache and memory maps may fetch far more than requested";

/// Checks the file system of a folder, and its device.
pub(super) fn check_folder(tree: &Tree, mount: &Mount) -> Vec<Finding> {
    let mut found = vec![filesystem(mount)];
    found.extend(mount_options(mount));
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
    let mut disks = tree.names("sys/block").into_iter();
    disks.find(|disk| tree.has(format!("sys/block/{disk}/{name}")))
}

fn filesystem(mount: &Mount) -> Finding {
    let found = format!("{} on {}, {}", mount.kind, mount.source, mount.options);
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => Finding::warning("file system", found)
            .effect("data is in memory: no disk is measured, and O_DIRECT is refused or has no effect")
            .change("choose a folder on the disk to measure"),
        "overlay" => Finding::warning("file system", found)
            .effect("container layers are between the folder and its disk")
            .change("use a volume: mount a folder of the host into the container"),
        kind if kind.starts_with("fuse") => Finding::warning("file system", found)
            .effect("every call goes through another process")
            .change("use the tier of the storage behind it (s3, nfs), or a kernel mount"),
        _ => Finding::fine("file system", found),
    }
}

/// Checks the options of a mount that cost time. Their effect shows only without them.
fn mount_options(mount: &Mount) -> Vec<Finding> {
    let compare = |what: &str| format!("effect not measured: compare {what} before and after the change");
    let strict = Finding::warning("access times", "strictatime: neither noatime nor relatime")
        .effect("every read of a file writes its access time")
        .measured(compare("reads of 4 KiB"))
        .change("run `mount -o remount,noatime`");
    let discard = Finding::warning("discard", "on every delete")
        .effect("deletes, and reads at the same time, wait for the device")
        .measured(compare("the p99 of reads while large files are deleted"))
        .change("run `mount -o remount,nodiscard`, and enable fstrim.timer instead");
    let sync = Finding::warning("synchronous mount", "sync")
        .effect("every write waits for the device")
        .measured(compare("`dd if=/dev/zero of=FILE bs=4k count=1000`"))
        .change("run `mount -o remount,async`");
    let is_strict = !mount.has("noatime") && !mount.has("relatime");
    let mut found = Vec::from_iter(is_strict.then_some(strict));
    found.extend(mount.has("discard").then_some(discard));
    found.extend(mount.has("sync").then_some(sync));
    found
}

fn scheduler(tree: &Tree, disk: &str, queue: &str) -> Option<Finding> {
    let text = tree.text(format!("{queue}/scheduler"))?;
    let about = format!("I/O scheduler of {disk}");
    let scheduler = bracketed(&text).unwrap_or(&text);
    let setting = |name: &str| format!("{name} {}", tree.text(format!("{queue}/{name}")).unwrap_or_default());
    let settings = ["nr_requests", "read_ahead_kb"].map(setting).join(", ");
    if tree.number(format!("{queue}/rotational")) == Some(1) {
        let found = format!("{scheduler}, a device that reports itself as rotational");
        return Some(Finding::fine(about, found).measured(settings));
    }
    let is_fast = scheduler == "none" || (scheduler == "mq-deadline" && !disk.starts_with("nvme"));
    let finding = Finding::warning(about, scheduler)
        .effect("it costs CPU and locks per request, without benefit on a flash device")
        .measured(settings)
        .change(format!("run `echo none > /sys/block/{disk}/queue/scheduler`"));
    Some(finding.fine_if(is_fast))
}

fn read_ahead(tree: &Tree, disk: &str, queue: &str) -> Option<Finding> {
    let kb = tree.number(format!("{queue}/read_ahead_kb"))?;
    let about = format!("read-ahead of {disk}");
    let found = format!("{kb} KiB");
    let change =
        |to: u64| format!("run `echo {to} > /sys/block/{disk}/queue/read_ahead_kb`; direct reads have no read-ahead");
    Some(match kb {
        HIGH_READ_AHEAD_KB.. => Finding::warning(about, found).effect(FETCHES_MORE).change(change(128)),
        ..LOW_READ_AHEAD_KB => Finding::warning(about, found)
            .effect("sequential reads through the page cache wait for each small piece")
            .change(change(128)),
        _ => Finding::fine(about, found),
    })
}

/// Layers between the file system and the device.
fn layers(tree: &Tree, disk: &str) -> Option<Finding> {
    let uuid = tree.text(format!("sys/class/block/{disk}/dm/uuid")).unwrap_or_default();
    if uuid.starts_with("CRYPT-") {
        let change = "run `cryptsetup refresh --perf-no_read_workqueue`, or use a self-encrypting device or an unencrypted folder";
        return Some(
            Finding::warning(format!("encryption of {disk}"), "dm-crypt")
                .effect("a CPU core decrypts each byte, by default on another thread")
                .change(change),
        );
    }
    disk.starts_with("loop").then(|| {
        Finding::warning(format!("loop device {disk}"), "the disk is a file")
            .effect("every read goes through a second file system and its page cache")
            .change("choose a folder on the disk itself")
    })
}

/// Checks the links of all NVMe devices.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let names = tree.names("sys/class/nvme");
    let link = |name: &String| link(tree, name, &format!("sys/class/nvme/{name}/device"), false);
    names.iter().map(link).collect()
}

/// Checks the link of one device. For a device that lowers its speed while idle, only the width is checked.
pub(super) fn link(tree: &Tree, about: &str, folder: &str, slows_when_idle: bool) -> Finding {
    let about = format!("PCIe link of {about}");
    // A speed is such as `8.0 GT/s PCIe`.
    let number = |name: &str| {
        let text = tree.text(format!("{folder}/{name}"))?;
        let number: f64 = text.split(' ').next()?.parse().ok()?;
        (number > 0.0).then_some(number)
    };
    let speeds = number("current_link_speed").zip(number("max_link_speed"));
    let widths = number("current_link_width").zip(number("max_link_width"));
    let (Some((speed, max_speed)), Some((width, max_width))) = (speeds, widths) else {
        return Finding::unknown(about, "not visible: a virtual device, or one on another bus");
    };
    let found = format!("{speed} GT/s x{width}, maximum {max_speed} GT/s x{max_width}");
    let speed_share = if slows_when_idle { 1.0 } else { speed / max_speed };
    let share = speed_share * width / max_width;
    Finding::warning(about, found)
        .effect("the link is slower than the device")
        .measured(format!("at most {:.0} % of the device's bandwidth", share * 100.0))
        .change("change the slot, riser or BIOS setting; power-cycle a link that lowered its speed after errors")
        .fine_if(share >= 1.0)
}

/// Checks an NFS mount of the kernel; nfs(5) describes its options.
pub(super) fn nfs(tree: &Tree, mount: &Mount) -> Vec<Finding> {
    let mut found = vec![rsize(mount), connections(mount), attributes(mount)];
    found.extend(mount_read_ahead(tree, mount));
    if mount.option("proto").is_some_and(|proto| proto.starts_with("udp")) {
        found.push(
            Finding::warning("transport of the mount", "UDP")
                .effect("a lost packet costs a timeout, and long READs are made of many")
                .change("mount with proto=tcp, or with proto=rdma if client and server support it"),
        );
    }
    if !mount.has("noatime") && !mount.has("relatime") {
        found.push(Finding::unknown(
            "access times",
            "decided by the server; not visible here",
        ));
    }
    found
}

fn rsize(mount: &Mount) -> Finding {
    let Some(rsize) = mount.option("rsize").and_then(|text| text.parse::<u64>().ok()) else {
        return Finding::unknown("rsize", "not reported by the mount");
    };
    Finding::warning("rsize", bytes(rsize))
        .effect("large reads are split into many READs")
        .measured(format!("READs for 1 MiB: {}", TYPICAL_RSIZE.div_ceil(rsize.max(1))))
        .change("mount with rsize=1048576; the server may allow less")
        .fine_if(rsize >= TYPICAL_RSIZE)
}

fn connections(mount: &Mount) -> Finding {
    let count: u32 = mount.option("nconnect").and_then(|text| text.parse().ok()).unwrap_or(1);
    Finding::warning("nconnect", count.to_string())
        .effect("one connection's rate and one core's network work limit the mount")
        .change("mount with nconnect=8 (Linux 5.3), after all other mounts of the server are gone")
        .fine_if(count > 1)
}

fn attributes(mount: &Mount) -> Finding {
    let zero = |key: &str| mount.option(key) == Some("0");
    // The kernel shows `actimeo=0` as its four parts, or as noac.
    if mount.has("noac") || zero("actimeo") || (zero("acregmin") && zero("acregmax")) {
        return Finding::warning("attribute cache (actimeo)", "off")
            .effect("every open waits for the file's attributes from the server")
            .change("mount without noac and actimeo=0; use actimeo=600 for data that never changes");
    }
    let seconds = mount.option("actimeo").or_else(|| mount.option("acregmax"));
    let found = format!("up to {} s", seconds.unwrap_or("60"));
    Finding::fine("attribute cache (actimeo)", found)
}

fn mount_read_ahead(tree: &Tree, mount: &Mount) -> Option<Finding> {
    let file = format!("sys/class/bdi/{}/read_ahead_kb", mount.device);
    let kb = tree.number(&file)?;
    let most = digits3(kb as f64 * 1.024);
    let finding = Finding::warning("read-ahead of the mount", format!("{kb} KiB"))
        .effect("a sequentially read file has at most this much in flight, even on a faster network")
        .measured(format!("at most {most} MB/s with 1 ms for each READ"))
        .change(format!("run `echo 15360 > /{file}`"));
    Some(finding.fine_if(kb >= MIN_NFS_READ_AHEAD_KB))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_link_below_its_best_is_told_with_its_share() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::at(folder.path());
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(link(&tree, "nvme0", ".", false).level, Level::Unknown);
        write("current_link_speed", "8.0 GT/s PCIe\n");
        write("max_link_speed", "16.0 GT/s PCIe\n");
        write("current_link_width", "2\n");
        write("max_link_width", "4\n");
        let finding = link(&tree, "nvme0", ".", false);
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.measured.unwrap().contains("25 %"));
        assert!(link(&tree, "gpu", ".", true).measured.unwrap().contains("50 %"));
        write("current_link_width", "4\n");
        assert_eq!(link(&tree, "gpu", ".", true).level, Level::Fine);
        write("current_link_speed", "Unknown\n");
        assert_eq!(link(&tree, "nvme0", ".", false).level, Level::Unknown);
    }
}
