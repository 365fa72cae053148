//! Process behaviour of `tierlab-origin`: its output line, its exit codes, its shutdown.

use crate::process::{Origin, text};
use std::net::TcpStream;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tierlab-origin"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn it_says_where_it_listens_and_stops_when_told() {
    for signal in ["TERM", "INT"] {
        let [s3, nfs, flight] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let origin = Origin::start(&[
            "--s3-root",
            text(s3.path()),
            "--nfs-root",
            text(nfs.path()),
            "--flight-root",
            text(flight.path()),
            "--bucket",
            "other-bucket",
        ]);
        assert_eq!(origin.says("bucket"), "other-bucket");
        assert!(s3.path().join("other-bucket").is_dir());
        let s3 = origin.says("s3").strip_prefix("http://").unwrap().to_owned();
        let nfs = origin
            .says("nfs")
            .strip_prefix("nfs://")
            .unwrap()
            .strip_suffix("/export")
            .unwrap()
            .to_owned();
        let flight = origin.says("flight").strip_prefix("grpc://").unwrap().to_owned();
        for address in [&s3, &nfs, &flight] {
            TcpStream::connect(address).unwrap();
        }
        assert_eq!(origin.signal(signal).code(), Some(0));
        for address in [&s3, &nfs, &flight] {
            assert!(TcpStream::connect(address).is_err());
        }
    }
}

#[test]
fn parts_not_asked_for_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::start(&["--nfs-root", text(root.path())]);
    let keys: Vec<_> = origin.ready.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["nfs"]);
}

#[test]
fn bad_usage_is_two_and_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&[], "--flight-root"),
        (
            &["--s3-root", text(root.path()), "--s3-listen", "0.0.0.0:0"],
            "--allow-remote",
        ),
        (
            &["--nfs-root", text(root.path()), "--nfs-listen", "0.0.0.0:0"],
            "--allow-remote",
        ),
        (
            &["--flight-root", text(root.path()), "--flight-listen", "0.0.0.0:0"],
            "--allow-remote",
        ),
        (
            &["--s3-root", text(root.path()), "--s3-listen", "nonsense"],
            "--s3-listen",
        ),
        (&["--no-such-flag"], "--no-such-flag"),
    ];
    for (arguments, word) in cases {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_fails_is_one_and_names_it() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let cases: [(&[&str], &str); 3] = [
        (&["--s3-root", text(&file)], text(&file)),
        (&["--nfs-root", text(&file)], text(&file)),
        (&["--s3-root", text(root.path()), "--s3-listen", &address], &address),
    ];
    for (arguments, word) in cases {
        let output = run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
}

#[test]
fn it_ends_with_its_parent() {
    let root = tempfile::tempdir().unwrap();
    // The shell starts the origin, prints its address once known, and ends.
    let script = "\"$0\" --s3-root \"$1\" --exit-with-parent > \"$1/line\" 2> /dev/null & \
                  while ! [ -s \"$1/line\" ]; do sleep 0.05; done; cat \"$1/line\"";
    let shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tierlab-origin"), text(root.path())])
        .output();
    let line: serde_json::Value = serde_json::from_slice(&shell.unwrap().stdout).unwrap();
    let address = line["s3"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let ended = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        TcpStream::connect(&address).is_err()
    });
    assert!(ended, "it still listens on {address}");
}

#[test]
fn name_version_and_help_are_the_binarys_own() {
    let output = |flag: &str| {
        let output = run(&[flag]);
        assert!(output.status.success(), "{flag}");
        String::from_utf8(output.stdout).unwrap()
    };
    let version = format!("tierlab-origin {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(output("--version").starts_with(&version), "{}", output("--version"));
    assert!(output("--help").contains("Usage: tierlab-origin"));
}
