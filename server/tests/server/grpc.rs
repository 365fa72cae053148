//! The gRPC front, through tonic's client: every data type, both forms of contents, compression, limits, deadlines,
//! statuses, slow clients. What `tritonclient` sees is in `clients.rs`.

use crate::harness::{Data, PATIENCE, Server, entity_ids, images, mlp_input, on_tier, tensor};
use crate::models::{TYPES, echo, echoed};
use crate::pressure::wide;
use axum::body::Body;
use futures::stream;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::messages::{
    InferParameter, InferRequestedOutputTensor, InferTensor, InferTensorContents, ModelInferRequest,
    ModelInferResponse, ModelRequest, ModelStreamInferResponse, ParameterChoice, ReadyResponse, RepositoryIndexRequest,
    RepositoryIndexResponse,
};
use tierlab_protocol::grpc::status::{RetryInfo, RpcStatus};
use tierlab_protocol::grpc::{SERVER_TIMING, SERVICE};
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest, Tensor};
use tierlab_protocol::tensor::DataType;
use tierlab_protocol::timing::{Stage, StageTimings};
use tokio::sync::mpsc;
use tonic::client::GrpcService;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

pub(crate) type Wire = tonic::client::Grpc<Client<HttpConnector, tonic::body::Body>>;

pub(crate) fn serve(data: &Data, tier: &str, set: &[&str]) -> Server {
    let mut arguments = on_tier(data, tier);
    arguments.extend(["--grpc-listen", "127.0.0.1:0"].map(str::to_owned));
    Server::start(&arguments, set)
}

pub(crate) fn wire(server: &Server) -> Wire {
    // A client that does not read holds up the server after this many bytes.
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(1 << 16)
        .build_http();
    tonic::client::Grpc::with_origin(client, url(server, "").parse().unwrap()).max_decoding_message_size(usize::MAX)
}

pub(crate) fn url(server: &Server, path: &str) -> String {
    let address = server.grpc_address.as_ref().expect("gRPC is served");
    format!("http://{address}{path}")
}

pub(crate) async fn call<T, Q, R>(
    mut wire: tonic::client::Grpc<T>,
    method: &str,
    request: Request<Q>,
) -> Result<Response<R>, Status>
where
    T: GrpcService<tonic::body::Body>,
    T::Error: std::fmt::Debug,
    T::ResponseBody: Send + 'static,
    <T::ResponseBody as axum::body::HttpBody>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    wire.ready().await.unwrap();
    let path = format!("/{SERVICE}/{method}").parse().unwrap();
    wire.unary(request, path, ProstCodec::<Q, R>::default()).await
}

pub(crate) async fn infer(server: &Server, message: ModelInferRequest) -> Result<Response<ModelInferResponse>, Status> {
    call(wire(server), "ModelInfer", Request::new(message)).await
}

/// A message with raw contents.
pub(crate) fn raw(model: &str, inputs: Vec<Tensor>) -> ModelInferRequest {
    let (inputs, contents) = inputs
        .into_iter()
        .map(|tensor| {
            let input = InferTensor {
                name: tensor.name,
                datatype: tensor.dtype.to_string(),
                shape: tensor.shape,
                ..InferTensor::default()
            };
            (input, tensor.data.into_whole())
        })
        .unzip();
    ModelInferRequest {
        model_name: model.to_owned(),
        inputs,
        raw_input_contents: contents,
        ..ModelInferRequest::default()
    }
}

