//! Tables of an object store: a server of this test, which keeps every object back for a while.

use super::Read;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// Objects below `p/`, with one row each.
const OBJECTS: usize = 40;

fn object(id: &str) -> String {
    format!("id,v\n{id},1.5\n")
}

/// Requests for objects in flight, now and at most.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Answers the request of a connection, and closes it.
fn answer(stream: &TcpStream, in_flight: &InFlight) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let id = request.split_once("/p/").and_then(|(_, name)| name.split_once(".csv"));
    let body = match id {
        Some((id, _)) => {
            in_flight.most.fetch_max(in_flight.now.fetch_add(1, SeqCst) + 1, SeqCst);
            thread::sleep(Duration::from_millis(200));
            in_flight.now.fetch_sub(1, SeqCst);
            object(id)
        }
        None => {
            let entry = |id: usize| {
                let size = object(&id.to_string()).len();
                format!(
                    "<Contents><Key>p/{id}.csv</Key><LastModified>2024-01-01T00:00:00Z</LastModified><Size>{size}</Size>\
                     <ETag>\"e\"</ETag></Contents>"
                )
            };
            let entries: String = (0..OBJECTS).map(entry).collect();
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>")
        }
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nlast-modified: Mon, 01 Jan 2024 00:00:00 GMT\r\netag: \"e\"\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    // The client may have gone away.
    let _ = stream.write_all((head + &body).as_bytes());
}

#[test]
fn objects_of_a_store_are_fetched_together() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let in_flight = Arc::new(InFlight::default());
    let shared = Arc::clone(&in_flight);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let in_flight = Arc::clone(&shared);
            thread::spawn(move || answer(&stream, &in_flight));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tierlab-models"))
        .current_dir(folder.path())
        .args(["import-table", "s3://b/p/", "--key", "id", "--name", "t", "--out", "f"])
        .envs([
            ("AWS_ENDPOINT", endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "r"),
            ("AWS_SKIP_SIGNATURE", "true"),
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = Read::table(&folder.path().join("f/t.rows"));
    assert_eq!(read.header.rows, OBJECTS as u64);
    for id in 0..OBJECTS as i64 {
        assert_eq!(
            read.column(&id.to_le_bytes(), "v").unwrap(),
            1.5_f64.to_le_bytes(),
            "{id}"
        );
    }
    let most = in_flight.most.load(SeqCst);
    assert!(most >= 8, "{most} objects at once");
}
