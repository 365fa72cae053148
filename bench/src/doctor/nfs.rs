//! NFS mount of the kernel. In: its options and the system's files. Out: findings (nfs(5) describes the options).

use super::finding::Finding;
use super::tree::Tree;
use tierlab_formats::mounts::Mount;
use tierlab_instrument::units::bytes;

/// Bytes that current servers return for one READ.
const WANTED_RSIZE: u64 = 1 << 20;
/// Read-ahead in KiB from which one stream has several READs in flight.
const WANTED_AHEAD_KB: u64 = 1024;

pub(super) fn findings(tree: &Tree, mount: &Mount) -> Vec<Finding> {
    let mut found = vec![rsize(mount), connections(mount), attributes(mount)];
    found.extend(read_ahead(tree, mount));
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
        .effect(format!(
            "a read of 1 MiB is {} READs",
            WANTED_RSIZE.div_ceil(rsize.max(1))
        ))
        .change("mount with rsize=1048576; the server may allow less")
        .fine_if(rsize >= WANTED_RSIZE)
}

fn connections(mount: &Mount) -> Finding {
    let count: u32 = mount.option("nconnect").and_then(|text| text.parse().ok()).unwrap_or(1);
    if count > 1 {
        return Finding::fine("nconnect", count.to_string());
    }
    Finding::warning("nconnect", "1: one TCP connection for all reads")
        .effect("one connection's rate and one core's network work limit the mount")
        .change("mount with nconnect=8 (Linux 5.3), after all other mounts of the server are gone")
}

fn attributes(mount: &Mount) -> Finding {
    let zero = |key: &str| mount.option(key) == Some("0");
    // The kernel shows `actimeo=0` as its four parts, or as noac.
    if mount.has("noac") || zero("actimeo") || (zero("acregmin") && zero("acregmax")) {
        return Finding::warning("attribute cache (actimeo)", "off")
            .effect("every open waits for the file's attributes from the server")
            .change("mount without noac and actimeo=0; use actimeo=600 for data that never changes");
    }
    let kept = mount.option("actimeo").or_else(|| mount.option("acregmax"));
    let kept = kept.unwrap_or("60");
    Finding::fine("attribute cache (actimeo)", format!("up to {kept} s"))
}

fn read_ahead(tree: &Tree, mount: &Mount) -> Option<Finding> {
    let kb = tree.number(format!("sys/class/bdi/{}/read_ahead_kb", mount.device))?;
    let finding = Finding::warning("read-ahead of the mount", format!("{kb} KiB"))
        .effect("a sequentially read file has at most this much in flight, even on a faster network")
        .change(format!(
            "run `echo 15360 > /sys/class/bdi/{}/read_ahead_kb`",
            mount.device
        ));
    Some(finding.fine_if(kb >= WANTED_AHEAD_KB))
}