#[tokio::test]
async fn raw_contents_of_every_type_come_back() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("echo", &echo());
    let server = serve(&data, "memory", &[]);
    for rows in [1, 5] {
        let sent = echoed(rows, 3);
        let reply = infer(&server, raw("echo", sent.clone())).await.unwrap().into_inner();
        assert_eq!(reply.outputs.len(), TYPES.len());
        for ((sent, output), data) in sent.iter().zip(&reply.outputs).zip(&reply.raw_output_contents) {
            assert_eq!(output.name[1..], sent.name[1..]);
            assert_eq!(
                (&output.datatype, &output.shape),
                (&sent.dtype.to_string(), &sent.shape)
            );
            assert_eq!(sent.data, data[..], "{}", output.name);
        }
    }
    let mut chosen = raw("echo", echoed(2, 1));
    chosen.id = "seven".into();
    for name in ["y_INT64", "y_BYTES"] {
        chosen.outputs.push(InferRequestedOutputTensor {
            name: name.into(),
            ..InferRequestedOutputTensor::default()
        });
    }
    let reply = infer(&server, chosen).await.unwrap().into_inner();
    let names: Vec<&str> = reply.outputs.iter().map(|output| output.name.as_str()).collect();
    assert_eq!((names, reply.id.as_str()), (vec!["y_INT64", "y_BYTES"], "seven"));
}

#[tokio::test]
async fn typed_raw_compressed_and_http_give_the_same_answer() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Ctr], 50);
    let server = serve(&data, "memory", &[]);
    let over_http = server.infer("mlp", mlp_input(3)).await.inferred();
    let over_http = vec![over_http.outputs[0].data.clone().into_whole()];
    let reply = infer(&server, raw("mlp", mlp_input(3))).await.unwrap();
    let timings = reply.metadata().get(SERVER_TIMING).unwrap().to_str().unwrap();
    let timings = StageTimings::parse_header(timings).unwrap();
    assert_eq!(timings.batch_rows, 3);
    assert!(timings.get(Stage::Infer) > Duration::ZERO);
    let reply = reply.into_inner();
    assert_eq!(reply.raw_output_contents, over_http);
    assert_eq!((reply.model_name.as_str(), reply.model_version.as_str()), ("mlp", "1"));

    let mut typed = raw("mlp", mlp_input(3));
    let floats = typed.raw_input_contents.remove(0);
    typed.inputs[0].contents = Some(InferTensorContents {
        fp32_contents: floats
            .chunks(4)
            .map(|f| f32::from_le_bytes(f.try_into().unwrap()))
            .collect(),
        ..InferTensorContents::default()
    });
    typed.model_version = "1".into();
    let reply = infer(&server, typed).await.unwrap().into_inner();
    assert_eq!(reply.raw_output_contents, over_http);

    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        let wire = wire(&server).send_compressed(encoding).accept_compressed(encoding);
        let request = Request::new(raw("mlp", mlp_input(3)));
        let reply: Response<ModelInferResponse> = call(wire, "ModelInfer", request).await.unwrap();
        assert_eq!(reply.into_inner().raw_output_contents, over_http);
    }
    let joined = infer(&server, raw("ctr", entity_ids(&[1, 49])))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(joined.outputs[0].shape, [2, 1]);
    for (protocol, answered) in [("grpc", 4.0), ("http", 1.0)] {
        let series =
            format!("tierlab_requests_total{{code=\"200\",mode=\"batch\",model=\"mlp\",protocol=\"{protocol}\"}}");
        assert_eq!(server.metric(&series).await, answered, "{protocol}");
    }
}

#[tokio::test]
async fn refusals_have_their_codes_and_say_when_to_try_again() {
    let data = Data::generate(&[ModelKind::Mlp, ModelKind::Vision], 4);
    let set = ["admission.max_in_flight=1", "admission.max_body_bytes=5000000"];
    let server = serve(&data, "memory", &set);
    let code = async |message: ModelInferRequest| infer(&server, message).await.unwrap_err();
    let refused = code(raw("none", mlp_input(1))).await;
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::NotFound, "unknown model `none`")
    );
    let refused = code(raw("vision", entity_ids(&[4]))).await;
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    let refused = code(raw("mlp", entity_ids(&[1]))).await;
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let mut large = raw("mlp", mlp_input(1));
    large.raw_input_contents[0] = vec![0; 5_000_001].into();
    let refused = code(large).await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("5000000"), "{refused}");

    // One slow request holds the only place.
    let mut slow = images();
    slow[0].shape[0] = 32;
    let held = infer(&server, raw("vision", slow));
    let refused = async {
        server.metric_reaches("tierlab_in_flight_requests", 1.0).await;
        infer(&server, raw("mlp", mlp_input(1))).await
    };
    let (held, refused) = tokio::join!(held, refused);
    held.unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("in flight"), "{refused}");
    let details = RpcStatus::decode(refused.details()).unwrap();
    let retry = RetryInfo::decode(details.details[0].value.as_slice()).unwrap();
    assert!(retry.retry_delay.unwrap().seconds >= 1);
    assert!(refused.metadata().get(SERVER_TIMING).is_some());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[tokio::test]
