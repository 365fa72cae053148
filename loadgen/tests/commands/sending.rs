//! Ways of sending: a fixed number of connections, compressed bodies, HTTP/2; and every request on record.

use crate::program::{Ended, Workdir, run};
use crate::replay::Noting;
use crate::scripted;
use crate::site::certificates;
use axum::http::{HeaderMap, Version};
use axum::serve::Listener;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

fn sweep(url: &str, keys: &str, args: &[&str]) -> (Ended, Workdir) {
    sweep_for(url, keys, "", args)
}

/// Sweep whose replies follow a rule.
fn sweep_for(url: &str, keys: &str, success: &str, args: &[&str]) -> (Ended, Workdir) {
    let place = Workdir::new(&format!(
        "{keys}\n{}repeats = 1\nstep_s = 1.0\n[[load]]\nmode = \"realtime\"\nrates = [40]\n\
         [target]\nkind = \"http\"\nmetrics = []\npath = \"/v1/p\"\nbody = '{{\"id\": {{entity_id}}}}'\nentities = 9\n{success}",
        scripted::HEAD
    ));
    let mut command = place.sweep(url);
    command.args(args);
    (run(command), place)
}

/// Rows and columns of a file, as the reader of most people finds them.
fn by_pyarrow(file: &Path) -> String {
    const SCRIPT: &str = "import sys, pyarrow.parquet as parquet\n\
                          table = parquet.read_table(sys.argv[1])\n\
                          print(table.num_rows, *table.column_names)";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.runtime/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing: run `scripts/setup python`",
        python.display()
    );
    let read = Command::new(python).args(["-c", SCRIPT]).arg(file).output().unwrap();
    let failed = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{failed}");
    String::from_utf8(read.stdout).unwrap().trim().to_owned()
}

