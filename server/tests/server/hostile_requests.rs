//! Requests of an outsider: shapes, texts, names and heads that no honest client sends, and requests that are given up.

use crate::attacks::connections;
use crate::attacks::graphs::{ENDLESS, loops};
use crate::grpc::{infer, raw, serve};
use crate::harness::{Data, PATIENCE, Server, json_request, mlp_input, on_tier, tensor};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{GraphBuilder, ModelProto};
use tierlab_protocol::grpc::messages::InferRequestedOutputTensor;
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;
use tonic::Code;

/// `x` [-1, -1] to the same.
fn echo(element: ElementType) -> ModelProto {
    let mut graph = GraphBuilder::new("echo");
    let input = graph.input("x", element, &[-1, -1]);
    let output = graph.node("y", "Identity", &[&input], &[]);
    graph.output(&output, element, &[-1, -1]);
    graph.finish("gives back what it gets")
}

/// The sums of the columns of `x` [-1, -1].
fn sums() -> ModelProto {
    let mut graph = GraphBuilder::new("sums");
    let x = graph.input("x", ElementType::Float, &[-1, -1]);
    let axes = graph.ints("axes", &[1], &[0]);
    let y = graph.node("y", "ReduceSum", &[&x, &axes], &[int("keepdims", 0)]);
    graph.output(&y, ElementType::Float, &[-1]);
    graph.finish("adds rows")
}

fn texts(texts: &[&[u8]]) -> Vec<Tensor> {
    let mut data = Vec::new();
    for text in texts {
        data.extend((text.len() as u32).to_le_bytes());
        data.extend_from_slice(text);
    }
    vec![tensor("x", DataType::Bytes, &[1, texts.len() as i64], data)]
}

#[tokio::test]
async fn an_empty_input_cannot_ask_for_more_memory_than_there_is() {
    let data = Data::generate(&[], 0);
    data.add_model("sums", &sums());
    let server = serve(&data, "memory", &[]);
    let empty = |columns: i64| vec![tensor("x", DataType::Fp32, &[0, columns], Vec::new())];
    assert_eq!(server.infer("sums", empty(3)).await.floats(), [0.0; 3]);
    for columns in [1 << 25, 1 << 40, i64::MAX] {
        let refused = server.infer("sums", empty(columns)).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        let json = server.post("/v2/models/sums/infer", json_request(empty(columns), None, None));
        assert_eq!(json.await.status, 400);
        let refused = infer(&server, raw("sums", empty(columns))).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    assert_eq!(server.infer("sums", empty(3)).await.floats(), [0.0; 3]);
}

#[tokio::test]
async fn texts_that_cannot_be_run_are_the_clients_fault() {
    let data = Data::generate(&[], 0);
    data.add_model("texts", &echo(ElementType::String));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for (text, expected) in [(&b"a\0b"[..], "NUL"), (b"\xff", "UTF-8")] {
        let refused = server.infer("texts", texts(&[b"good", text])).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.error().contains(expected), "{}", refused.text());
    }
    let json = br#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","data":["a\u0000b"]}]}"#;
    let refused = server.post("/v2/models/texts/infer", &json[..]).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let sent = texts(&[b"", "ü".as_bytes()]);
    assert_eq!(
        server.infer("texts", sent.clone()).await.inferred().outputs[0].data,
        sent[0].data
    );
}