async fn a_deadline_comes_with_the_call() {
    let data = Data::generate(&[ModelKind::Vision], 4);
    let server = serve(&data, "memory", &[]);
    // tonic's client gives up by itself at `set_timeout`: the header alone leaves it to the server.
    let mut request = Request::new(raw("vision", images()));
    request.metadata_mut().insert("grpc-timeout", "2000u".parse().unwrap());
    let refused: Result<Response<ModelInferResponse>, Status> = call(wire(&server), "ModelInfer", request).await;
    assert_eq!(refused.unwrap_err().code(), Code::DeadlineExceeded);
    let mut request = Request::new(raw("vision", images()));
    request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
    let refused: Result<Response<ModelInferResponse>, Status> = call(wire(&server), "ModelInfer", request).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    for reason in ["deadline", "bad_request"] {
        let refused = format!("tierlab_refusals_total{{reason=\"{reason}\"}}");
        server.metric_reaches(&refused, 1.0).await;
    }
}

#[tokio::test]
async fn malformed_messages_are_refused_and_the_server_goes_on() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &[]);
    // The messages of one method sent to another, and what no method knows.
    let name = ModelRequest {
        name: "mlp".into(),
        version: "\u{7f}".repeat(2000),
    };
    let refused: Result<Response<ModelInferResponse>, Status> =
        call(wire(&server), "ModelInfer", Request::new(name.clone())).await;
    assert_eq!(refused.unwrap_err().code(), Code::NotFound);
    for (length, code) in [(70_000, Code::ResourceExhausted), (1, Code::Unimplemented)] {
        let index = RepositoryIndexRequest {
            repository_name: "x".repeat(length),
            ready: true,
        };
        let refused: Result<Response<RepositoryIndexResponse>, Status> =
            call(wire(&server), "RepositoryIndex", Request::new(index)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    let refused: Result<Response<ReadyResponse>, Status> = call(wire(&server), "Nothing", Request::new(name)).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    // HTTP/1.1 on the gRPC port.
    let url = url(&server, &format!("/{SERVICE}/ModelInfer"));
    let reply = server.client.post(url).body("hello").send().await.unwrap();
    assert!(reply.headers().get("grpc-status").is_some_and(|status| status != "0"));
    assert_eq!(
        infer(&server, raw("mlp", mlp_input(1)))
            .await
            .unwrap()
            .into_inner()
            .outputs
            .len(),
        1
    );
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// The status and its message of a call.
async fn status_of(server: &Server, encoding: Option<&str>, body: Body) -> (i32, String) {
    let mut request = http::Request::post(url(server, &format!("/{SERVICE}/ModelInfer")))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let request = request.body(body).unwrap();
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Body>();
    let reply = client.request(request).await;
    let reply = reply.unwrap_or_else(|e| panic!("{encoding:?}: {e:?}"));
    let (head, body) = reply.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let find = |name| {
        head.headers
            .get(name)
            .or(trailers.get(name))
            .map(|value| value.to_str().unwrap())
    };
    let status = find("grpc-status").unwrap().parse().unwrap();
    (status, find("grpc-message").unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bodies_are_cut_into_messages_or_refused() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &[]);
    let large = framed(&raw("mlp", mlp_input(256)));
    // Many frames of a few bytes would be an attack, and end the connection.
    for size in [1000, 5000, large.len()] {
        let chunks: Vec<_> = large
            .chunks(size)
            .map(|chunk| Ok::<_, std::io::Error>(chunk.to_vec()))
            .collect();
        let body = Body::from_stream(stream::iter(chunks));
        assert_eq!(status_of(&server, None, body).await, (0, String::new()), "{size}");
    }
    // These fit one frame: a client that is refused while it still sends may miss why.
    let good = framed(&raw("mlp", mlp_input(10)));
    let compressed = [&[1], &good[1..]].concat();
    let cases = [
        (None, vec![], Code::InvalidArgument, "no%20message"),
        (
            None,
            [&good[..], &good].concat(),
            Code::InvalidArgument,
            "second%20message",
        ),
        (
            None,
            good[..good.len() - 1].to_vec(),
            Code::InvalidArgument,
            "inside%20a%20message",
        ),
        (None, good[..3].to_vec(), Code::InvalidArgument, "inside%20a%20message"),
        (None, compressed.clone(), Code::InvalidArgument, "grpc-encoding"),
        (None, [&[9], &good[1..]].concat(), Code::InvalidArgument, "9"),
        (
            Some("gzip"),
            compressed.clone(),
            Code::InvalidArgument,
            "not%20valid%20Gzip",
        ),
        // Refused by tonic, which looks at the header alone.
        (Some("br"), vec![], Code::Unimplemented, "br"),
        (
            None,
            vec![0, 0xff, 0xff, 0xff, 0xff],
            Code::ResourceExhausted,
            "4294967295",
        ),
    ];
    let refusals = cases.len() as f64;
    for (encoding, body, code, expected) in cases {
        let (status, message) = status_of(&server, encoding, body.into()).await;
        assert_eq!(status, code as i32, "{expected}: {message}");
        assert!(message.contains(expected), "{message} should say {expected}");
    }
    // Refusals by tonic are not counted.
    let bad = "tierlab_refusals_total{reason=\"bad_request\"}";
    let large = "tierlab_refusals_total{reason=\"too_large\"}";
    assert_eq!(server.metric(bad).await + server.metric(large).await, refusals - 1.0);
    assert_eq!(status_of(&server, None, good.into()).await.0, 0);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A request for `wide`: what comes back has as many bytes.
fn large(rows: i64) -> ModelInferRequest {
    let data = vec![0; rows as usize * (4 << 20)];
    raw("wide", vec![tensor("x", DataType::Fp32, &[rows, 1 << 20], data)])
}

#[tokio::test]
async fn replies_that_are_not_read_stay_on_the_account() {
    const ROWS: i64 = 6;
    let data = Data::generate(&[], 0);
    data.add_batched_model("wide", &wide());
    // One request of 24 MiB fits, with what its run takes and gives back, and no second one beside a reply.
    let set = [
        "admission.max_buffered_bytes=110000000",
        "connections.write_timeout_ms=60000",
    ];
    let server = serve(&data, "memory", &set);
    for (index, method) in ["ModelInfer", "ModelStreamInfer"].into_iter().enumerate() {
        let mut slow = wire(&server);
        slow.ready().await.unwrap();
        let path = format!("/{SERVICE}/{method}").parse().unwrap();
        let codec = ProstCodec::<ModelInferRequest, ModelStreamInferResponse>::default();
        let request = Request::new(stream::iter([large(ROWS)]));
        let unread = slow.streaming(request, path, codec).await.unwrap();
        // Each turn ends with one more that is answered.
        let answered = (2 * index as i64 + 1) * ROWS;
        server
            .metric_reaches("tierlab_inferences_total{model=\"wide\"}", answered as f64)
            .await;
        while server.metric("tierlab_in_flight_requests").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let refused = infer(&server, large(ROWS)).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{method}: {refused}");
        assert!(refused.message().contains("110000000 bytes"), "{method}: {refused}");
        drop(unread);
        let began = Instant::now();
        while let Err(refused) = infer(&server, large(ROWS)).await {
            assert!(
                began.elapsed() < PATIENCE,
                "{method}: the bytes are not given back: {refused}"
            );
        }
    }
}

pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend((bytes.len() as u32).to_be_bytes());
    framed.extend(bytes);
    framed
}

#[tokio::test]
async fn a_stream_may_be_silent_but_not_in_the_middle_of_a_message() {
    let data = Data::generate(&[ModelKind::Mlp], 0);
    let server = serve(&data, "memory", &["admission.timeout_ms=1000"]);
    let (send, sent) = mpsc::channel::<Vec<u8>>(1);
    let pieces = stream::unfold(sent, async |mut sent| {
        let piece = sent.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), sent))
    });
    let request = http::Request::post(url(&server, &format!("/{SERVICE}/ModelStreamInfer")))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from_stream(pieces))
        .unwrap();
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Body>();
    let message = framed(&raw("mlp", mlp_input(2)));
    send.send(message.clone()).await.unwrap();
    let mut replies = client.request(request).await.unwrap().into_body();
    let next = async |replies: &mut hyper::body::Incoming| replies.frame().await.unwrap().unwrap();
    assert!(next(&mut replies).await.is_data());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (head, tail) = message.split_at(100);
    send.send(head.to_vec()).await.unwrap();
    send.send(tail.to_vec()).await.unwrap();
    assert!(next(&mut replies).await.is_data());
    send.send(head.to_vec()).await.unwrap();
    let end = next(&mut replies).await.into_trailers().unwrap();
    assert_eq!(end["grpc-status"], (Code::DeadlineExceeded as i32).to_string().as_str());
    assert!(end["grpc-message"].to_str().unwrap().contains("did"), "{end:?}");
    server
        .metric_reaches("tierlab_refusals_total{reason=\"slow_body\"}", 1.0)
        .await;
    drop(send);
}

