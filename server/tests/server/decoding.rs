//! Small messages that would be large in memory: the memory of the process is held against the bound of the configuration.

use crate::attacks::connections::{self, Frame};
use crate::attacks::messages;
use crate::grpc::{self, serve};
use crate::harness::{Data, PATIENCE, Reply, Server, root, tensor, tool};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::grpc::SERVICE;
use tierlab_protocol::tensor::DataType;

/// Maximum memory of requests in these tests.
const BOUND: usize = 256 << 20;
/// Maximum memory beside it and the process before: refused data that are freed a moment after they are no longer
/// counted, what the allocators keep of what was freed, what ONNX Runtime takes for its runs, and the buffers of sockets and
/// streams. 270 MiB were seen.
const BESIDE: usize = 512 << 20;

/// `x` [-1, -1] to the same.
fn echo(name: &str, element: ElementType) -> ModelProto {
    let mut graph = GraphBuilder::new(name);
    let input = graph.input("x", element, &[-1, -1]);
    let output = graph.node("y", "Identity", &[&input], &[]);
    graph.output(&output, element, &[-1, -1]);
    graph.finish("gives back what it gets")
}

/// The shape of zeros to the zeros.
fn zeros() -> ModelProto {
    let mut graph = GraphBuilder::new("zeros");
    let shape = graph.input("shape", ElementType::Int64, &[2]);
    let output = graph.node("y", "ConstantOfShape", &[&shape], &[]);
    graph.output(&output, ElementType::Float, &[-1, -1]);
    graph.finish("as many zeros as are asked for")
}