#[test]
fn every_request_is_a_row_of_its_step() {
    let server = Noting::start(Duration::ZERO);
    let (ended, place) = sweep(&server.url, "", &["--keep-requests"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let repeat = &place.run_json()["points"][0]["repeats"][0];
    let file = place.path("results/r").join(repeat["requests_file"].as_str().unwrap());
    let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&file).unwrap()).unwrap();
    let batches: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let rows: usize = batches.iter().map(arrow_array::RecordBatch::num_rows).sum();
    // The warm-up of 0.2 s too.
    assert_eq!((rows, &repeat["scheduled"]), (48, &40.into()));
    let number = |name: &str, row: usize| {
        let column = batches[0].column_by_name(name).unwrap();
        arrow_array::cast::as_primitive_array::<arrow_array::types::UInt64Type>(column).value(row)
    };
    let slowest = &repeat["slowest"][0];
    let row = slowest["request"].as_u64().unwrap() as usize;
    assert_eq!(number("request", row), row as u64);
    assert_eq!(slowest["latency_us"], number("done_us", row) - number("due_us", row));
    let order = [
        number("due_us", row),
        number("sent_us", row),
        number("first_byte_us", row),
        number("done_us", row),
    ];
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(
        (
            number("status", row),
            number("reply_bytes", row),
            number("request_bytes", row)
        ),
        (200, 2, 9)
    );
    assert!(ended.stdout.contains("Slowest requests"), "{}", ended.stdout);
    let page = std::fs::read_to_string(place.path("results/r/report.html")).unwrap();
    assert!(page.contains("href=\"./requests/"), "no link to the requests");
    let columns = "point offered_rps repeat request in_window due_us sent_us first_byte_us done_us outcome status request_bytes \
                   reply_bytes line shapes key decode_us admit_us cache_us tier_us join_us batch_us infer_us encode_us";
    assert_eq!(by_pyarrow(&file), format!("48 {columns}"));
    let (ended, _place) = sweep(&server.url, "keep_requests = true", &["--workers", "2"]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`keep_requests`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_fixed_number_of_connections_is_opened_once_and_waited_for() {
    let server = Noting::start(Duration::from_millis(40));
    let (ended, place) = sweep(&server.url, "connections = 3", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    // One more before the measurement.
    assert_eq!(server.connections.load(Ordering::Relaxed), 4);
    let point = &place.run_json()["points"][0];
    let (summary, pool) = (&point["summary"], &point["repeats"][0]["pool"]);
    assert_eq!(pool["connections"], 3);
    assert!(pool["own_lag_p99_us"].is_u64(), "{pool}");
    assert!(!summary["verdict"].to_string().contains("in-flight limit"), "{summary}");
    let (ended, _place) = sweep(&server.url, "connections = 0", &[]);
    assert!(
        ended.code == Some(2) && ended.stderr.contains("`connections`"),
        "{}",
        ended.stderr
    );
}

#[test]
fn every_request_has_a_connection_of_its_own_where_the_plan_says_so() {
    let server = Noting::start(Duration::ZERO);
    let (ended, place) = sweep(&server.url, "connections = \"new\"", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(place.run_json()["points"][0]["repeats"][0]["completed"], 40);
    assert_eq!(server.connections.load(Ordering::Relaxed), server.noted().len());
    let kept = Noting::start(Duration::ZERO);
    let (ended, _place) = sweep(&kept.url, "connections = \"kept\"", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(kept.connections.load(Ordering::Relaxed) < kept.noted().len() / 2);
}

#[test]
fn compressed_replies_are_checked_by_what_they_hold() {
    let coded = |headers: HeaderMap| async move {
        if headers.get("accept-encoding").is_none_or(|coding| coding != "gzip") {
            // The request before the measurement.
            let plain = b"{\"packed\": [1], \"plain\": [1]}".to_vec();
            return ([("content-encoding", "identity")], plain);
        }
        let mut coder = GzEncoder::new(Vec::new(), Compression::default());
        coder.write_all(b"{\"packed\": [1]}").unwrap();
        ([("content-encoding", "gzip")], coder.finish().unwrap())
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/v1/p", axum::routing::post(coded));
    runtime.spawn(async move { axum::serve(listener, app).await });
    for (pointer, wrong) in [("/packed/0", 0), ("/plain/0", 40)] {
        let rule = format!("[target.success]\npointer = \"{pointer}\"\n");
        let (ended, place) = sweep_for(&url, "compress = \"replies\"", &rule, &[]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let repeat = &place.run_json()["points"][0]["repeats"][0];
        assert_eq!(repeat["completed"], 40 - wrong, "{repeat}");
        assert_eq!(repeat["errors"]["wrong-reply"].as_u64().unwrap_or(0), wrong, "{repeat}");
    }
}

#[test]
fn bodies_are_compressed_and_compressed_replies_are_asked_for() {
    let server = Noting::start(Duration::ZERO);
    let (ended, _place) = sweep(&server.url, "compress = \"both\"", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for request in &server.noted()[1..] {
        let headers = request.headers.to_lowercase();
        assert!(
            headers.contains("content-encoding: gzip") && headers.contains("accept-encoding: gzip"),
            "{headers}"
        );
        let mut body = String::new();
        GzDecoder::new(&request.body[..]).read_to_string(&mut body).unwrap();
        assert!(body.starts_with("{\"id\": "), "{body}");
    }
}

/// Accepts connections behind TLS.
struct Secure(tokio::net::TcpListener, TlsAcceptor);

impl Listener for Secure {
    type Io = TlsStream<tokio::net::TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.0.accept().await.unwrap();
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// Server that counts the requests of HTTP/2, behind TLS if it has a configuration; with its port.
async fn counting_http2(tls: Option<Arc<ServerConfig>>, over_http2: &Arc<AtomicUsize>) -> u16 {
    let counted = Arc::clone(over_http2);
    let answer = move |version: Version, headers: HeaderMap| async move {
        assert!(
            headers
                .get("content-type")
                .is_some_and(|json| json == "application/json")
        );
        counted.fetch_add(usize::from(version == Version::HTTP_2), Ordering::Relaxed);
        "{}"
    };
    let app = axum::Router::new().route("/prefix/v1/p", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    match tls {
        None => drop(tokio::spawn(async move { axum::serve(listener, app).await })),
        Some(tls) => {
            let listener = Secure(listener, TlsAcceptor::from(tls));
            drop(tokio::spawn(async move { axum::serve(listener, app).await }));
        }
    }
    port
}

#[test]
fn requests_go_over_http2_where_the_plan_says_so() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tls = certificates(folder.path());
    let mut tls = ServerConfig::clone(&tls);
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let file = |name: &str| folder.path().join(name).display().to_string();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(file);
    let flags = [
        "--host-header",
        "models.internal",
        "--ca",
        &ca,
        "--cert",
        &cert,
        "--key",
        &key,
    ];
    for (scheme, tls, flags) in [("http", None, &[][..]), ("https", Some(Arc::new(tls)), &flags)] {
        let over_http2 = Arc::new(AtomicUsize::new(0));
        let port = runtime.block_on(counting_http2(tls, &over_http2));
        let url = format!("{scheme}://127.0.0.1:{port}/prefix");
        let (ended, place) = sweep(&url, "http2 = true\nconnections = 2", flags);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(place.run_json()["points"][0]["repeats"][0]["completed"], 40);
        assert_eq!(over_http2.load(Ordering::Relaxed), 48);
    }
}

#[test]
fn ways_that_exclude_each_other_are_refused_by_key() {
    for (keys, says) in [
        (
            "http2 = true\nconnections = \"new\"",
            "`http2` and `connections` exclude each other",
        ),
        ("compress = \"gzip\"", "`compress`"),
        ("connections = \"some\"", "`connections`"),
    ] {
        let (ended, _place) = sweep("http://127.0.0.1:9", keys, &[]);
        assert!(ended.code == Some(2) && ended.stderr.contains(says), "{}", ended.stderr);
    }
}

#[test]
fn certificates_to_trust_are_refused_without_tls() {
    let (ended, _place) = sweep("http://127.0.0.1:9", "", &["--ca", "ca.pem"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("--ca (`target.ca`) needs an https:// address"),
        "{}",
        ended.stderr
    );
}
