//! Environment of a run. In: this machine, this build, the server's build info. Out: an [`Environment`], in which
//! missing facts are `unknown`.

use crate::server::scrape::Scrape;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::Environment;
use tierlab_instrument::host::{Host, filesystem};
use tierlab_load::redact;
use tierlab_protocol::metrics;

/// Returns the environment before any server is asked. `data` are the folders whose data are read.
pub fn inspect(data: &[PathBuf]) -> Environment {
    let host = Host::here();
    let filesystem = |path: &PathBuf| (path.display().to_string(), filesystem(path));
    Environment {
        cpu: host.cpu,
        cores: host.cores,
        memory_bytes: host.memory_bytes,
        kernel: host.kernel,
        filesystems: data.iter().map(filesystem).collect(),
        gpus: gpus(Path::new("/proc/driver/nvidia")),
        onnxruntime: "unknown".into(),
        git_commit: build_commit().into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..Environment::default()
    }
}

/// Adds a server's own report: its ONNX Runtime, and the origin behind its tier.
pub fn add_server(environment: &mut Environment, tier: &str, origin: &str, scrape: &Scrape) {
    let label = |label| scrape.label(metrics::BUILD_INFO, label).unwrap_or_default();
    if scrape.has(metrics::BUILD_INFO) {
        environment.onnxruntime = format!("{} ({})", label("onnxruntime"), label("providers"));
    }
    let parts = [origin, label("feature_location"), label("feature_notes")];
    let non_empty: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let origin = redact::urls(&non_empty.join("; "));
    environment.origins.insert(tier.to_owned(), origin);
}

/// Returns the models of the GPUs below `root`, each with the driver's version.
fn gpus(root: &Path) -> Vec<String> {
    let version = fs::read_to_string(root.join("version")).unwrap_or_default();
    let driver = version.lines().next().map_or("driver unknown", str::trim);
    let model = |text: String| {
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(format!("{} ({driver})", model.trim()))
    };
    let entries = fs::read_dir(root.join("gpus")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path().join("information")).ok());
    let mut gpus: Vec<String> = texts.filter_map(model).collect();
    gpus.sort();
    gpus
}

/// Returns the commit that this program was built from, with `-dirty` if its sources had changes. `unknown` outside a checkout, or
/// if the record belongs to another checkout with the same target folder.
pub(crate) fn build_commit() -> &'static str {
    checkout_commit(
        env!("TIERLAB_COMMIT"),
        env!("TIERLAB_COMMIT_OF"),
        env!("CARGO_MANIFEST_DIR"),
    )
}

fn checkout_commit(commit: &'static str, of: &str, checkout: &str) -> &'static str {
    if of == checkout { commit } else { "unknown" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_of_another_checkout_is_not_taken_for_this_one() {
        assert_eq!(checkout_commit("c0ffee", "/a/loadgen", "/a/loadgen"), "c0ffee");
        assert_eq!(checkout_commit("c0ffee", "/b/loadgen", "/a/loadgen"), "unknown");
        assert_eq!(checkout_commit("c0ffee", "/a/loadgen2", "/a/loadgen"), "unknown");
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
