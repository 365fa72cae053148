//! Hostile S3 server: sizes beyond any memory, endless listings and pages, errors that repeat the client's secrets,
//! redirects to other servers. Each is an error, soon, and contains no secret.

use super::harness::connect;
use crate::path;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tierlab_storage::{ErrorKind, Tier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const TOKEN: &str = "FwoGZXIvYXdzEXAMPLETOKENEXAMPLETOKEN==";
const EMPTY_LIST: &str = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";

/// Answers every request by its head. The answer is written unchanged, and the connection closed.
async fn server(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, heads) = (Arc::new(answer), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
            tokio::spawn(async move {
                // An error is a client that had enough.
                let _ = serve(stream, &*answer, &seen).await;
            });
        }
    });
    (format!("http://{address}"), heads)
}

enum Answer {
    Once(String),
    /// Sends the head, then the same bytes until the client disconnects, or 256 MiB of them.
    Endless(String, Vec<u8>),
}

async fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&str) -> Answer + Send + Sync),
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 64 << 10 {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    seen.lock().unwrap().push(head.clone());
    match answer(&head) {
        Answer::Once(reply) => stream.write_all(reply.as_bytes()).await?,
        Answer::Endless(head, bytes) => {
            stream.write_all(head.as_bytes()).await?;
            for _ in 0..(256 << 20) / bytes.len() {
                stream.write_all(&bytes).await?;
            }
        }
    }
    stream.shutdown().await
}

