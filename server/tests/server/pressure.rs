//! Clients that are slow, silent, gone or too many, spoken to over raw sockets.

use crate::harness::{Data, PATIENCE, Server, entity_ids, images, mlp_input, on_tier, tensor};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest, Tensor};
use tierlab_protocol::tensor::DataType;

fn mlp(set: &[&str]) -> (Data, Server) {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), set);
    (data, server)
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A POST of binary tensors, head and body.
fn request(model: &str, inputs: Vec<Tensor>, headers: &str) -> (String, Vec<u8>) {
    let request = InferRequest {
        inputs,
        binary_output: true,
        ..InferRequest::default()
    };
    let (body, json_len) = request.encode_binary();
    let head = format!(
        "POST /v2/models/{model}/infer HTTP/1.1\r\nhost: a\r\n{HEADER_LENGTH}: {json_len}\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    (head, body.to_vec())
}

/// One HTTP/1.1 reply with a `Content-Length`: its head, and its body.
fn reply(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .split("\r\ncontent-length: ")
        .nth(1)
        .unwrap()
        .split("\r\n")
        .next()
        .unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

/// Waits until the server has closed the connection; gives what it still said.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("the connection is not closed: {error}"),
    }
}

#[tokio::test]
async fn who_does_not_speak_is_not_waited_for() {
    let (_data, server) = mlp(&["connections.header_timeout_ms=300"]);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    for bytes in [
        &b""[..],
        b"P",
        b"PRI * HTTP/2.0\r\n",
        b"GET /v2 HTTP/1.1\r\nhost: a\r\nx-slow:",
        preface,
    ] {
        let mut stream = connect(&server);
        stream.write_all(bytes).unwrap();
        until_closed(stream);
    }
    // A head that comes byte by byte: each byte is progress, and the head is late all the same.
    let mut slow = connect(&server);
    for byte in b"GET /v2 HTTP/1.1\r\nx: "
        .iter()
        .chain(std::iter::repeat_n(&b'y', 10_000))
    {
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    until_closed(slow);
    // One that was answered and then says no more.
    let mut idle = connect(&server);
    idle.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    assert!(reply(&mut idle).0.starts_with("http/1.1 200"));
    assert!(until_closed(idle).is_empty());
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_gets_408_and_its_bytes_are_given_back() {
    let (_data, server) = mlp(&["admission.timeout_ms=300", "admission.max_buffered_bytes=100000"]);
    let mut slow = connect(&server);
    slow.write_all(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 90001\r\n\r\n")
        .unwrap();
    slow.write_all(&[b' '; 90_000]).unwrap();
    let (head, _) = reply(&mut slow);
    assert!(
        head.starts_with("http/1.1 408") && head.contains("connection: close"),
        "{head}"
    );
    until_closed(slow);
    assert_eq!(server.infer("mlp", mlp_input(180)).await.status, 200);
}

#[tokio::test]
async fn bodies_in_memory_are_bounded_together() {
    let (_data, server) = mlp(&["admission.max_buffered_bytes=100000", "admission.timeout_ms=60000"]);
    let hold = || {
        let mut held = connect(&server);
        held.write_all(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 90001\r\n\r\n")
            .unwrap();
        held.write_all(&[b' '; 90_000]).unwrap();
        held.set_nonblocking(true).unwrap();
        held
    };
    let mut held = hold();
    let began = Instant::now();
    loop {
        let refused = server.infer("mlp", mlp_input(100)).await;
        if refused.status == 503 {
            assert!(refused.error().contains("100000 bytes"), "{}", refused.text());
            assert_eq!(refused.header("retry-after"), Some("1"));
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "the bytes of the first body are not counted"
        );
        // The one that is held is the one refused where it comes while another is answered.
        if held.peek(&mut [0]).is_ok() {
            held = hold();
        }
    }
    held.shutdown(Shutdown::Both).unwrap();
    server
        .metric_reaches("tierlab_cancelled_total{stage=\"body\"}", 1.0)
        .await;
    assert_eq!(server.infer("mlp", mlp_input(100)).await.status, 200);
}

#[tokio::test]
async fn many_silent_connections_make_place_for_the_next() {
    let (_data, server) = mlp(&["connections.max=4"]);
    let silent: Vec<TcpStream> = (0..8).map(|_| connect(&server)).collect();
    for _ in 0..3 {
        let mut next = connect(&server);
        next.write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        assert!(reply(&mut next).0.starts_with("http/1.1 200"));
    }
    drop(silent);
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
}

#[test]
fn huge_heads_are_refused_and_pipelined_requests_are_answered_in_order() {
    let (_data, server) = mlp(&[]);
    for head in [
        format!("GET /v2 HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100 << 10)),
        format!("GET /v2 HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(200)),
    ] {
        let mut stream = connect(&server);
        let _ = stream.write_all(head.as_bytes());
        let reply = String::from_utf8_lossy(&until_closed(stream)).into_owned();
        assert!(reply.starts_with("HTTP/1.1 431"), "{reply}");
    }
    let mut stream = connect(&server);
    let mut together = Vec::new();
    for rows in 1..=5 {
        let (head, body) = request("mlp", mlp_input(rows), "");
        together.extend_from_slice(head.as_bytes());
        together.extend_from_slice(&body);
    }
    stream.write_all(&together).unwrap();
    for rows in 1..=5 {
        let (head, body) = reply(&mut stream);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let shape = format!("\"shape\":[{rows},1]");
        assert!(String::from_utf8_lossy(&body).contains(&shape), "{shape}");
    }
}

/// `x` [-1, 1 Mi] FP32 to the same.
pub(crate) fn wide() -> ModelProto {
    let mut graph = GraphBuilder::new("wide");
    let input = graph.input("x", ElementType::Float, &[-1, 1 << 20]);
    let output = graph.node("y", "Identity", &[&input], &[]);
    graph.output(&output, ElementType::Float, &[-1, 1 << 20]);
    graph.finish("gives back what it gets")
}

#[tokio::test]
async fn who_does_not_read_the_reply_is_cut_off_and_its_bytes_are_given_back() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("wide", &wide());
    let set = [
        "connections.write_timeout_ms=500",
        // Enough for one request: its body, the run's copy of it, and the output, twice while it is read.
        "admission.max_buffered_bytes=220000000",
        "admission.timeout_ms=60000",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let bytes = 12 * (4 << 20);
    let (head, body) = request(
        "wide",
        vec![tensor("x", DataType::Fp32, &[12, 1 << 20], vec![0; bytes])],
        "",
    );
    let mut stream = connect(&server);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    server
        .metric_reaches("tierlab_inferences_total{model=\"wide\"}", 12.0)
        .await;
    std::thread::sleep(Duration::from_millis(1500));
    let read = until_closed(stream).len();
    assert!(read < bytes, "{read} bytes of the reply came, {bytes} were asked for");
    let again = server.infer(
        "wide",
        vec![tensor("x", DataType::Fp32, &[12, 1 << 20], vec![0; bytes])],
    );
    assert_eq!(again.await.status, 200);
}

#[tokio::test]
async fn a_full_server_refuses_before_the_body_and_keeps_small_connections() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Vision], 1);
    let server = Server::start(&on_tier(&data, "memory"), &["admission.max_in_flight=1"]);
    let began = Instant::now();
    'full: loop {
        assert!(began.elapsed() < PATIENCE, "the long request was never met");
        let long = tokio::spawn(server.infer_request("vision", images()).send());
        server.metric_reaches("tierlab_in_flight_requests", 1.0).await;
        // Announced and never sent: only a server that does not wait for the body can answer.
        let mut large = connect(&server);
        large
            .write_all(b"POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n")
            .unwrap();
        let mut small = connect(&server);
        let (head, body) = request("mlp", mlp_input(1), "");
        small.write_all(head.as_bytes()).unwrap();
        small.write_all(&body).unwrap();
        let (head, _) = reply(&mut small);
        let met = !long.is_finished() && head.starts_with("http/1.1 503");
        if met {
            assert!(
                head.contains("retry-after: 1") && !head.contains("connection: close"),
                "{head}"
            );
            let (head, _) = reply(&mut large);
            assert!(
                head.starts_with("http/1.1 503") && head.contains("connection: close"),
                "{head}"
            );
            assert_eq!(long.await.unwrap().unwrap().status(), 200);
            small
                .write_all(b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\n\r\n")
                .unwrap();
            assert!(reply(&mut small).0.starts_with("http/1.1 200"));
            break 'full;
        }
        let _ = long.await;
    }
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
}

#[test]
fn a_refusal_reaches_a_client_that_sends_its_whole_body_first() {
    let (_data, server) = mlp(&[]);
    for path in ["models/none/infer", "nowhere"] {
        let mut stream = connect(&server);
        let head = format!("POST /v2/{path} HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![0; 8_000_000]).unwrap();
        let (head, _) = reply(&mut stream);
        assert!(head.starts_with("http/1.1 404"), "{head}");
        assert!(until_closed(stream).is_empty());
    }
}

#[tokio::test]
async fn the_timeout_header_is_a_deadline() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Vision], 1);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for (model, inputs, value, status) in [
        // A small body, so that its client has sent it when the refusal comes.
        ("vision", entity_ids(&[0; 32]), "1", 504),
        ("mlp", mlp_input(1), "60000", 200),
        ("mlp", mlp_input(1), "0", 200),
        ("mlp", mlp_input(1), "soon", 400),
    ] {
        let request = server
            .infer_request(model, inputs)
            .header("x-request-timeout-ms", value);
        let status_got = request.send().await.unwrap().status().as_u16();
        assert_eq!(status_got, status, "{model} {value}");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_is_counted_where_it_was() {
    let data = Data::generate(&[ModelKind::Ctr], 10);
    let slow = "tiers.memory.emulated={latency={distribution=\"empirical\",quantiles=[[1.0,300000.0]]}}";
    let server = Server::start(&on_tier(&data, "memory"), &[slow, "cache.capacity_bytes=0"]);
    let began = Instant::now();
    while server.metric("tierlab_cancelled_total{stage=\"tier\"}").await < 1.0 {
        assert!(began.elapsed() < PATIENCE, "no request was cancelled at the tier");
        let mut stream = connect(&server);
        let (head, body) = request("ctr", entity_ids(&[3]), "");
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut stream = connect(&server);
    let (head, body) = request("ctr", entity_ids(&[3]), "");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body[..body.len() - 1]).unwrap();
    drop(stream);
    server
        .metric_reaches("tierlab_cancelled_total{stage=\"body\"}", 1.0)
        .await;
    assert_eq!(server.infer("ctr", entity_ids(&[3])).await.status, 200);
    assert_eq!(server.metric("tierlab_in_flight_requests").await, 0.0);
}

/// The bytes that requests may hold fit the memory that there is, and what there is none of is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_under_a_limit_of_memory_are_answered_or_refused() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    // Without its config each request runs by itself, however many rows it has.
    std::fs::remove_file(data.path("models/mlp/config.toml")).unwrap();
    let mut server = Server::start_under(&["prlimit", "--as=1073741824"], &on_tier(&data, "memory"), &[]);
    server.logged(&["available memory, and the limit of requests", "ulimit -v"]);
    let request = server.infer_request("mlp", mlp_input(93_750));
    for _ in 0..2 {
        let requests = (0..24).map(|_| request.try_clone().unwrap().send());
        for reply in futures::future::join_all(requests).await {
            let status = reply.unwrap().status().as_u16();
            assert!(matches!(status, 200 | 500 | 503 | 504), "{status}: {}", server.log());
        }
    }
    assert_eq!(server.infer("mlp", mlp_input(1)).await.status, 200);
    server.terminate();
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
}
