//! NFS tier over the embedded origin: the conformance suite, and the text of its errors.

use crate::conformance::Suite;
use crate::path;
use crate::process::{Origin, text};
use bytes::Bytes;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_origins::nfs::NfsOrigin;
use tierlab_storage::content::content;
use tierlab_storage::{Body, ErrorKind, StorageError, Tier, TierConfig};
use tokio::net::TcpListener;

/// An origin in this process, for as long as the test's runtime.
async fn serve(root: &Path) -> String {
    let address: SocketAddrV4 = "127.0.0.1:0".parse().unwrap();
    let origin = NfsOrigin::bind(address, root).await.unwrap();
    let url = origin.url();
    tokio::spawn(origin.serve(std::future::pending()));
    url
}

async fn connect(url: &str, more: &str) -> Result<Arc<dyn Tier>, StorageError> {
    let document = format!("kind = \"nfs\"\nurl = \"{url}\"\n{more}");
    tierlab_storage::open(&TierConfig::parse("test", &document)?).await
}

fn suite(tier: Arc<dyn Tier>, scratch: &Path) -> Suite {
    Suite {
        tier,
        folder: path("suite"),
        scratch: scratch.to_owned(),
        notices_changes: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_in_process() {
    let (root, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    suite(tier, scratch.path()).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_through_the_binary_over_one_connection() {
    let (root, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let origin = Origin::start(&["--nfs-root", text(root.path()), "--exit-with-parent"]);
    let tier = connect(&origin.says("nfs"), "connections = 1").await.unwrap();
    suite(tier, scratch.path()).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_ranges_are_cut_to_what_the_server_takes() {
    let root = tempfile::tempdir().unwrap();
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    let size = (3 << 20) + 5;
    let object = tier
        .put(&path("a/o"), Body::Bytes(content(1, 0..size).into()))
        .await
        .unwrap();
    let read = tier.read(&object, 0..size).await.unwrap();
    assert_eq!(read.bytes, content(1, 0..size));
    assert_eq!((read.cost.requests, read.cost.retries), (4, 0));
    assert!(read.cost.wire_bytes > size, "{:?}", read.cost);
    let rows: Vec<_> = (0..20_u64).map(|i| i * 4096..i * 4096 + 512).collect();
    let many = tier.read_many(&object, &rows).await.unwrap();
    assert_eq!((many.cost.requests, many.cost.retries), (20, 0));
    // Another client finds its own way there first.
    let other = connect(&serve(root.path()).await, "").await.unwrap();
    let object = other.stat(&path("a/o")).await.unwrap();
    assert_eq!(other.read(&object, 7..9).await.unwrap().bytes, content(1, 7..9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_changed_in_place_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    let object = tier
        .put(&path("o"), Body::Bytes(content(1, 0..9000).into()))
        .await
        .unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(root.path().join("o"))
        .unwrap();
    file.set_len(100).unwrap();
    for range in [0..50, 0..9000, 8000..9000] {
        assert_eq!(tier.read(&object, range).await.unwrap_err().kind(), ErrorKind::Changed);
    }
    let object = tier.stat(&path("o")).await.unwrap();
    assert_eq!(tier.read(&object, 0..100).await.unwrap().bytes, content(1, 0..100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_leave_the_root_are_refused() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
    std::fs::write(root.path().join("plain"), b"plain").unwrap();
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    assert_eq!(
        tier.stat(&path("link/secret")).await.unwrap_err().kind(),
        ErrorKind::Denied
    );
    let put = tier.put(&path("link/new"), Body::Bytes(Bytes::new())).await;
    assert_eq!(put.unwrap_err().kind(), ErrorKind::Denied);
    let listed = tier.list(None).await.unwrap();
    assert_eq!(
        listed.iter().map(|object| object.path.as_str()).collect::<Vec<_>>(),
        ["plain"]
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_folder_can_be_removed_and_written_to_again() {
    let root = tempfile::tempdir().unwrap();
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    let body = || Body::Bytes(Bytes::from_static(b"x"));
    tier.put(&path("a/b/o"), body()).await.unwrap();
    let refused = tier.remove_folder(&path("a/b")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    tier.delete(&path("a/b/o")).await.unwrap();
    for folder in ["a/b", "a"] {
        tier.remove_folder(&path(folder)).await.unwrap();
    }
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    let gone = tier.remove_folder(&path("a")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    // The handles of the removed folders are still cached.
    let object = tier.put(&path("a/b/o"), body()).await.unwrap();
    assert_eq!(tier.list(None).await.unwrap(), [object]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_directories_are_listed_whole() {
    let root = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..1500).map(|i| format!("d/file-with-a-long-name-{i:06}")).collect();
    std::fs::create_dir(root.path().join("d")).unwrap();
    for name in &names {
        std::fs::write(root.path().join(name), b"").unwrap();
    }
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    let listed = tier.list(Some(&path("d"))).await.unwrap();
    let listed: Vec<String> = listed.into_iter().map(|object| object.path.to_string()).collect();
    assert_eq!(listed, names);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_export_is_named_with_those_there_are() {
    let root = tempfile::tempdir().unwrap();
    let url = serve(root.path()).await.replace("/export", "/nowhere");
    let error = connect(&url, "").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for word in [url.as_str(), "`/nowhere`", "exports are /export"] {
        assert!(error.to_string().contains(word), "`{word}` in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_comes_back_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::start(&["--nfs-root", text(root.path())]);
    let url = origin.says("nfs");
    let address = url
        .strip_prefix("nfs://")
        .and_then(|rest| rest.strip_suffix("/export"))
        .unwrap()
        .to_owned();
    let tier = connect(&url, "timeout_ms = 2000").await.unwrap();
    let object = tier
        .put(&path("a/b"), Body::Bytes(Bytes::from_static(b"still here")))
        .await
        .unwrap();
    drop(origin);
    let error = tier.read(&object, 0..5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in [address.as_str(), "/export/a/b"] {
        assert!(error.to_string().contains(word), "`{word}` in: {error}");
    }
    // Its handles are of its first life; the tier finds the file again.
    let _again = Origin::start(&["--nfs-root", text(root.path()), "--nfs-listen", &address]);
    assert_eq!(tier.read(&object, 0..5).await.unwrap().bytes, "still");
    let more = tier
        .put(&path("a/c"), Body::Bytes(Bytes::from_static(b"more")))
        .await
        .unwrap();
    assert_eq!(tier.list(Some(&path("a"))).await.unwrap(), [object, more]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_a_timeout() {
    // A listener that accepts in its backlog and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nfs://{}/export", silent.local_addr().unwrap());
    let error = connect(&url, "timeout_ms = 200").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(&url), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_no_mount_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let document = format!("kind = \"nfs\"\npath = \"{}\"", root.path().display());
    let opened = tierlab_storage::open(&TierConfig::parse("test", &document).unwrap()).await;
    let Err(error) = opened else {
        panic!("a temporary folder is no NFS mount")
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("not on NFS"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_is_given_up_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let tier = connect(&serve(root.path()).await, "").await.unwrap();
    let body = Bytes::from(content(1, 0..12 << 20));
    let old = tier
        .put(&path("o"), Body::Bytes(Bytes::from_static(b"old")))
        .await
        .unwrap();
    let (target, mut given_up) = (path("o"), 0);
    for limit in [1, 2, 3, 4, 5] {
        let put = tier.put(&target, Body::Bytes(body.clone()));
        given_up += u32::from(tokio::time::timeout(Duration::from_millis(limit), put).await.is_err());
    }
    assert!(given_up > 0, "a put of 12 MiB within 1 ms");
    let names = || {
        std::fs::read_dir(root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
    };
    for _ in 0..100 {
        if names().eq(["o"]) {
            let now = tier.stat(&path("o")).await.unwrap();
            assert!(now == old || now.size == body.len() as u64, "{now:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("left behind: {:?}", names().collect::<Vec<_>>());
}