#[tokio::test]
async fn outputs_of_text_are_counted_with_their_letters() {
    let data = Data::generate(&[], 0);
    data.add_model("texts", &echo(ElementType::String));
    let set = [
        "admission.max_buffered_bytes=12000000",
        "admission.max_body_bytes=3000000",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let long = |letter: u8, bytes: usize| texts(&[&vec![letter; bytes]]);
    let sent = long(b'a', 1 << 20);
    assert_eq!(
        server.infer("texts", sent.clone()).await.inferred().outputs[0].data,
        sent[0].data
    );
    // Five times what was sent until it has run, and then the output twice: too much, however often it is tried.
    let refused = server.infer("texts", long(b'a', 2_100_000)).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(
        refused.error().contains("`admission.max_buffered_bytes`"),
        "{}",
        refused.text()
    );
    // A mark takes six bytes in JSON.
    let marks = |bytes: usize| server.post("/v2/models/texts/infer", json_request(long(1, bytes), None, None));
    assert_eq!(marks(100_000).await.status, 200);
    assert_eq!(server.infer("texts", sent.clone()).await.status, 200);
}

#[tokio::test]
async fn long_names_come_back_as_short_refusals_over_grpc() {
    let data = Data::generate(&[], 0);
    let mut many = GraphBuilder::new("many");
    let x = many.input("x", ElementType::Float, &[-1]);
    for i in 0..250 {
        let name = format!("an_output_with_a_name_of_about_sixty_letters_as_exporters_write_{i}");
        let y = many.node(&name, "Identity", &[&x], &[]);
        many.output(&y, ElementType::Float, &[-1]);
    }
    data.add_model("many", &many.finish("has many outputs"));
    let server = serve(&data, "memory", &[]);
    let x = || vec![tensor("x", DataType::Fp32, &[1], vec![0; 4])];
    let with_output = |name: &str| {
        let mut request = raw("many", x());
        request.outputs.push(InferRequestedOutputTensor {
            name: name.into(),
            ..InferRequestedOutputTensor::default()
        });
        request
    };
    let mut typed = raw("many", x());
    typed.inputs[0].datatype = "é".repeat(100_000);
    for (request, expected) in [
        (with_output("no_such_output"), "output `no_such_output`"),
        (with_output(&"é".repeat(100_000)), "`outputs`: a name is longer"),
        (typed, "is not a data type"),
    ] {
        let refused = infer(&server, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:.300}");
        assert!(refused.message().contains(expected), "{:.300}", refused.message());
        assert!(refused.message().len() < 3000, "{} bytes", refused.message().len());
    }
}

#[tokio::test]
async fn requests_that_are_given_up_leave_the_queue_of_a_busy_model() {
    let data = Data::generate(&[], 0);
    data.add_model("turns", &loops(0.0));
    let server = Server::start(&on_tier(&data, "memory"), &["admission.max_in_flight=20"]);
    let number = |value: f32| vec![tensor("x", DataType::Fp32, &[1, 1], value.to_le_bytes().to_vec())];
    let path = "/v2/models/turns/infer";
    // One holds the session for as long as it may; the others have little time, and nobody waits for them after it.
    let busy = server.post(path, json_request(number(ENDLESS), Some(6_000_000), None));
    let others = async {
        server.metric_reaches("tierlab_in_flight_requests", 1.0).await;
        for _ in 0..3 {
            let late = (0..15).map(|_| server.post(path, json_request(number(1.0), Some(100_000), None)));
            for reply in futures::future::join_all(late).await {
                assert_eq!(reply.status, 504, "{}", reply.text());
                assert!(reply.error().ends_with("it waited for a session"), "{}", reply.text());
            }
        }
        let depth = "tierlab_batch_queue_requests{model=\"turns\"}";
        let began = Instant::now();
        while server.metric(depth).await > 0.0 {
            assert!(began.elapsed() < Duration::from_secs(3), "they stay in the queue");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (busy, ()) = tokio::join!(busy, others);
    assert_eq!(busy.status, 504, "{}", busy.text());
}

#[tokio::test]
async fn a_head_gets_a_head_over_http2_whoever_answers() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    // The last one is refused before the routes.
    for (path, host) in [
        ("/v2", "a"),
        ("/none", "a"),
        ("/v2/models/mlp/infer", "a"),
        ("/v2", "b"),
    ] {
        let fields = [
            (":method", "HEAD"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "a"),
            ("host", host),
        ];
        let bytes = [connections::preface(1 << 16), connections::head(1, &fields, true)].concat();
        let mut stream = connections::send(&server.address, &bytes).unwrap();
        let frames = connections::read_until_end(&mut stream, 1).unwrap();
        let of_stream: Vec<u8> = frames
            .iter()
            .filter(|frame| frame.stream == 1)
            .map(|frame| frame.kind)
            .collect();
        assert_eq!(of_stream, [connections::HEADERS], "{path} {host}");
    }
}

#[tokio::test]
async fn every_error_is_json_and_no_coding_is_passed_over() {
    let data = Data::generate(&[], 0);
    data.add_model("texts", &echo(ElementType::String));
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    for path in ["/v2/models/%ff/infer", "/v2/repository/models/%ff/load"] {
        let reply = server.post(path, "").await;
        assert_eq!(reply.status, 400, "{}", reply.text());
        assert!(reply.error().contains("UTF-8"), "{}", reply.text());
    }
    assert!(server.get("/v2/models/%ff").await.error().contains("UTF-8"));
    for coding in ["gzip, chunked", "chunked\r\ntransfer-encoding: chunked"] {
        let reply = server.raw(
            format!("POST /v2/models/texts/infer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: {coding}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n")
                .as_bytes(),
        );
        assert!(
            reply.starts_with("HTTP/1.1 400") && reply.contains("only `chunked`"),
            "{reply}"
        );
    }
}

#[tokio::test]
async fn streams_whose_bodies_do_not_come_are_counted() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let set = [
        "admission.max_buffered_bytes=1000000",
        "admission.max_body_bytes=100000",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/v2/models/mlp/infer"),
        (":authority", "a"),
    ];
    let mut bytes = connections::preface(1 << 16);
    (0..100).for_each(|n| bytes.extend(connections::head(connections::stream_id(n), &fields, false)));
    let mut stream = connections::send(&server.address, &bytes).unwrap();
    // There is room for about forty, which are counted in no fixed order.
    let mut refused = BTreeSet::new();
    while refused.len() < 55 {
        let frame = connections::Frame::read(&mut stream).unwrap();
        if !frame.data().is_empty() {
            let text = String::from_utf8_lossy(frame.data());
            assert!(text.contains("`admission.max_buffered_bytes`"), "{text}");
            refused.insert(frame.stream);
        }
    }
    // A probe is answered beside them.
    stream
        .write_all(&connections::get(connections::stream_id(100), "/v2/health/live"))
        .unwrap();
    let frames = connections::read_until_end(&mut stream, connections::stream_id(100)).unwrap();
    let with_data = frames.iter().filter(|frame| !frame.data().is_empty());
    let (answers, late): (Vec<_>, Vec<_>) = with_data.partition(|frame| frame.stream == connections::stream_id(100));
    assert!(answers[0].data().starts_with(b"{\"live\":true}"));
    refused.extend(late.iter().map(|frame| frame.stream));
    assert!(refused.len() <= 65, "{} refused", refused.len());
    drop(stream);
    let began = Instant::now();
    while server.infer("mlp", mlp_input(1)).await.status != 200 {
        assert!(began.elapsed() < PATIENCE, "the bytes are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn large_heads_are_counted_while_their_requests_are_under_way() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let set = [
        "admission.max_buffered_bytes=1000000",
        "admission.max_body_bytes=100000",
    ];
    let server = Server::start(&on_tier(&data, "memory"), &set);
    let head = format!(
        "POST /v2/models/mlp/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\nx: {}\r\n\r\n{{",
        "a".repeat(50_000)
    );
    let mut held: Vec<TcpStream> = Vec::new();
    let mut refused = String::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut bytes = [0; 2000];
        if let Ok(read) = stream.read(&mut bytes) {
            refused = String::from_utf8_lossy(&bytes[..read]).into_owned();
            break;
        }
        held.push(stream);
    }
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("max_buffered_bytes"),
        "{} held: {refused}",
        held.len()
    );
    assert!((10..20).contains(&held.len()), "{} held", held.len());
    drop(held);
    let began = Instant::now();
    while server.infer("mlp", mlp_input(1)).await.status != 200 {
        assert!(began.elapsed() < PATIENCE, "the bytes are not given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
