//! `doctor` as a process, on this machine: what it prints, and that it leaves nothing behind.

use serde_json::Value;
use std::process::{Command, Output};
use tierlab_origins::nfs::NfsOrigin;
use tierlab_origins::s3::S3Origin;
use tokio::net::TcpListener;

fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-storage-bench"));
    command.arg("doctor").args(arguments).output().unwrap()
}

#[test]
fn a_tier_is_looked_at_and_measured_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tier = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        tier.path(),
        format!("kind = \"nvme\"\nroot = \"{}\"\n", folder.path().display()),
    )
    .unwrap();
    let output = doctor(&["--tier", tier.path().to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["schema"], &report["tier"]),
        (&Value::from(1), &Value::from("nvme"))
    );
    let findings = report["findings"].as_array().unwrap();
    let about = |name: &str| findings.iter().find(|finding| finding["about"] == name);
    for name in ["io_uring", "file system", "NUMA", "the tier opens", "O_DIRECT"] {
        assert!(about(name).is_some(), "no `{name}` in {report}");
    }
    for finding in findings {
        let level = finding["level"].as_str().unwrap();
        assert!(["warning", "unknown", "fine"].contains(&level), "{finding}");
        // A warning says what to do.
        assert!(level != "warning" || finding["change"].is_string(), "{finding}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_tier_behind_a_network_has_figures_of_the_network_and_of_its_reads() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let origin = S3Origin::open(&folder.path().join("s3")).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(origin.serve(listener, std::future::pending()));
    let nfs = NfsOrigin::bind("127.0.0.1:0".parse().unwrap(), folder.path());
    let nfs = runtime.block_on(nfs).unwrap();
    let nfs_tier = format!("kind = \"nfs\"\nurl = \"{}\"\n", nfs.url());
    runtime.spawn(nfs.serve(std::future::pending()));
    let s3_tier = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://{address}\"\nregion = \"us-east-1\"\nanonymous = true\nallow_http = true\n"
    );
    let tier = folder.path().join("tier.toml");
    for text in [s3_tier, nfs_tier] {
        std::fs::write(&tier, &text).unwrap();
        let output = doctor(&["--tier", tier.to_str().unwrap(), "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let measured = |name: &str| {
            let finding = findings.iter().find(|finding| finding["about"] == name);
            let measured = finding.and_then(|finding| finding["measured"].as_str());
            measured.unwrap_or_else(|| panic!("no figure of `{name}` in {report}"))
        };
        assert!(measured("round trip").contains("median of 5 connections"), "{report}");
        assert!(measured("MTU").contains("packets for 1 MiB"), "{report}");
        assert!(
            measured("TCP receive buffer").contains("MB/s per connection"),
            "{report}"
        );
        let reads = measured("reads through the tier");
        assert!(
            reads.starts_with("4 KiB at random in ") && reads.contains("1 MiB in order in "),
            "{reads}"
        );
    }
    assert!(!folder.path().join("storage-bench").exists(), "a folder on the export");
}

#[test]
fn a_disk_without_room_for_the_data_says_nothing_of_direct_reads() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tier = folder.path().join("tier.toml");
    let text = format!("kind = \"nvme\"\nroot = \"{}\"\n", folder.path().display());
    std::fs::write(&tier, text).unwrap();
    // A limit on the length of files fails writes like a full disk.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$@\"", "sh"])
        .args([
            env!("CARGO_BIN_EXE_tierlab-storage-bench"),
            "doctor",
            "--json",
            "--tier",
        ])
        .arg(&tier)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let about = |name: &str| findings.iter().find(|finding| finding["about"] == name);
    assert!(about("O_DIRECT").is_none(), "{report}");
    let reads = about("direct and buffered reads").unwrap();
    assert_eq!(reads["level"], "unknown", "{reads}");
}

/// Sets a seccomp filter that answers EPERM to `io_uring_setup` (425) as Docker's default profile does, and becomes the
/// program.
const SECCOMP: &str = r#"
import ctypes, os, struct, sys
code = b"".join(struct.pack("HBBI", *line) for line in [
    (0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)])
held = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(held))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_seccomp_filter_that_refuses_io_uring_is_found() {
    let output = Command::new("python3")
        .args(["-c", SECCOMP, env!("CARGO_BIN_EXE_tierlab-storage-bench")])
        .args(["doctor", "--json"])
        .output();
    let Ok(output) = output else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let first = &report["findings"][0];
    assert_eq!(
        (&first["about"], &first["level"]),
        (&"io_uring".into(), &"warning".into())
    );
    assert!(first["found"].as_str().unwrap().contains("refused"), "{first}");
}

#[test]
fn without_a_tier_it_is_text_and_mistakes_are_named() {
    let output = doctor(&[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("io_uring: ") && text.contains("of slow runs found"),
        "{text}"
    );
    let output = doctor(&["--tier", "/no/such/tier.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/tier.toml"));
    assert_eq!(doctor(&["--set", "a=1"]).status.code(), Some(2));
    // A folder that is not there is a finding, and no error.
    let tier = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tier.path(), "kind = \"nvme\"\nroot = \"/no/such/folder\"\n").unwrap();
    let output = doctor(&["--tier", tier.path().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains("the tier does not open"),
        "{text}"
    );
    // A configuration that no tier opens with is an error.
    let output = doctor(&["--tier", tier.path().to_str().unwrap(), "--set", "root="]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`root`") && output.stdout.is_empty());
}
