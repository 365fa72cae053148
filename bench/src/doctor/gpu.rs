//! NVIDIA devices, and requirements for reads into their memory. In: the system's files. Out: findings; empty without a
//! device, unless the tier needs one.

use super::disk::link;
use super::finding::{Finding, Tree};

const DEVICES: &str = "sys/bus/pci/devices";
const NVIDIA: &str = "0x10de";
/// Prefix of the class codes of display and 3D controllers.
const DISPLAY: &str = "0x03";
/// Locations of cuFile in packages and wheels of CUDA; the tier searches the loader's path as well.
const CUFILE: [&str; 3] = [
    "usr/local/cuda/lib64/libcufile.so.0",
    "usr/lib/x86_64-linux-gnu/libcufile.so.0",
    "usr/lib/aarch64-linux-gnu/libcufile.so.0",
];

pub(super) fn findings(tree: &Tree, wanted: bool) -> Vec<Finding> {
    let is_gpu = |name: &String| {
        let text = |file: &str| tree.text(format!("{DEVICES}/{name}/{file}")).unwrap_or_default();
        text("vendor") == NVIDIA && text("class").starts_with(DISPLAY)
    };
    let gpus: Vec<String> = tree.names(DEVICES).into_iter().filter(is_gpu).collect();
    if gpus.is_empty() {
        let none = Finding::warning("GPU", "no NVIDIA device on the PCI bus")
            .effect("a `gds` tier does not open")
            .change("use a machine or a container with one (`--gpus all`)");
        return wanted.then_some(none).into_iter().collect();
    }
    let link = |name: &String| link(tree, &format!("GPU {name}"), &format!("{DEVICES}/{name}"), true);
    let mut found: Vec<Finding> = gpus.iter().map(link).collect();
    found.extend([driver(tree), nvidia_fs(tree), cufile(tree)]);
    found.extend(iommu(tree));
    found
}

fn driver(tree: &Tree) -> Finding {
    let text = tree.text("proc/driver/nvidia/version");
    match text.as_deref().and_then(|text| text.lines().next()) {
        Some(line) => Finding::fine("NVIDIA driver", line.trim_start_matches("NVRM version:").trim()),
        None => Finding::warning("NVIDIA driver", "not loaded")
            .effect("nothing runs on the device")
            .change("install the driver, or start the container with the NVIDIA runtime"),
    }
}

fn nvidia_fs(tree: &Tree) -> Finding {
    match tree.text("proc/driver/nvidia-fs/version") {
        Some(version) => Finding::fine("nvidia-fs", version),
        None => Finding::warning("nvidia-fs", "not loaded")
            .effect("cuFile copies through host memory, unless kernel and driver do peer-to-peer DMA by themselves")
            .change("run `modprobe nvidia-fs` (package nvidia-fs-dkms)"),
    }
}

fn cufile(tree: &Tree) -> Finding {
    let Some(library) = CUFILE.iter().find(|path| tree.has(path)) else {
        return Finding::unknown(
            "cuFile",
            "not in its packages' folders; a `gds` tier also searches the loader's path and `libraries`",
        );
    };
    let settings = tree.text("etc/cufile.json").unwrap_or_default();
    // The file may contain comments, which a JSON parser rejects.
    let mut lines = settings.lines().map(|line| line.replace([' ', '\t'], ""));
    let refuses = lines.any(|line| line.starts_with("\"allow_compat_mode\":false"));
    let mode = if refuses { ", compatibility mode refused" } else { "" };
    Finding::fine("cuFile", format!("/{library}{mode}"))
}

fn iommu(tree: &Tree) -> Option<Finding> {
    let line = tree.text("proc/cmdline")?;
    let mut words = line.split(' ');
    let on = words.find(|word| ["intel_iommu=on", "amd_iommu=on"].contains(word));
    on.filter(|_| !line.contains("iommu=pt")).map(|word| {
        Finding::warning("IOMMU", word)
            .effect("transfers from disk to device go through the root complex, or fail")
            .change("set iommu=off or iommu=pt on the kernel's command line")
    })
}
