//! Calls of many messages: at the drain, among too many connections, and when their clients go away.

use crate::attacks::connections::Frame;
use crate::attacks::graphs::{ENDLESS, loops};
use crate::grpc::{framed, infer, raw, serve, url, wire};
use crate::harness::{Data, PATIENCE, Server, mlp_input, on_tier, tensor};
use axum::body::Body;
use futures::stream;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::SERVICE;
use tierlab_protocol::grpc::messages::{ModelInferRequest, ModelStreamInferResponse};
use tierlab_protocol::tensor::DataType;
use tokio::sync::mpsc;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

/// A stream: its messages are those that are sent here.
async fn open(server: &Server) -> (mpsc::Sender<ModelInferRequest>, Streaming<ModelStreamInferResponse>) {
    let (send, sent) = mpsc::channel(1);
    let sent = stream::unfold(sent, async |mut sent: mpsc::Receiver<_>| {
        Some((sent.recv().await?, sent))
    });
    let mut wire = wire(server);
    wire.ready().await.unwrap();
    let path = format!("/{SERVICE}/ModelStreamInfer").parse().unwrap();
    let codec = ProstCodec::<ModelInferRequest, ModelStreamInferResponse>::default();
    let replies = wire.streaming(Request::new(sent), path, codec).await.unwrap();
    (send, replies.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drain_ends_streams_between_two_messages() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let mut server = serve(&data, "memory", &["drain.timeout_ms=50000"]);
    let (idle, mut idle_replies) = open(&server).await;
    idle.send(raw("mlp", mlp_input(1))).await.unwrap();
    assert!(idle_replies.message().await.unwrap().is_some());
    let (busy, mut busy_replies) = open(&server).await;
    let sending = tokio::spawn(async move { while busy.send(raw("mlp", mlp_input(1))).await.is_ok() {} });
    for _ in 0..100 {
        assert!(busy_replies.message().await.unwrap().is_some());
    }
    server.terminate();
    assert!(idle_replies.message().await.unwrap().is_none());
    let end = loop {
        match busy_replies.message().await {
            Ok(Some(reply)) => assert_eq!(reply.error_message, ""),
            end => break end,
        }
    };
    if let Err(status) = end {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    sending.await.unwrap();
    assert_eq!(server.wait().await.code(), Some(0), "{}", server.log());
}

#[tokio::test]
async fn a_stream_whose_message_is_answered_keeps_its_connection() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    data.add_model("turns", &loops(0.0));
    let set = ["connections.max=2", "admission.timeout_ms=3000"];
    let server = serve(&data, "memory", &set);
    let (send, mut replies) = open(&server).await;
    let endless = tensor("x", DataType::Fp32, &[1, 1], ENDLESS.to_le_bytes().to_vec());
    send.send(raw("turns", vec![endless])).await.unwrap();
    server
        .metric_reaches("tierlab_batch_rows_count{model=\"turns\"}", 1.0)
        .await;
    let idle = TcpStream::connect(server.grpc_address.as_ref().unwrap()).unwrap();
    infer(&server, raw("mlp", mlp_input(1))).await.unwrap();
    let reply = replies.message().await.unwrap().unwrap();
    assert!(reply.error_message.ends_with("its run was in progress"), "{reply:?}");
    drop(idle);
}

#[tokio::test]
async fn a_client_that_goes_away_inside_a_message_is_counted() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &[]);
    let message = framed(&raw("mlp", mlp_input(2)));
    let cancelled = "tierlab_cancelled_total{stage=\"body\"}";
    for method in ["ModelInfer", "ModelStreamInfer"] {
        let (before, began) = (server.metric(cancelled).await, Instant::now());
        // The client may leave before its bytes are there.
        while server.metric(cancelled).await <= before {
            assert!(began.elapsed() < PATIENCE, "{method}: nobody is counted");
            let (send, sent) = mpsc::channel::<Vec<u8>>(1);
            let pieces = stream::unfold(sent, async |mut sent: mpsc::Receiver<_>| {
                Some((Ok::<_, std::io::Error>(sent.recv().await?), sent))
            });
            let request = http::Request::post(url(&server, &format!("/{SERVICE}/{method}")))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Body::from_stream(pieces))
                .unwrap();
            let client = Client::builder(TokioExecutor::new())
                .http2_only(true)
                .build_http::<Body>();
            let call = tokio::spawn(async move {
                let _reply = client.request(request).await;
                std::future::pending::<()>().await;
            });
            send.send(message[..100].to_vec()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            call.abort();
            let _ = call.await;
        }
    }
    assert_eq!(
        server.metric("tierlab_refusals_total{reason=\"cancelled\"}").await,
        server.metric(cancelled).await
    );
    infer(&server, raw("mlp", mlp_input(1))).await.unwrap();
}

#[test]
fn a_silent_connection_is_told_that_it_ends() {
    const GOAWAY: u8 = 7;
    let data = Data::generate(&[ModelKind::Mlp], 0);
    // Longer than the time for the end of a connection that has nothing to say.
    let server = Server::start(&on_tier(&data, "memory"), &["connections.header_timeout_ms=1200"]);
    let silent: Vec<TcpStream> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
            stream.write_all(preface).unwrap();
            stream
        })
        .collect();
    for mut stream in silent {
        let frames: Vec<Frame> = std::iter::from_fn(|| Frame::read(&mut stream).ok()).collect();
        assert!(frames.iter().any(|frame| frame.kind == GOAWAY), "{frames:?}");
    }
}
