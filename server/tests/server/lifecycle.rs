//! Starts that cannot be, readiness, and the drain.

use crate::harness::{Data, Server, entity_ids, mlp_input, on_tier, refused, refused_under};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tierlab_models::generators::ModelKind;

#[test]
fn wrong_starts_say_what_is_wrong_and_end_with_their_code() {
    let empty = tempfile::tempdir().unwrap();
    let root = format!("tiers.nvme.root={}", empty.path().display());
    let nvme = ["--tier", "nvme", "--set", root.as_str()];
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let set_root = format!("tiers.memory.root={}", data.0.path().display());
    for (arguments, code, named) in [
        (&["--tier", "tape"][..], 2, "tape"),
        (&[], 2, "--tier"),
        (&["--tier", "nvme", "--set", "cache.capacity=1"], 2, "capacity"),
        (
            &[
                "--tier",
                "memory",
                "--set",
                &set_root,
                "--set",
                "cache.block_bytes=1000",
            ],
            2,
            "cache.block_bytes",
        ),
        (
            &["--tier", "nvme", "--config", "configs/none.toml"],
            2,
            "configs/none.toml",
        ),
        (&["--no-such-flag"], 2, "--no-such-flag"),
        (&nvme, 1, "tierlab-models publish"),
        (
            &["--tier", "nvme", "--set", "tiers.nvme.root=/no/such/folder"],
            1,
            "/no/such/folder",
        ),
        (&["--tier", "gds"], 1, "tier `gds`"),
        (
            &["--tier", "memory", "--set", "runtime.provider=metal"],
            2,
            "unknown variant `metal`",
        ),
        (
            &["--tier", "memory", "--set", &set_root, "--set", "models=[\"none\"]"],
            1,
            "unknown model `none`",
        ),
        (
            &[
                "--tier",
                "memory",
                "--set",
                &set_root,
                "--set",
                "runtime.library=/no/lib.so",
            ],
            1,
            "scripts/setup onnxruntime",
        ),
    ] {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let output = refused(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
        assert!(message.contains(named), "{arguments:?}: {message} should name {named}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn onnx_runtime_collects_no_telemetry() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().to_str().unwrap();
    let environment = [("HOME", folder), ("XDG_CACHE_HOME", folder)];
    let _server = Server::start_with(&on_tier(&data, "memory"), &[], &environment);
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn an_address_in_use_is_named() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let first = Server::start(&on_tier(&data, "memory"), &[]);
    let mut arguments = on_tier(&data, "memory");
    arguments.extend(["--listen".into(), first.address.clone()]);
    let output = refused(&arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    let cause = format!("cannot listen on {}: Address already in use", first.address);
    assert!(message.contains(&cause), "{message}");
}

#[test]
fn help_is_complete() {
    let output = refused(&["--help".into()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0));
    for part in [
        "--tier",
        "--feature-tier",
        "--set",
        "--exit-with-parent",
        "Examples:",
        "Exit codes",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(refused(&["--version".into()]).status.code(), Some(0));
}

#[test]
fn schemas_of_files_are_printed() {
    for (file, key) in [
        ("server", "/properties/admission"),
        ("tier", "/properties/staged"),
        ("model", "/properties/batching"),
    ] {
        let output = refused(&["schema".into(), file.into()]);
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            output.status.success() && schema.pointer(key).is_some(),
            "{file}: {schema}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_loses_no_admitted_request() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 1000);
    let mut server = Server::start(&on_tier(&data, "nvme"), &["cache.capacity_bytes=0"]);
    let answered = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..16)
        .map(|i| {
            let inputs = if i % 2 == 0 {
                mlp_input(8)
            } else {
                entity_ids(&[i, 2 * i, 900 + i])
            };
            let template = server.infer_request(if i % 2 == 0 { "mlp" } else { "ctr" }, inputs);
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                loop {
                    // Refused connections are how a draining server says no; a reply once begun must be whole.
                    let Ok(response) = template.try_clone().unwrap().send().await else {
                        return;
                    };
                    assert_eq!(response.status(), 200);
                    assert!(!response.bytes().await.unwrap().is_empty());
                    answered.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    while answered.load(Relaxed) < 500 {
        assert!(
            !clients.iter().any(tokio::task::JoinHandle::is_finished),
            "a client failed before the drain"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.terminate();
    let status = server.wait().await;
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(status.code(), Some(0), "{}", server.log());
    let log = server.log();
    let count = |key: &str| -> u64 {
        let line = log
            .lines()
            .find(|line| line.contains("drained"))
            .unwrap_or_else(|| panic!("{log}"));
        let value = line.split_whitespace().find_map(|part| part.strip_prefix(key)).unwrap();
        value.parse().unwrap()
    };
    assert_eq!(count("admitted="), answered.load(Relaxed), "{log}");
    assert_eq!(count("settled="), answered.load(Relaxed), "{log}");
}

#[test]
fn make_help_lists_every_target() {
    let listed = std::process::Command::new("make")
        .args(["--no-print-directory", "help"])
        .current_dir(crate::harness::root())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let makefile = std::fs::read_to_string(crate::harness::root().join("Makefile")).unwrap();
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).unwrap();
    for target in phony.split_whitespace() {
        let line = listed
            .lines()
            .find(|line| line.split_whitespace().next() == Some(target));
        let line = line.unwrap_or_else(|| panic!("`{target}` is not in\n{listed}"));
        assert!(line.split_whitespace().count() > 1, "`{target}` says nothing of itself");
    }
}

/// The limit does not hold for root, so root's server runs as somebody else who may read all the same.
#[test]
fn too_few_threads_are_an_error_and_no_panic() {
    let data = Data::generate(&[], 0);
    let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let unprivileged = [
        "setpriv",
        "--reuid=61234",
        "--regid=61234",
        "--clear-groups",
        "--inh-caps=+dac_override",
        "--ambient-caps=+dac_override",
    ];
    for threads in ["1", "2", "3", "4"] {
        let limit = format!("--nproc={threads}");
        let mut wrapper: Vec<&str> = if is_root { unprivileged.to_vec() } else { Vec::new() };
        wrapper.extend(["prlimit", &limit]);
        let mut arguments = on_tier(&data, "memory");
        arguments.extend(["--set".into(), "runtime.worker_threads=2".into()]);
        let output = refused_under(&wrapper, &arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot start 6 threads"), "{stderr}");
        assert!(stderr.contains("ulimit -u") && !stderr.contains("panicked"), "{stderr}");
    }
}
