//! Both ways with pyarrow: its client reads the origin, and the tier reads a plain `pyarrow.flight` server.

use super::harness::{Served, connect, header, table};
use crate::path;
use crate::process::Process;
use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use std::path::{Path, PathBuf};
use std::process::Command;
use tierlab_formats::table::TableHeader;
use tierlab_protocol::tensor::DataType;
use tierlab_storage::{Body, ErrorKind, ObjectPath, Tier};

fn python(script: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv: PathBuf = here.join("../../.runtime/venv/bin/python");
    assert!(
        venv.exists(),
        "{} is missing: run `scripts/setup python`",
        venv.display()
    );
    let mut command = Command::new(venv);
    command.arg(here.join("tests/origins/python").join(script));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyarrow_reads_the_origin() {
    let served = Served::new().await;
    served.write(&table(&header(3000, -50), 5));
    let mut command = python("flight_client.py");
    command.arg(served.url());
    let ran = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let failed = String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && stdout.trim() == "ok",
        "{stdout}{failed}(if pyarrow is missing: run `scripts/setup python`)"
    );
}

/// A running `flight_server.py`.
struct Foreign {
    _process: Process,
    url: String,
}

impl Foreign {
    async fn start() -> Self {
        let (process, port) = Process::start(&mut python("flight_server.py"));
        Self {
            _process: process,
            url: format!("grpc://127.0.0.1:{}", port.trim()),
        }
    }

    async fn be(&self, mode: &str) {
        let endpoint = tonic::transport::Endpoint::from_shared(self.url.replace("grpc", "http")).unwrap();
        let mut client = FlightServiceClient::new(endpoint.connect_lazy());
        let mut done = client
            .do_action(Action::new("be", mode.to_owned()))
            .await
            .unwrap()
            .into_inner();
        while done.message().await.unwrap().is_some() {}
    }
}

fn name() -> ObjectPath {
    path("features/typed.rows")
}

/// Checks a row against the server's values, laid out by hand.
fn check(header: &TableHeader, id: i64, row: &[u8], seed: i64) {
    header.check_row(id, row).unwrap();
    let at = |column: &str| header.schema.column(column).unwrap().offset as usize;
    let bytes = |column: &str, from: usize, len: usize| &row[at(column) + from..at(column) + from + len];
    assert_eq!(bytes("score", 0, 8), (id as f64 / 4.0).to_le_bytes());
    for i in 0..6 {
        assert_eq!(
            bytes("dense", i * 4, 4),
            ((id * 3 + i as i64 + seed) as f32).to_le_bytes()
        );
    }
    for i in 0..12 {
        assert_eq!(bytes("tensor", i * 2, 2), (((id + i as i64) % 7) as i16).to_le_bytes());
    }
    assert_eq!(bytes("good", 0, 1), [u8::from(id % 3 == 0)]);
}

async fn open(tier: &dyn Tier) -> (tierlab_storage::Object, TableHeader) {
    let object = tier.stat(&name()).await.unwrap();
    let head = tier.read(&object, 0..object.size.min(4096)).await.unwrap();
    let header = TableHeader::decode(&head.bytes, object.size).unwrap();
    (object, header)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tier_reads_a_plain_pyarrow_server() {
    let server = Foreign::start().await;
    let tier = connect(&server.url, "ranges_per_request = 400").await.unwrap();
    assert!(tier.info().notes[0].contains("typed columns"), "{:?}", tier.info());
    let (object, header) = open(&*tier).await;
    assert_eq!((header.rows, header.first_id), (5000, 10));
    let columns: Vec<_> = header
        .schema
        .columns
        .iter()
        .map(|column| (column.name.as_str(), column.dtype, &column.shape[..]))
        .collect();
    let want: [(&str, DataType, &[i64]); 4] = [
        ("score", DataType::Fp64, &[]),
        ("dense", DataType::Fp32, &[6]),
        ("tensor", DataType::Int16, &[3, 4]),
        ("good", DataType::Bool, &[]),
    ];
    assert_eq!(columns, want);
    let ids: Vec<i64> = (0..1000).map(|i| 10 + i * 37 % 5000).collect();
    let ranges: Vec<_> = ids.iter().map(|&id| header.row_range(id).unwrap()).collect();
    let read = tier.read_many(&object, &ranges).await.unwrap();
    assert_eq!((read.cost.requests, read.cost.retries), (3, 0));
    for (&id, row) in ids.iter().zip(&read.parts) {
        check(&header, id, row, 0);
    }
    // Columns that cannot be laid out as rows are left out, and named in the log.
    assert_eq!(tier.list(None).await.unwrap(), [object]);
    let missing = tier.stat(&path("features/none.rows")).await.unwrap_err();
    assert!(missing.to_string().contains("none"), "{missing}");
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let put = tier
        .put(&path("x"), Body::Bytes(bytes::Bytes::new()))
        .await
        .unwrap_err();
    assert_eq!(put.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pyarrow_server_that_errs_is_never_believed() {
    let server = Foreign::start().await;
    let tier = connect(
        &server.url,
        "retries = 2\ntimeout_ms = 10000\nattempt_ms = 5000\nmax_message_bytes = 1000000",
    )
    .await
    .unwrap();
    let (object, header) = open(&*tier).await;
    let ranges = [20, 30, 40].map(|id| header.row_range(id).unwrap());
    for (mode, kind, word) in [
        ("missing-row", ErrorKind::Corrupt, "rows missing"),
        ("null", ErrorKind::Corrupt, "score"),
        ("shuffled", ErrorKind::Corrupt, "order"),
        ("too-many", ErrorKind::Corrupt, "more rows"),
        ("away", ErrorKind::Unavailable, "not now"),
        ("huge", ErrorKind::Invalid, "max_message_bytes"),
        ("reshaped", ErrorKind::Changed, "columns"),
        ("replaced", ErrorKind::Changed, "version"),
    ] {
        server.be(mode).await;
        let error = tier.read_many(&object, &ranges).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{mode}: {error}");
        let text = error.to_string();
        assert!(
            text.contains(word) && text.contains("features/typed.rows"),
            "{mode}: {text}"
        );
        server.be("good").await;
        let read = tier.read_many(&object, &ranges).await.unwrap();
        check(&header, 30, &read.parts[1], 0);
    }
    // Permanently replaced: after a new look-up it can be read again.
    server.be("replaced").await;
    assert_eq!(
        tier.read_many(&object, &ranges).await.unwrap_err().kind(),
        ErrorKind::Changed
    );
    let (object, header) = open(&*tier).await;
    check(
        &header,
        30,
        &tier.read_many(&object, &ranges).await.unwrap().parts[1],
        1000,
    );
}
