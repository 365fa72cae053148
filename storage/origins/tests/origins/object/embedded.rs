//! S3 tier over the embedded origin: the conformance suite, and the text of its errors.

use super::harness::{Harness, put};
use crate::conformance::Suite;
use crate::path;
use crate::process::{Origin, text};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tierlab_origins::s3::S3Origin;
use tierlab_storage::content::content;
use tierlab_storage::tiers::object::BucketTier;
use tierlab_storage::{Body, ErrorKind, StorageError, Tier, TierConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// An origin in this process; dropping the sender ends it.
async fn serve(root: &Path) -> (String, oneshot::Sender<()>) {
    let origin = S3Origin::open(root).unwrap();
    origin.ensure_bucket("tierlab").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let ended = async {
            let _ = stopped.await;
        };
        origin.serve(listener, ended).await.unwrap();
    });
    (endpoint, stop)
}

async fn connect(endpoint: &str, more: &str) -> Result<BucketTier, StorageError> {
    let document = format!(
        "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"{endpoint}\"\nallow_http = true\nanonymous = true\n{more}"
    );
    let TierConfig::Object(config) = TierConfig::parse("test", &document)? else {
        panic!("kind is s3")
    };
    BucketTier::connect(&config).await
}

fn suite(tier: BucketTier, scratch: &Path) -> Suite {
    Suite {
        tier: Arc::new(tier),
        folder: path("suite"),
        scratch: scratch.to_owned(),
        notices_changes: true,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_in_process() {
    let (root, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (endpoint, _stop) = serve(root.path()).await;
    let tier = connect(&endpoint, "prefix = \"some/prefix\"").await.unwrap();
    suite(tier, scratch.path()).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_through_the_binary_with_small_parts() {
    let (root, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let origin = Origin::start(&["--s3-root", text(root.path()), "--exit-with-parent"]);
    let tier = connect(
        &origin.says("s3"),
        "part_bytes = 10000\nconcurrency = 4\ncoalesce_bytes = 0",
    )
    .await
    .unwrap();
    suite(tier, scratch.path()).run().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_ranges_are_cut_and_small_ones_joined() {
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let tier = connect(&endpoint, "part_bytes = 100000\ncoalesce_bytes = 1000")
        .await
        .unwrap();
    let bytes = Bytes::from(content(1, 0..1_000_000));
    let object = tier.put(&path("o"), Body::Bytes(bytes.clone())).await.unwrap();
    let whole = tier.read(&object, 0..1_000_000).await.unwrap();
    assert_eq!(whole.bytes, bytes);
    assert_eq!(
        (whole.cost.requests, whole.cost.retries, whole.cost.wire_bytes),
        (10, 0, 1_000_000)
    );
    // 100 rows of 512 bytes, 1,512 bytes apart: gaps of 1,000 bytes are read over.
    let rows: Vec<_> = (0..50_u64).map(|i| i * 1512..i * 1512 + 512).collect();
    let joined = tier.read_many(&object, &rows).await.unwrap();
    assert_eq!((joined.cost.requests, joined.cost.wire_bytes), (1, 49 * 1512 + 512));
    let separate: Vec<_> = (0..50_u64).map(|i| i * 2000..i * 2000 + 512).collect();
    let split = tier.read_many(&object, &separate).await.unwrap();
    assert_eq!((split.cost.requests, split.cost.wire_bytes), (50, 50 * 512));
    for (range, part) in rows.iter().zip(&joined.parts).chain(separate.iter().zip(&split.parts)) {
        assert_eq!(part, &content(1, range.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_bucket_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let document =
        format!("kind = \"s3\"\nbucket = \"nowhere\"\nendpoint = \"{endpoint}\"\nallow_http = true\nanonymous = true");
    let config = TierConfig::parse("test", &document).unwrap();
    let Err(error) = tierlab_storage::open(&config).await else {
        panic!("there is no such bucket")
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for word in ["nowhere", endpoint.as_str(), "`bucket`"] {
        assert!(error.to_string().contains(word), "`{word}` in: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_must_be_meant() {
    let document = "kind = \"s3\"\nbucket = \"tierlab\"\nendpoint = \"http://127.0.0.1:1\"";
    let Err(error) = tierlab_storage::open(&TierConfig::parse("test", document).unwrap()).await else {
        panic!("plain HTTP was not allowed");
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("allow_http"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_origin_that_comes_back_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let origin = Origin::start(&["--s3-root", text(root.path())]);
    let endpoint = origin.says("s3");
    let tier = connect(&endpoint, "retries = 1\ntimeout_ms = 2000").await.unwrap();
    let object = tier
        .put(&path("a/b"), Body::Bytes(Bytes::from_static(b"still here")))
        .await
        .unwrap();
    drop(origin);
    let error = tier.read(&object, 0..5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in [endpoint.as_str(), "s3://tierlab/a/b"] {
        assert!(error.to_string().contains(word), "`{word}` in: {error}");
    }
    let address = endpoint.strip_prefix("http://").unwrap();
    let _again = Origin::start(&["--s3-root", text(root.path()), "--s3-listen", address]);
    assert_eq!(tier.read(&object, 0..5).await.unwrap().bytes, "still");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_origin_is_a_timeout() {
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let tier = connect(&endpoint, "").await.unwrap();
    tier.put(&path("o"), Body::Bytes(Bytes::from_static(b"x")))
        .await
        .unwrap();
    // A listener that accepts in its backlog and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let error = connect(&endpoint, "timeout_ms = 200\nretries = 1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(&endpoint), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_are_checked() {
    use object_store::aws::AmazonS3Builder;
    use object_store::{Error, ObjectStoreExt, PutPayload, path::Path as Key};
    use tierlab_origins::s3::{ACCESS_KEY, SECRET_KEY};
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let client = |key: &str, secret: &str| {
        let builder = AmazonS3Builder::new()
            .with_bucket_name("tierlab")
            .with_endpoint(&endpoint)
            .with_allow_http(true);
        builder
            .with_access_key_id(key)
            .with_secret_access_key(secret)
            .build()
            .unwrap()
    };
    let key = Key::parse("a b/c+d").unwrap();
    let signed = client(ACCESS_KEY, SECRET_KEY);
    signed.put(&key, PutPayload::from_static(b"signed")).await.unwrap();
    assert_eq!(signed.get(&key).await.unwrap().bytes().await.unwrap(), "signed");
    for (id, secret) in [(ACCESS_KEY, "wrong"), ("stranger", SECRET_KEY)] {
        let refused = client(id, secret).get(&key).await;
        assert!(matches!(refused, Err(Error::PermissionDenied { .. })), "{refused:?}");
    }
}

/// Status line and body of an unsigned GET.
async fn get(endpoint: &str, target: &str) -> (String, String) {
    let host = endpoint.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_have_the_length_asked_for_and_parts_are_not_mistaken_for_objects() {
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let tier = connect(&endpoint, "").await.unwrap();
    for name in ["o", "p"] {
        let body = Body::Bytes(Bytes::from_static(b"bytes"));
        tier.put(&path(name), body).await.unwrap();
    }
    for (max_keys, keys, is_truncated) in [(0, 0, false), (1, 1, true), (2, 2, false)] {
        let (status, page) = get(&endpoint, &format!("/tierlab?list-type=2&max-keys={max_keys}")).await;
        assert!(status.contains(" 200 "), "{status}: {page}");
        assert_eq!(page.matches("<Key>").count(), keys, "{page}");
        let truncated = format!("<IsTruncated>{is_truncated}</IsTruncated>");
        assert!(page.contains(&truncated), "{page}");
    }
    for (target, status) in [
        ("/tierlab?list-type=2&max-keys=-1", " 400 "),
        ("/tierlab/o?partNumber=2", " 501 "),
        ("/tierlab/o?x-id=GetObject", " 200 "),
    ] {
        let (found, body) = get(&endpoint, target).await;
        assert!(found.contains(status), "{target}: {found}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_meet_the_gets_of_every_client() {
    let harness = Harness::new().await;
    put(&harness.tier("").await, "o", 1, 10).await;
    harness.fault("error-rate=1");
    let endpoint = format!("http://127.0.0.1:{}", harness.port);
    for (target, is_refused) in [
        ("/tierlab/o", true),
        ("/tierlab/o?x-id=GetObject", true),
        ("/tierlab?list-type=2", false),
    ] {
        let (status, body) = get(&endpoint, target).await;
        assert_eq!(status.contains(" 50"), is_refused, "{target}: {status}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_is_given_up_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (endpoint, _stop) = serve(root.path()).await;
    let tier = connect(&endpoint, "").await.unwrap();
    let body = Bytes::from(content(1, 0..12 << 20));
    let (target, mut given_up) = (path("o"), 0);
    for limit in [1, 5, 10, 20, 40] {
        let put = tier.put(&target, Body::Bytes(body.clone()));
        given_up += u32::from(tokio::time::timeout(Duration::from_millis(limit), put).await.is_err());
    }
    assert!(given_up > 0, "a put of 12 MiB within 1 ms");
    let staging = root.path().join(".tierlab-origin");
    for _ in 0..100 {
        if std::fs::read_dir(&staging).unwrap().next().is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!(
        "left behind: {:?}",
        std::fs::read_dir(&staging).unwrap().collect::<Vec<_>>()
    );
}
