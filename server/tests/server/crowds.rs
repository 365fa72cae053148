//! Connections that take places, memory and time and give nothing for it, and the clients beside them that want an answer.

use crate::attacks::connections::{self as attacks, RST_STREAM};
use crate::grpc::{call as grpc_call, raw, serve, wire};
use crate::harness::{Data, PATIENCE, Server, entity_ids, mlp_input, on_tier, signal};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tonic::{Request, Response, Status};

fn mlp(set: &[&str]) -> (Data, Server) {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", set);
    (data, server)
}

/// One request of HTTP/1.1 on a connection of its own, as text.
fn send(address: &str, request: &str) -> String {
    let mut stream = attacks::send(address, request.as_bytes()).unwrap();
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

fn live(address: &str) -> String {
    send(
        address,
        "GET /v2/health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    )
}

#[tokio::test]
async fn a_stream_that_takes_nothing_is_reset_and_its_neighbour_is_served() {
    let (_data, server) = mlp(&["connections.write_timeout_ms=3000"]);
    for window in [0, 1, 20] {
        let mut held = attacks::request_unread(&server.address, "/v2/models/mlp", 3, window).unwrap();
        // The one in the middle is let through.
        held.write_all(&attacks::open_window(3, 1 << 16)).unwrap();
        let neighbour = attacks::read_until_end(&mut held, 3).unwrap();
        assert_ne!(neighbour.last().unwrap().kind, RST_STREAM, "window {window}");
        let body: Vec<u8> = neighbour
            .iter()
            .filter(|frame| frame.stream == 3)
            .flat_map(|frame| frame.data().to_vec())
            .collect();
        assert!(
            serde_json::from_slice::<serde_json::Value>(&body).is_ok(),
            "window {window}"
        );
        let mut ends: BTreeMap<u32, u8> = BTreeMap::new();
        let mut note = |frame: &attacks::Frame| {
            if frame.ends_stream() && frame.stream != 3 {
                ends.insert(frame.stream, frame.kind);
            }
            ends.len()
        };
        let mut ended = neighbour.iter().map(&mut note).max();
        while ended < Some(2) {
            ended = Some(note(&attacks::Frame::read(&mut held).unwrap()));
        }
        assert_eq!(ends, [(1, RST_STREAM), (5, RST_STREAM)].into(), "window {window}");
        // The connection is good for more.
        held.write_all(&attacks::get(7, "/v2/health/live")).unwrap();
        held.write_all(&attacks::open_window(7, 1 << 16)).unwrap();
        let more = attacks::read_until_end(&mut held, 7).unwrap();
        assert_ne!(more.last().unwrap().kind, RST_STREAM, "window {window}");
    }
}

#[tokio::test]
async fn small_replies_that_nobody_takes_are_counted_and_their_connections_closed() {
    // No time limit helps here: it is memory that is short.
    let set = [
        "admission.max_buffered_bytes=3000000",
        "connections.write_timeout_ms=600000",
        "connections.header_timeout_ms=600000",
    ];
    let (_data, server) = mlp(&set);
    // Over HTTP/2, about 20 kB on each of 256 streams; over HTTP/1.1, pipelined until the socket takes no more.
    let held = attacks::request_unread(&server.address, "/openapi.json", 256, 0).unwrap();
    attacks::read_until_closed(held).unwrap();
    let began = Instant::now();
    loop {
        let reply = server.infer("mlp", mlp_input(1)).await;
        if reply.status == 200 {
            break;
        }
        assert_eq!(reply.status, 503, "{}", reply.text());
        assert!(began.elapsed() < PATIENCE, "the bytes are not given back");
    }
    server.logged(&["no memory for replies"]);
}

/// Connections that never end by themselves, of every kind, to both fronts.
fn crowd(server: &Server, each: usize) -> Vec<TcpStream> {
    let http = server.address.as_str();
    let grpc = server.grpc_address.as_deref().unwrap();
    let mut crowd = Vec::new();
    for _ in 0..each {
        for address in [http, grpc] {
            crowd.push(attacks::connect(address));
            crowd.push(attacks::send(address, b"POST /v2/mod"));
            crowd.push(attacks::send(address, &attacks::preface(0)));
        }
        crowd.push(attacks::request_unread(http, "/v2/health/live", 4, 0));
        crowd.push(attacks::request_unread(http, "/v2/models/mlp", 4, 1));
        crowd.push(attacks::send(
            http,
            b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n{",
        ));
        crowd.push(attacks::watch_health(grpc, 4));
        let infer = "/inference.GRPCInferenceService/ModelStreamInfer";
        let mut stream = attacks::preface(1 << 16);
        stream.extend(attacks::head(
            1,
            &[
                (":method", "POST"),
                (":scheme", "http"),
                (":path", infer),
                (":authority", "a"),
            ],
            false,
        ));
        crowd.push(attacks::send(grpc, &stream));
    }
    // Some are closed while others still come.
    crowd.into_iter().filter_map(Result::ok).collect()
}

#[tokio::test]
async fn a_crowd_that_does_nothing_locks_nobody_out() {
    let set = [
        "connections.max=16",
        "connections.header_timeout_ms=600000",
        "connections.write_timeout_ms=600000",
        "admission.timeout_ms=600000",
    ];
    let (_data, server) = mlp(&set);
    let held = crowd(&server, 8);
    for _ in 0..20 {
        let reply = live(&server.address);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    }
    // A client of its own for each call: what it held before may be gone.
    for rows in 1..=5 {
        let client = reqwest::Client::new();
        let request = server.infer_request("mlp", mlp_input(rows)).build().unwrap();
        assert_eq!(client.execute(request).await.unwrap().status(), 200);
        let reply: Result<Response<ModelInferResponse>, Status> =
            grpc_call(wire(&server), "ModelInfer", Request::new(raw("mlp", mlp_input(rows)))).await;
        assert_eq!(reply.unwrap().into_inner().outputs[0].shape, [rows, 1]);
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_places_work_health_is_answered_and_others_are_told_to_come_again() {
    let named = "too many connections: at most 1 in all and 1 of one address";
    refused_beside_a_request("connections.max=1", named).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_places_of_an_address_work_the_limit_of_one_is_named() {
    let named = " in all and 1 of one address";
    refused_beside_a_request("connections.max_per_address=1", named).await;
}

/// Sends a request while another one holds the only place that `limit` leaves, and reads its refusal.
async fn refused_beside_a_request(limit: &str, named: &str) {
    let data = Data::generate(&[ModelKind::Ctr], 10);
    let slow = "tiers.memory.emulated={latency={distribution=\"empirical\",quantiles=[[1.0,3000000.0]]}}";
    let set = [slow, "cache.capacity_bytes=0", limit, "connections.health_places=2"];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let began = Instant::now();
    loop {
        let busy = tokio::spawn(server.infer_request("ctr", entity_ids(&[3])).send());
        // The request may not have come yet, and its place is only its own while it is worked on.
        let refused = loop {
            let reply = send(
                &server.address,
                "GET /v2 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            );
            if reply.starts_with("HTTP/1.1 503") {
                break Some(reply);
            }
            if busy.is_finished() {
                break None;
            }
        };
        let health = live(&server.address);
        if let (Some(refused), false) = (refused, busy.is_finished()) {
            let head = refused.to_lowercase();
            assert!(
                head.contains("retry-after: 1") && head.contains("connection: close"),
                "{refused}"
            );
            assert!(refused.contains(named), "{refused}");
            assert!(health.starts_with("HTTP/1.1 200"), "{health}");
            assert_eq!(busy.await.unwrap().unwrap().status(), 200);
            return;
        }
        let _ = busy.await;
        assert!(began.elapsed() < PATIENCE, "the place was never taken");
    }
}

#[tokio::test]
async fn few_files_lower_the_places_and_silent_sockets_do_not_lock_them() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start_under(&["prlimit", "--nofile=256:256"], &on_tier(&data, "memory"), &[]);
    server.logged(&["lowered `connections.max`", "files=256"]);
    let silent: Vec<TcpStream> = (0..400).map(|_| attacks::connect(&server.address).unwrap()).collect();
    for _ in 0..5 {
        assert!(live(&server.address).starts_with("HTTP/1.1 200"));
    }
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    drop(silent);
    drop(server);

    let server = Server::start_under(&["prlimit", "--nofile=300:4000"], &on_tier(&data, "memory"), &[]);
    server.logged(&["raised the limit of open files", "to=4000"]);
}

#[tokio::test]
async fn hundreds_may_come_while_the_server_is_away() {
    let (_data, server) = mlp(&[]);
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let several = most.trim().parse::<usize>().unwrap().min(400);
    assert!(several > 128, "the kernel keeps no more than {several}");
    let address: SocketAddr = server.address.parse().unwrap();
    signal(&server, "STOP");
    let mut waiting = Vec::new();
    let refused = (0..several).find_map(|_| match TcpStream::connect_timeout(&address, PATIENCE / 6) {
        Ok(stream) => {
            waiting.push(stream);
            None
        }
        Err(error) => Some(error),
    });
    signal(&server, "CONT");
    assert!(refused.is_none(), "{} of {several} came: {refused:?}", waiting.len());
    assert!(live(&server.address).starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn who_is_gone_or_sends_no_more_is_dropped_and_counted() {
    let data = Data::generate(&[ModelKind::Ctr], 10);
    let slow = "tiers.memory.emulated={latency={distribution=\"empirical\",quantiles=[[1.0,400000.0]]}}";
    let server = Server::start(&on_tier(&data, "memory"), &[slow, "cache.capacity_bytes=0"]);
    let body = r#"{"inputs":[{"name":"entity_id","datatype":"INT64","shape":[1],"data":[3]}]}"#;
    let head = |length: usize| {
        format!("POST /v2/models/ctr/infer HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    // On the wire, a client that only sends no more is one that is gone: its connection ends without a reply.
    let mut half = attacks::send(&server.address, head(body.len()).as_bytes()).unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    half.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "");
    // A body that does not come to its end is no request.
    let cut = attacks::send(&server.address, head(body.len() + 1).as_bytes()).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    server
        .metric_reaches("tierlab_cancelled_total{stage=\"body\"}", 1.0)
        .await;
    // And one that is gone.
    let began = Instant::now();
    while server.metric("tierlab_cancelled_total{stage=\"tier\"}").await < 1.0 {
        assert!(began.elapsed() < PATIENCE, "no request was cancelled at the tier");
        let dropped = attacks::send(&server.address, head(body.len()).as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(dropped);
    }
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let (_data, server) = mlp(&[]);
    for (headers, status) in [
        ("", 400),
        ("host: a\r\nhost: a\r\n", 400),
        ("host: a\r\nHost: b\r\n", 400),
        ("host: a b\r\n", 400),
        ("host: a\r\n", 200),
        ("Host: 127.0.0.1:8000\r\n", 200),
    ] {
        let reply = send(
            &server.address,
            &format!("GET /v2 HTTP/1.1\r\n{headers}connection: close\r\n\r\n"),
        );
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{headers:?}: {reply}");
        assert_eq!(reply.contains("{\"error\":"), status == 400, "{reply}");
    }
    assert!(send(&server.address, "GET /v2 HTTP/1.0\r\n\r\n").contains(" 200 OK"));
    let fields = |host: &'static str| {
        let fields = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/v2"),
            (":authority", "a"),
            ("host", host),
        ];
        attacks::head(1, &fields, true)
    };
    for (request, length) in [(attacks::get(1, "/v2"), 200), (fields("a"), 200), (fields("b"), 400)] {
        let mut bytes = attacks::preface(1 << 16);
        bytes.extend(request);
        let mut stream = attacks::send(&server.address, &bytes).unwrap();
        let frames = attacks::read_until_end(&mut stream, 1).unwrap();
        let body: Vec<u8> = frames.iter().flat_map(|frame| frame.data().to_vec()).collect();
        let text = String::from_utf8(body).unwrap();
        assert_eq!(text.contains("`:authority`"), length == 400, "{text}");
    }
}