/// Over both fronts: the requests that wait are asked over one, the one that overtakes them over the other.
#[tokio::test]
async fn a_high_priority_overtakes_what_is_queued() {
    tokio::join!(overtaking("grpc", "http"), overtaking("http", "grpc"));
}

async fn overtaking(waiting: &str, hasty: &str) {
    const LOW: usize = 8;
    let data = Data::generate(&[ModelKind::Vision], 4);
    let config = data.path("models/vision/config.toml");
    // Whole batches: none joins another one's run.
    let mut written = std::fs::read_to_string(&config).unwrap();
    for (from, to) in [
        ("max_batch_size = ", "max_batch_size = 32 # "),
        ("priority_levels = 0", "priority_levels = 2"),
        ("priority_step_us = 100000", "priority_step_us = 60000000"),
    ] {
        assert!(written.contains(from), "{written}");
        written = written.replace(from, to);
    }
    std::fs::write(&config, written).unwrap();
    let server = serve(&data, "memory", &["admission.timeout_ms=60000"]);
    let done = Mutex::new(Vec::new());
    let infer = async |protocol: &str, priority: u64| {
        if protocol == "http" {
            let request = InferRequest {
                inputs: images(),
                priority,
                binary_output: true,
                ..InferRequest::default()
            };
            let (body, json_len) = request.encode_binary();
            let url = server.url("/v2/models/vision/infer");
            let request = server.client.post(url).header(HEADER_LENGTH, json_len).body(body);
            assert_eq!(request.send().await.unwrap().status(), 200);
        } else {
            let mut message = raw("vision", images());
            let priority_of = InferParameter {
                parameter_choice: Some(ParameterChoice::Uint64Param(priority)),
            };
            message.parameters.insert("priority".into(), priority_of);
            infer(&server, message).await.unwrap();
        }
        done.lock().unwrap().push(priority);
    };
    let low = futures::future::join_all((0..LOW).map(|_| infer(waiting, 2)));
    let high = async {
        server
            .metric_reaches("tierlab_batch_queue_requests{model=\"vision\"}", (LOW - 2) as f64)
            .await;
        infer(hasty, 1).await;
    };
    futures::join!(low, high);
    let done = done.into_inner().unwrap();
    assert_eq!(done.len(), LOW + 1);
    // First in, first out would leave it to the end.
    let position = done.iter().position(|&priority| priority == 1).unwrap();
    assert!(position + 2 < LOW, "{done:?}");
}
