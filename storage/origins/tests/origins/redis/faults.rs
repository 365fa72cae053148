//! A server that is killed, that falls silent, and that sends anything.

use super::{Store, open, try_open};
use std::time::{Duration, Instant};
use tierlab_storage::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_read_again() {
    let store = Store::start(&[]);
    let (port, tier) = (store.port, open(&store.url(), "retries = 3\ntimeout_ms = 1500").await);
    let object = crate::put(&tier, "a", 1, 100_000).await;
    drop(store);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.detail().contains("given up after 4"),
        "{error}"
    );
    // Attempts that failed cost requests too.
    assert_eq!(
        tier.take_unreported().map(|cost| (cost.requests, cost.retries)),
        Some((4, 3))
    );
    let again = Store::start_on(port, &[]);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let object = crate::put(&tier, "a", 2, 100_000).await;
    assert_eq!(tier.read(&object, 0..100_000).await.unwrap().bytes.len(), 100_000);

    // A stopped server accepts bytes and does not answer; then it continues.
    let signal = |name: &str| {
        let sent = std::process::Command::new("kill")
            .args([name, &again.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let began = Instant::now();
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(began.elapsed() < Duration::from_secs(4));
    signal("-CONT");
    assert_eq!(tier.read(&object, 0..100_000).await.unwrap().bytes.len(), 100_000);
}

/// A server that answers everything with the same bytes, for ever if they are sent again and again.
async fn hostile(reply: &'static [u8], is_endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                    while stream.write_all(reply).await.is_ok() && is_endless {}
                }
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_and_senseless_replies_are_errors() {
    let mut long = b"$99999999999\r\n".to_vec();
    long.resize(1 << 16, b'x');
    for (reply, is_endless) in [
        (&*long.leak(), true),
        (b"*999999999\r\n:1\r\n:1\r\n".as_slice(), true),
        (b"*1\r\n*1\r\n*1\r\n*1\r\n", true),
        (b"+", true),
        (b"\0\0\0\0", true),
        (b"*3\r\n:1\r\n$-1\r\n-ERR x\r\n", false),
        (b"-WEIRD \x01\x02\r\n", false),
    ] {
        let url = hostile(reply, is_endless).await;
        let began = Instant::now();
        match try_open(&url, "retries = 1\nattempt_ms = 500").await {
            Err(error) => assert_ne!(error.kind(), ErrorKind::Denied, "{error}"),
            // INFO may be anything.
            Ok(tier) => {
                tier.stat(&crate::path("a")).await.unwrap_err();
                tier.list(None).await.unwrap_err();
                tier.put(&crate::path("a"), bytes::Bytes::from_static(b"a").into())
                    .await
                    .unwrap_err();
            }
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_longer_than_its_chunk_is_corrupt() {
    let store = Store::start(&["--proto-max-bulk-len", "100mb"]);
    let tier = open(&store.url(), "").await;
    let object = crate::put(&tier, "a", 1, 5000).await;
    let keys: Vec<String> = store.query(&["KEYS", "tierlab:*"]);
    store.query::<()>(&["SETRANGE", &keys[0], "50000000", "x"]);
    let error = tier.read(&object, 0..1).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.detail().contains("more bytes than requested"),
        "{error}"
    );
    let other = crate::put(&tier, "b", 1, 5000).await;
    assert_eq!(tier.read(&other, 0..5000).await.unwrap().bytes.len(), 5000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_many_clients_is_asked_again() {
    let url = hostile(b"-ERR max number of clients reached\r\n", false).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "hunter2").unwrap();
    for password in [
        String::new(),
        format!("password_file = \"{}\"\n", file.path().display()),
    ] {
        let error = try_open(&url, &format!("{password}retries = 1")).await.err().unwrap();
        assert!(
            error.kind() == ErrorKind::Unavailable && error.detail().contains("`maxclients`"),
            "{error}"
        );
        assert!(error.detail().contains("given up after 2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_answers_with_an_error_is_not_called_silent() {
    let url = hostile(b"-LOADING Redis is loading the dataset in memory\r\n", false).await;
    let error = try_open(&url, "retries = 1").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        error.detail().contains("cannot run the command now (LOADING"),
        "{error}"
    );
}
