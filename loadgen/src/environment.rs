//! Environment of a run. In: `/proc`, this build, the server's build info. Out: an [`Environment`]. Values that cannot
//! be found are marked unknown.

use crate::server::scrape::Scrape;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Environment;
use tierlab_load::redact;
use tierlab_protocol::metrics;

/// Inspects this machine, before any server is asked. `data` are the folders of the data to read.
#[must_use]
pub fn inspect(data: &[PathBuf]) -> Environment {
    let Host { cpu, cores, kernel } = host();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    Environment {
        cpu,
        cores,
        memory_bytes: fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| memory_bytes(&text))
            .unwrap_or_default(),
        kernel,
        filesystems: data
            .iter()
            .map(|path| (path.display().to_string(), filesystem(path, &mounts)))
            .collect(),
        gpus: gpus(Path::new("/proc/driver/nvidia")),
        onnxruntime: "unknown".into(),
        git_commit: BUILD_COMMIT.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        shared_cores: Vec::new(),
        machine_warnings: Vec::new(),
        origins: BTreeMap::new(),
    }
}

/// Measuring machine, without its data.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// CPU model as the kernel names it.
    pub(crate) cpu: String,
    /// Logical cores.
    pub(crate) cores: u32,
    /// Kernel release.
    pub(crate) kernel: String,
}

/// Inspects this machine.
pub(crate) fn host() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Host {
        cpu: cpu_model(&cpuinfo).unwrap_or_else(|| "unknown".into()),
        cores: std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| "unknown".into(), |text| text.trim().into()),
    }
}

/// Adds a server's own report: its ONNX Runtime, and the origin behind its tier.
pub fn add_server(environment: &mut Environment, tier: &str, origin: &str, scrape: &Scrape) {
    let label = |label| scrape.label(metrics::BUILD_INFO, label).unwrap_or_default();
    if scrape.has(metrics::BUILD_INFO) {
        environment.onnxruntime = format!("{} ({})", label("onnxruntime"), label("providers"));
    }
    let parts = [origin, label("feature_location"), label("feature_notes")];
    let known: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    environment
        .origins
        .insert(tier.to_owned(), redact::urls(&known.join("; ")));
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    ["model name", "Model", "Hardware", "Processor"].iter().find_map(|key| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == *key)
            .map(|(_, value)| value.trim().to_owned())
    })
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// Returns type, device and options of the mount below a path, from the text of `/proc/self/mounts`.
fn filesystem(path: &Path, mounts: &str) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, at, kind, options) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            path.starts_with(at)
                .then(|| (at.len(), format!("{kind} on {device} ({options})")))
        })
        // The longest prefix is the innermost mount; of two mounts at one path the later hides the earlier.
        .max_by_key(|(len, _)| *len)
        .map_or_else(|| "unknown".into(), |(_, text)| text)
}

/// Returns the models of the GPUs below `root`, each with the driver's version.
fn gpus(root: &Path) -> Vec<String> {
    let driver = fs::read_to_string(root.join("version"))
        .ok()
        .and_then(|text| text.lines().next().map(|line| line.trim().to_owned()))
        .unwrap_or_else(|| "driver unknown".into());
    let Ok(entries) = fs::read_dir(root.join("gpus")) else {
        return Vec::new();
    };
    let mut gpus: Vec<String> = entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("information")).ok())
        .filter_map(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("Model:"))
                .map(|model| format!("{} ({driver})", model.trim()))
        })
        .collect();
    gpus.sort();
    gpus
}

/// Commit that this program was built from, with `-dirty` if its sources had changes. `unknown` outside a checkout, or
/// if the record belongs to another checkout with the same target folder.
pub(crate) const BUILD_COMMIT: &str = commit_here(
    env!("TIERLAB_COMMIT"),
    env!("TIERLAB_COMMIT_OF"),
    env!("CARGO_MANIFEST_DIR"),
);

const fn commit_here(commit: &'static str, of: &str, here: &str) -> &'static str {
    let (of, here) = (of.as_bytes(), here.as_bytes());
    if of.len() != here.len() {
        return "unknown";
    }
    let mut at = 0;
    while at < of.len() {
        if of[at] != here[at] {
            return "unknown";
        }
        at += 1;
    }
    commit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_named() {
        let mounts = "/dev/a / ext4 rw,relatime 0 0\ntmpfs /tmp tmpfs rw,size=1g 0 0\nx /tmpfoo xfs rw 0 0\n";
        assert_eq!(
            filesystem(Path::new("/tmp/no/such"), mounts),
            "tmpfs on tmpfs (rw,size=1g)"
        );
        assert_eq!(
            filesystem(Path::new("/no/such"), mounts),
            "ext4 on /dev/a (rw,relatime)"
        );
    }

    #[test]
    fn the_commit_of_another_checkout_is_not_taken_for_this_one() {
        assert_eq!(commit_here("c0ffee", "/a/loadgen", "/a/loadgen"), "c0ffee");
        assert_eq!(commit_here("c0ffee", "/b/loadgen", "/a/loadgen"), "unknown");
        assert_eq!(commit_here("c0ffee", "/a/loadgen2", "/a/loadgen"), "unknown");
    }

    #[test]
    fn this_machine_is_known() {
        let here = inspect(&[PathBuf::from("/")]);
        assert!(here.cores > 0 && here.memory_bytes > 1 << 20);
        assert_ne!(here.kernel, "unknown");
        assert!(
            here.git_commit == "unknown" || here.git_commit.len() >= 40,
            "{}",
            here.git_commit
        );
        assert_ne!(here.filesystems["/"], "unknown");
    }

    #[test]
    fn a_gpu_is_named_with_its_driver() {
        let root = tempfile::tempdir().unwrap();
        let gpu = root.path().join("gpus/0000:01:00.0");
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), "Model: \t\t Test GPU\nIRQ: 1\n").unwrap();
        fs::write(root.path().join("version"), "NVRM version: 1.2\nGCC\n").unwrap();
        assert_eq!(gpus(root.path()), ["Test GPU (NVRM version: 1.2)"]);
        assert!(gpus(Path::new("/no/such")).is_empty());
    }

    #[test]
    fn a_server_says_where_it_reads_from() {
        let mut environment = Environment::default();
        let text = "tierlab_build_info{onnxruntime=\"1.31.1\",providers=\"CPU\",feature_location=\"s3://k:s@b\",feature_notes=\"\"} 1\n";
        add_server(&mut environment, "s3", "embedded", &Scrape::parse(text).unwrap());
        assert_eq!(environment.onnxruntime, "1.31.1 (CPU)");
        assert_eq!(environment.origins["s3"], "embedded; s3://***@b");
    }
}
