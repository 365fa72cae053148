//! The gRPC front, through tonic's client: every data type, both forms of contents, compression, limits, deadlines,
//! statuses. What `tritonclient` sees is in `clients.rs`.

use crate::harness::{Data, Server, entity_ids, images, mlp_input, on_tier};
use crate::models::{TYPES, echo, echoed};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use std::time::Duration;
use tierlab_models::generators::ModelKind;
use tierlab_protocol::grpc::messages::{
    InferRequestedOutputTensor, InferTensor, InferTensorContents, ModelInferRequest, ModelInferResponse, ModelRequest,
    ReadyResponse, RepositoryIndexRequest, RepositoryIndexResponse,
};
use tierlab_protocol::grpc::status::{RetryInfo, RpcStatus};
use tierlab_protocol::grpc::{SERVER_TIMING, SERVICE};
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::timing::{Stage, StageTimings};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

type Wire = tonic::client::Grpc<Client<HttpConnector, tonic::body::Body>>;

fn serve(data: &Data, tier: &str, set: &[&str]) -> Server {
    let mut arguments = on_tier(data, tier);
    arguments.extend(["--grpc-listen", "127.0.0.1:0"].map(str::to_owned));
    Server::start(&arguments, set)
}

fn wire(server: &Server) -> Wire {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let address = server.grpc_address.as_ref().expect("gRPC is served");
    tonic::client::Grpc::with_origin(client, format!("http://{address}").parse().unwrap())
}

async fn call<Q, R>(mut wire: Wire, method: &str, request: Request<Q>) -> Result<Response<R>, Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    wire.ready().await.unwrap();
    let path = format!("/{SERVICE}/{method}").parse().unwrap();
    wire.unary(request, path, ProstCodec::<Q, R>::default()).await
}

async fn infer(server: &Server, message: ModelInferRequest) -> Result<Response<ModelInferResponse>, Status> {
    call(wire(server), "ModelInfer", Request::new(message)).await
}

/// A message with raw contents.
fn raw(model: &str, inputs: Vec<Tensor>) -> ModelInferRequest {
    let (inputs, contents) = inputs
        .into_iter()
        .map(|tensor| {
            let input = InferTensor {
                name: tensor.name,
                datatype: tensor.dtype.to_string(),
                shape: tensor.shape,
                ..InferTensor::default()
            };
            (input, tensor.data)
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
    data.add_model("echo", &echo());
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
            assert_eq!(*data, sent.data, "{}", output.name);
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
    let over_http = vec![over_http.outputs[0].data.clone()];
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
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "no model `none`"));
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
    let retry = RetryInfo::decode(details.details[0].value.clone()).unwrap();
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
    server
        .metric_reaches("tierlab_refusals_total{reason=\"deadline\"}", 1.0)
        .await;
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
    let index = RepositoryIndexRequest {
        repository_name: "x".repeat(70_000),
        ready: true,
    };
    let refused: Result<Response<RepositoryIndexResponse>, Status> =
        call(wire(&server), "RepositoryIndex", Request::new(index)).await;
    assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
    let refused: Result<Response<ReadyResponse>, Status> = call(wire(&server), "Nothing", Request::new(name)).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    // HTTP/1.1 on the gRPC port.
    let url = format!("http://{}/{SERVICE}/ModelInfer", server.grpc_address.as_ref().unwrap());
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