fn status(server: &Server, key: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let kib: usize = line
        .trim_start_matches(':')
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// Sends a request and reads what comes, if anything does: a server may refuse before all was sent.
fn send(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(request);
    let _ = stream.peek(&mut [0]);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut bytes = Vec::new();
    let _ = stream.take(64 << 10).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The status of a call with the given frame, and its message.
async fn call(server: &Server, method: &str, encoding: Option<&str>, frame: Vec<u8>) -> (String, String) {
    let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let address = server.grpc_address.as_ref().unwrap();
    let mut request = http::Request::post(format!("http://{address}/{SERVICE}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let response = client
        .request(request.body(Full::new(frame.into())).unwrap())
        .await
        .unwrap();
    let (head, body) = response.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let header = |name: &str| {
        let value = head.headers.get(name).or_else(|| trailers.get(name));
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    (header("grpc-status"), header("grpc-message"))
}

fn start() -> (Data, Server) {
    let data = Data::generate(&[], 0);
    data.add_model("texts", &echo("texts", ElementType::String));
    data.add_model("doubles", &echo("doubles", ElementType::Double));
    data.add_model("zeros", &zeros());
    let bound = format!("admission.max_buffered_bytes={BOUND}");
    // A busy machine takes long for the largest, and what is late is no longer in memory.
    let server = serve(&data, "memory", &[&bound, "admission.timeout_ms=60000"]);
    (data, server)
}

const BAD: &str = "3";
const EXHAUSTED: &str = "8";

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::too_many_lines, reason = "one process, whose memory is measured at the end")]
async fn the_process_stays_within_the_bound_whatever_is_sent() {
    let (_data, server) = start();
    let doubles = |count: usize| tensor("x", DataType::Fp64, &[1, count as i64], vec![0; count * 8]);
    assert_eq!(server.infer("doubles", vec![doubles(10)]).await.status, 200);
    let before = status(&server, "VmRSS");

    let infer =
        |model: &str, headers: &str, body: &[u8]| messages::post(&format!("/v2/models/{model}/infer"), headers, body);
    let packed = |model, body: &[u8]| infer(model, "content-encoding: gzip\r\n", &messages::gzip(body));
    let texts = packed("texts", &messages::json_elements("BYTES", "\"\"", 21 << 20));
    let zeros = packed("doubles", &messages::json_elements("FP64", "0", 31 << 20));
    // Below the ratio of what is refused at once.
    let some = packed("doubles", &messages::json_elements("FP64", "0", 3 << 20));
    let large = infer("doubles", "", &messages::json_elements("FP64", "0", 31 << 20));
    let numbers = infer(
        "doubles",
        "",
        &messages::json_elements("FP64", "0.12345678901234567", 1 << 20),
    );
    let outputs = infer("doubles", "", &messages::json_outputs(60 << 20));
    let shape = infer("doubles", "", &messages::json_shape(60 << 20));
    assert!(texts.len() < 256 << 10 && zeros.len() < 256 << 10);

    std::thread::scope(|scope| {
        let times = [
            (&texts, 4),
            (&zeros, 8),
            (&some, 6),
            (&large, 12),
            (&numbers, 4),
            (&outputs, 2),
            (&shape, 2),
        ];
        for (request, times) in times {
            for _ in 0..times {
                scope.spawn(|| {
                    let reply = send(&server.address, request);
                    // Nothing where the server closed before all was sent.
                    let answered = [200, 400, 408, 413, 503, 504].map(|status| format!("HTTP/1.1 {status}"));
                    assert!(
                        reply.is_empty() || answered.iter().any(|head| reply.starts_with(head.as_str())),
                        "{reply}"
                    );
                });
            }
        }
    });
    for key in [
        messages::EMPTY_INPUT,
        messages::EMPTY_OUTPUT,
        messages::EMPTY_PARAMETER,
        messages::EMPTY_RAW,
    ] {
        for bytes in [9800, 65_000, 60 << 20] {
            let entries = messages::empty_entries("doubles", key, bytes);
            let reply = call(&server, "ModelInfer", None, messages::frame(&entries, false)).await;
            assert!(reply.0 == BAD && reply.1.contains("more"), "{reply:?}");
        }
        // A few kilobytes that become millions of entries; and what becomes more than compressed data should.
        for (bytes, expected) in [(7 << 20, BAD), (60 << 20, EXHAUSTED)] {
            let entries = messages::gzip(&messages::empty_entries("doubles", key, bytes));
            let frame = messages::frame(&entries, true);
            let reply = call(&server, "ModelInfer", Some("gzip"), frame).await;
            assert_eq!(reply.0, expected, "{reply:?}");
        }
    }
    for texts in [false, true] {
        let contents = messages::typed_contents("doubles", texts, 30 << 20);
        let plain = messages::frame(&contents, false);
        let small = messages::frame(&messages::gzip(&contents), true);
        let calls = [
            call(&server, "ModelInfer", None, plain.clone()),
            call(&server, "ModelInfer", None, plain),
            call(&server, "ModelInfer", Some("gzip"), small.clone()),
            call(&server, "ModelInfer", Some("gzip"), small),
        ];
        for reply in futures::future::join_all(calls).await {
            assert_eq!(reply.0, EXHAUSTED, "{reply:?}");
        }
    }
    let load = messages::frame(&messages::load_parameters("doubles", 64_000), false);
    let loads = (0..64).map(|_| call(&server, "RepositoryModelLoad", None, load.clone()));
    for reply in futures::future::join_all(loads).await {
        assert_ne!(reply.0, "0", "{reply:?}");
    }

    let most = status(&server, "VmHWM");
    println!("{} MiB before, {} MiB at most", before >> 20, most >> 20);
    assert!(most <= before + BOUND + BESIDE, "{before} bytes before, {most} at most");
    assert_eq!(server.infer("doubles", vec![doubles(1000)]).await.status, 200);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// Sends thousands of messages without a byte on each of `streams` streams of a connection, and takes no reply.
fn send_empty_messages(address: &str, streams: u32) -> TcpStream {
    const MESSAGES: usize = 3000;
    const WINDOW_UPDATE: u8 = 8;
    let path = format!("/{SERVICE}/ModelStreamInfer");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path.as_str()),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let body = vec![0; 5 * MESSAGES];
    let mut connection = connections::send(address, &connections::preface(0)).unwrap();
    // Bytes that the server takes of all streams together.
    let mut window = 65_535;
    for stream in (0..streams).map(connections::stream_id) {
        while window < body.len() {
            let frame = Frame::read(&mut connection).unwrap();
            if (frame.kind, frame.stream) == (WINDOW_UPDATE, 0) {
                window += u32::from_be_bytes(*frame.payload.first_chunk().unwrap()) as usize;
            }
        }
        window -= body.len();
        let mut bytes = connections::head(stream, &fields, false);
        bytes.extend(&(body.len() as u32).to_be_bytes()[1..]);
        bytes.extend([0, 0]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(&body);
        connection.write_all(&bytes).unwrap();
    }
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_empty_messages_stay_within_the_bound() {
    let (_data, server) = start();
    let before = status(&server, "VmRSS");
    let address = server.grpc_address.as_deref().unwrap();
    let connections: Vec<TcpStream> = (0..10).map(|_| send_empty_messages(address, 100)).collect();
    // Each has read what it reads of messages whose replies are not taken.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let most = status(&server, "VmHWM");
    assert!(most <= before + BOUND, "{before} bytes before, {most} at most");
    drop(connections);
    let ten = tensor("x", DataType::Fp64, &[1, 10], vec![0; 80]);
    assert_eq!(server.infer("doubles", vec![ten]).await.status, 200);
}

#[tokio::test]
async fn a_reply_that_can_never_fit_is_refused_with_the_key_and_nobody_else_is() {
    let (_data, server) = start();
    let wanted = |count: i64| {
        let shape = [1, count].into_iter().flat_map(i64::to_le_bytes).collect();
        vec![tensor("shape", DataType::Int64, &[2], shape)]
    };
    // The sizes are 320 MB as JSON and 24 MB as binary data.
    for (count, expected) in [(80_000_000, 500), (6_000_000, 200), (80_000_000, 500), (100, 200)] {
        let binary = server.infer("zeros", wanted(count)).await;
        let json = crate::harness::json_request(wanted(count), None, None);
        let json = server.post("/v2/models/zeros/infer", json).await;
        for reply in [binary, json] {
            assert_eq!(reply.status, expected, "{count}");
            if expected == 200 {
                assert_eq!(reply.floats().len(), count as usize);
            } else {
                assert!(
                    reply.error().contains("`admission.max_buffered_bytes`"),
                    "{}",
                    reply.text()
                );
                assert!(reply.error().contains("320000000 bytes"), "{}", reply.text());
            }
        }
    }
    let over_grpc = grpc::infer(&server, grpc::raw("zeros", wanted(80_000_000)))
        .await
        .unwrap_err();
    assert_eq!(over_grpc.code(), tonic::Code::ResourceExhausted, "{over_grpc}");
    assert!(
        over_grpc.message().contains("`admission.max_buffered_bytes`"),
        "{over_grpc}"
    );
    let refused = "tierlab_refusals_total{reason=\"reply_too_large\"}";
    assert_eq!(server.metric(refused).await, 5.0);
}

#[tokio::test]
async fn what_is_too_large_names_its_key_and_no_byte_is_passed_over() {
    let data = Data::generate(&[], 0);
    data.add_model("doubles", &echo("doubles", ElementType::Double));
    let server = serve(&data, "memory", &["admission.max_body_bytes=100000"]);
    let path = "/v2/models/doubles/infer";
    let post = async |encoding: &str, body: Vec<u8>| {
        let request = server
            .client
            .post(server.url(path))
            .header("content-encoding", encoding);
        Reply::of(request.body(body).send().await.unwrap()).await
    };
    let large = post("identity", vec![b' '; 100_001]).await;
    assert_eq!(large.status, 413);
    for named in ["`admission.max_body_bytes`", "100000 bytes"] {
        assert!(large.error().contains(named), "{}", large.text());
    }
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let frame = messages::frame(&vec![0; 100_001], false);
        let reply = call(&server, method, None, frame).await;
        assert!(
            reply.0 == EXHAUSTED && reply.1.contains("admission.max_body_bytes"),
            "{method}: {reply:?}"
        );
    }
    let series = "tierlab_requests_total{code=\"413\",mode=\"unknown\",model=\"\",protocol=\"grpc\"}";
    server.metric_reaches(series, 2.0).await;

    let body = messages::json_elements("FP64", "1.5", 3);
    let (first, second) = body.split_at(20);
    // Members are one body (RFC 1952); what is no member is refused, and so is what follows a zlib stream.
    let members = [messages::gzip(first), messages::gzip(second)].concat();
    let reply = post("gzip", members).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut trailing = messages::gzip(&body);
    trailing.extend(b"more");
    let reply = post("gzip", trailing).await;
    // To inflate it belongs to its stages.
    assert_eq!((reply.status, reply.timings().batch_rows), (400, 0));
    let twice = [messages::gzip(&body), messages::gzip(b"{")].concat();
    assert_eq!(post("gzip", twice).await.status, 400);
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(&body).unwrap();
    let zlib = zlib.finish().unwrap();
    assert_eq!(post("deflate", zlib.clone()).await.status, 200);
    let reply = post("deflate", [&zlib[..], b"x"].concat()).await;
    assert!(
        reply.status == 400 && reply.error().contains("trailing bytes"),
        "{}",
        reply.text()
    );
    let many = messages::gzip(b"").repeat(5000);
    let reply = post("gzip", many[..99_000].to_vec()).await;
    assert_eq!(reply.status, 400, "{}", reply.text());
}

#[tokio::test]
async fn python_sends_and_gets_what_is_no_number() {
    let data = Data::generate(&[], 0);
    data.add_model("singles", &echo("singles", ElementType::Float));
    data.add_model("doubles", &echo("doubles", ElementType::Double));
    let server = serve(&data, "memory", &[]);
    let output = Command::new(tool(".runtime/venv/bin/python", "python"))
        .arg(root().join("server/tests/python/specials.py"))
        .arg(&server.address)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        output.status.success() && text.contains("checks passed"),
        "{text}\n{}",
        server.log()
    );
}
