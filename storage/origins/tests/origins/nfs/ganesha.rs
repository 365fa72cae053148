//! The NFS tier against Debian's nfs-ganesha: the conformance suite, ports, identities, and a killed server.
//!
//! `scripts/ganesha` gives server and client a network of their own, so the test starts itself again inside it.

use super::open;
use super::readers::Readers;
use crate::conformance::Suite;
use crate::{path, put};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind};

/// Names the served folder for the test inside.
const SERVED: &str = "TIERLAB_GANESHA_FOLDER";
const LIMIT: Duration = Duration::from_secs(100);

#[test]
fn reads_from_nfs_ganesha() {
    if let Some(folder) = std::env::var_os(SERVED) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(inside(&PathBuf::from(folder)));
        return;
    }
    let served = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ganesha");
    let mut child = Command::new(script)
        .arg(served.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "nfs::ganesha::reads_from_nfs_ganesha", "--nocapture"])
        .env(SERVED, served.path())
        .stdin(Stdio::null())
        .spawn()
        .expect("scripts/ganesha can be run");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("not done within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        status.success(),
        "the test beside nfs-ganesha failed, or it could not be started (run scripts/setup ganesha): see above"
    );
}

async fn inside(served: &Path) {
    conforms().await;
    fixed_ports_and_identities(served).await;
    a_killed_server_is_read_again().await;
    a_file_made_anew_is_another().await;
    // Last: the others know the ports.
    a_server_that_moves_is_found().await;
}

/// Through the portmapper, from a privileged port.
async fn conforms() {
    let scratch = tempfile::tempdir().unwrap();
    let suite = Suite {
        tier: open("nfs://127.0.0.1/export", "connections = 2").await,
        folder: path("suite"),
        scratch: scratch.path().to_owned(),
        notices_changes: true,
    };
    suite.run().await.unwrap();
}

async fn fixed_ports_and_identities(served: &Path) {
    let url = "nfs://127.0.0.1:2049/export";
    let tier = open(url, "mount_port = 20048").await;
    let size = (9 << 20) + 5;
    let body = Body::Bytes(content(3, 0..size).into());
    let object = tier.put(&path("large"), body).await.unwrap();
    let read = tier.read(&object, 0..size).await.unwrap();
    assert!(read.bytes == content(3, 0..size));
    assert_eq!((read.cost.requests, read.cost.retries), (10, 0));
    let rows: Vec<_> = (0..1000)
        .map(|i| i * 9001 % size / 2..i * 9001 % size / 2 + 700)
        .collect();
    let many = tier.read_many(&object, &rows).await.unwrap();
    for (range, part) in rows.into_iter().zip(many.parts) {
        assert_eq!(part, content(3, range));
    }
    let secret = served.join("secret");
    std::fs::write(&secret, b"secret").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).unwrap();
    let secret = tier.stat(&path("secret")).await.unwrap();
    assert_eq!(tier.read(&secret, 0..6).await.unwrap().bytes, "secret");
    let other = open(url, "mount_port = 20048\nuid = 65534\ngid = 65534").await;
    let denied = other.read(&secret, 0..6).await.unwrap_err();
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
}

/// Kills the server in mid-run; `scripts/ganesha` starts it again. Readers see nothing but a pause.
async fn a_killed_server_is_read_again() {
    let more = "mount_port = 20048\nconnections = 2\ntimeout_ms = 20000";
    let tier = open("nfs://127.0.0.1:2049/export", more).await;
    let object = put(&tier, "kill/o", 5, 4 << 20).await;
    let readers = Readers::new(tier, object, 5, 300_000);
    let killer = async {
        for _ in 0..2 {
            readers.are_busy().await;
            readers.recover(async || kill()).await;
        }
    };
    readers.during(8, killer).await;
}

fn kill() {
    let pid = std::fs::read_to_string(std::env::var_os("GANESHA_PID_FILE").unwrap()).unwrap();
    let killed = Command::new("kill").args(["-9", pid.trim()]).status().unwrap();
    assert!(killed.success());
}

/// The server restarts at other ports, which only the portmapper knows.
async fn a_server_that_moves_is_found() {
    let tier = open("nfs://127.0.0.1/export", "connections = 2\ntimeout_ms = 20000").await;
    let object = put(&tier, "move/o", 6, 4 << 20).await;
    let readers = Readers::new(Arc::clone(&tier), object, 6, 300_000);
    let mover = async {
        readers.are_busy().await;
        let config = PathBuf::from(std::env::var_os("GANESHA_CONFIG").unwrap());
        let text = std::fs::read_to_string(&config).unwrap();
        let moved = text
            .replace("NFS_Port = 2049", "NFS_Port = 2050")
            .replace("MNT_Port = 20048", "MNT_Port = 20050");
        assert_ne!(text, moved);
        std::fs::write(&config, moved).unwrap();
        readers.recover(async || kill()).await;
    };
    readers.during(8, mover).await;
    let fresh = open("nfs://127.0.0.1/export", "").await;
    assert_eq!(
        fresh.stat(&path("move/o")).await.unwrap(),
        tier.stat(&path("move/o")).await.unwrap()
    );
    std::net::TcpStream::connect("127.0.0.1:2049").unwrap_err();
}

/// Another client removes a file and creates one of the same name and size: the cached handle is stale.
async fn a_file_made_anew_is_another() {
    let (ours, theirs) = (
        open("nfs://127.0.0.1/export", "").await,
        open("nfs://127.0.0.1/export", "").await,
    );
    let put = async |seed| {
        let body = Body::Bytes(content(seed, 0..5000).into());
        theirs.put(&path("anew/o"), body).await.unwrap()
    };
    put(1).await;
    let old = ours.stat(&path("anew/o")).await.unwrap();
    assert_eq!(ours.read(&old, 5..10).await.unwrap().bytes, content(1, 5..10));
    theirs.delete(&path("anew/o")).await.unwrap();
    let gone = ours.read(&old, 5..10).await.unwrap_err();
    assert!(
        matches!(gone.kind(), ErrorKind::NotFound | ErrorKind::Changed),
        "{gone}"
    );
    assert!(gone.to_string().contains("anew/o"), "{gone}");
    let new = put(2).await;
    assert_eq!(ours.read(&old, 5..10).await.unwrap_err().kind(), ErrorKind::Changed);
    assert_eq!(ours.stat(&path("anew/o")).await.unwrap(), new);
    assert_eq!(ours.read(&new, 5..10).await.unwrap().bytes, content(2, 5..10));
}