fn reply(status: &str, body: &str) -> Answer {
    let len = body.len();
    Answer::Once(format!(
        "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    ))
}

fn is_list(head: &str) -> bool {
    head.lines().next().is_some_and(|line| line.contains("list-type=2"))
}

const OPEN: &str = "allow_http = true\nanonymous = true\nretries = 1\ntimeout_ms = 5000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_size_that_no_memory_has_is_an_error() {
    let (endpoint, _) = server(|head| match is_list(head) {
        true => reply("200 OK", EMPTY_LIST),
        false => Answer::Once(
            "HTTP/1.1 200 OK\r\nContent-Length: 4611686018427387904\r\nETag: \"x\"\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
                .to_owned(),
        ),
    })
    .await;
    let tier = connect(&endpoint, OPEN).await.unwrap();
    let object = tier.stat(&path("models/m/1/model.onnx")).await.unwrap();
    assert_eq!(object.size, 1 << 62);
    let error = tier.read(&object, 0..object.size).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Keys of other programs, with an empty segment or dots, and markers of folders: a listing passes over them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_paths_are_passed_over() {
    let (endpoint, _) = server(|head| {
        let mut body = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for key in [
            "/m",
            "logs//x",
            "m",
            "models/./b",
            "models/",
            "models/a&#xA;b",
            "models/a&amp;b",
            "models/b\\c",
        ] {
            let _ = write!(
                body,
                "<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00Z</LastModified><Size>1</Size>\
                 <ETag>\"x\"</ETag></Contents>"
            );
        }
        match is_list(head) {
            true => reply("200 OK", &(body + "</ListBucketResult>")),
            false => reply("404 Not Found", ""),
        }
    })
    .await;
    let tier = connect(&endpoint, OPEN).await.unwrap();
    let listed = tier.list(None).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|object| object.path.as_str()).collect();
    assert_eq!(listed, ["m", "models/a&b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_and_pages_without_an_end_are_ended() {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let (endpoint, _) = server(move |_| {
        let page = counted.fetch_add(1, Ordering::SeqCst);
        let mut body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>t{page}</NextContinuationToken>"
        );
        for key in 0..1000 {
            let _ = write!(
                body,
                "<Contents><Key>models/{page}/{key}</Key><LastModified>2020-01-01T00:00:00Z</LastModified>\
                 <Size>1</Size><ETag>\"x\"</ETag></Contents>"
            );
        }
        body += "</ListBucketResult>";
        reply("200 OK", &body)
    })
    .await;
    let tier = connect(&endpoint, OPEN).await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(120), tier.list(None)).await;
    let error = error.expect("the listing ends").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Timeout),
        "{error}"
    );
    assert!(pages.load(Ordering::SeqCst) <= 300);

    let (endpoint, _) = server(|_| {
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<?xml version=\"1.0\"?><ListBucketResult>";
        Answer::Endless(head.to_owned(), vec![b' '; 1 << 20])
    })
    .await;
    let error = connect(
        &endpoint,
        "allow_http = true\nanonymous = true\nretries = 0\ntimeout_ms = 60000",
    )
    .await
    .unwrap_err();
    assert!(error.to_string().contains("exceeds"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_error_says_of_secrets_is_not_repeated() {
    let (endpoint, _) = server(|head| match is_list(head) {
        true => reply("200 OK", EMPTY_LIST),
        false => {
            let body = format!(
                "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>The signature of {KEY} with \
                 {TOKEN} does not match</Message><AWSAccessKeyId>{KEY}</AWSAccessKeyId><CanonicalRequest>GET\n/k\n\n\
                 x-amz-security-token:{TOKEN}</CanonicalRequest></Error>"
            );
            reply("403 Forbidden", &body)
        }
    })
    .await;
    let tier = connect(&endpoint, OPEN).await.unwrap();
    let object = tierlab_storage::Object {
        path: path("features/t.rows"),
        size: 1 << 20,
        version: "\"x\"".to_owned(),
    };
    let error = tier.read(&object, 0..100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.detail().contains("SignatureDoesNotMatch"), "{error}");
    for text in [error.to_string(), format!("{error:?}"), error.for_clients()] {
        for secret in [KEY, TOKEN, "CanonicalRequest", "x-amz-security-token"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let shown = error.about(&object.path).for_clients();
    assert!(
        shown.contains("features/t.rows") && !shown.contains("tierlab") && !shown.contains(&endpoint),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_cannot_be_listed_opens_and_one_with_a_wrong_key_does_not() {
    for (code, expected) in [("AccessDenied", Ok(())), ("InvalidAccessKeyId", Err(ErrorKind::Denied))] {
        let body = format!("<Error><Code>{code}</Code><Message>the server says AccessDenied</Message></Error>");
        let (endpoint, _) = server(move |_| reply("403 Forbidden", &body)).await;
        let connected = connect(&endpoint, OPEN).await;
        assert_eq!(connected.map(|_| ()).map_err(|error| error.kind()), expected, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_elsewhere_takes_no_credentials_along() {
    let (elsewhere, seen) = server(|_| reply("200 OK", EMPTY_LIST)).await;
    let to = elsewhere.clone();
    let (endpoint, requests) = server(move |head| match head.contains("moved=1") {
        true => reply("200 OK", EMPTY_LIST),
        false => {
            let location = format!("Location: {to}/tierlab?list-type=2");
            Answer::Once(format!(
                "HTTP/1.1 307 Temporary Redirect\r\n{location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            ))
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credentials");
    let profile =
        format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = hush\naws_session_token = {TOKEN}\n");
    std::fs::write(&file, profile).unwrap();
    let more = format!(
        "allow_http = true\nretries = 1\ntimeout_ms = 5000\ncredentials_file = \"{}\"",
        file.display()
    );
    let error = connect(&endpoint, &more).await.unwrap_err();
    assert!(error.detail().contains("redirect"), "{error}");
    assert!(
        requests.lock().unwrap().iter().all(|head| head.contains(TOKEN)),
        "signed with the token"
    );
    assert!(seen.lock().unwrap().is_empty(), "{:?}", seen.lock().unwrap());
}

/// Replies to a GET of a range that are not the range: each is an error, and never other bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_the_range_asked_for_is_never_taken_for_it() {
    const WHOLE: &str = "0123456789abcdefghij";
    let replies = [
        ("the whole of it", "200 OK", "", WHOLE),
        (
            "another range",
            "206 Partial Content",
            "Content-Range: bytes 0-4/20\r\n",
            "01234",
        ),
        (
            "a longer range",
            "206 Partial Content",
            "Content-Range: bytes 5-19/20\r\n",
            "56789abcdefghij",
        ),
        ("no word of which", "206 Partial Content", "", "56789"),
        (
            "a range of another length",
            "206 Partial Content",
            "Content-Range: bytes 5-9/20\r\n",
            "56789abc",
        ),
        (
            "less than it says",
            "206 Partial Content",
            "Content-Range: bytes 5-9/20\r\n",
            "567",
        ),
        (
            "a range of nowhere",
            "206 Partial Content",
            "Content-Range: bytes 9-5/20\r\n",
            "56789",
        ),
        ("none", "416 Range Not Satisfiable", "Content-Range: bytes */20\r\n", ""),
    ];
    for (what, status, range, body) in replies {
        let (endpoint, _) = server(move |head| {
            if is_list(head) {
                return reply("200 OK", EMPTY_LIST);
            }
            let about = "ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n";
            Answer::Once(match head.starts_with("HEAD") {
                true => format!("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n{about}"),
                false => format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{range}{about}{body}",
                    body.len()
                ),
            })
        })
        .await;
        let tier = connect(&endpoint, OPEN).await.unwrap();
        let object = tier.stat(&path("features/t.rows")).await.unwrap();
        match tier.read(&object, 5..10).await {
            Err(_) => {}
            Ok(read) => panic!("{what}: {:?} was taken", read.bytes),
        }
    }
}

/// Bytes compressed before they were stored are the object's bytes. They are not decompressed on the way, or ranges
/// would refer to other bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_stored_packed_come_as_they_lie() {
    let (endpoint, _) = server(|head| {
        if is_list(head) {
            return reply("200 OK", EMPTY_LIST);
        }
        let about = "Content-Encoding: gzip\r\nETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n";
        Answer::Once(match head.starts_with("HEAD") {
            true => format!("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n{about}"),
            false => format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 5-9/20\r\n{about}56789"
            ),
        })
    })
    .await;
    let tier = connect(&endpoint, OPEN).await.unwrap();
    let object = tier.stat(&path("o")).await.unwrap();
    assert_eq!(tier.read(&object, 5..10).await.unwrap().bytes, "56789");
}
