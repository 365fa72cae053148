//! Triton's classification extension: the first model of Triton's quickstart, labels, and requests of one batch that ask for
//! different numbers of classes. What `tritonclient` sees is in `clients.rs`.

use crate::grpc::{call, raw, serve, wire};
use crate::harness::{Data, Reply, Server, tensor};
use crate::models::{echo, echoed};
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto};
use tierlab_protocol::grpc::messages::{
    InferParameter, InferRequestedOutputTensor, ModelInferResponse, ParameterChoice,
};
use tierlab_protocol::infer::{HEADER_LENGTH, InferRequest, RequestedOutput, Tensor, bytes_elements};
use tierlab_protocol::tensor::DataType;
use tonic::Request;

const FLOAT: ElementType = ElementType::Float;
const CLASSES: usize = 1000;

/// The config of `densenet_onnx`, as Triton's quickstart has it.
const DENSENET: &str = r#"
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 0
input [
  {
    name: "data_0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
    reshape { shape: [ 1, 3, 224, 224 ] }
  }
]
output [
  {
    name: "fc6_1"
    data_type: TYPE_FP32
    dims: [ 1000 ]
    reshape { shape: [ 1, 1000, 1, 1 ] }
    label_filename: "densenet_labels.txt"
  }
]
"#;

/// A weight for each class, none twice.
fn weight(class: usize) -> f32 {
    (class * 7 % CLASSES) as f32
}

/// A graph with the tensors of `densenet_onnx`: the mean of the first channel times the weight of each class.
fn densenet() -> ModelProto {
    let mut graph = GraphBuilder::new("densenet");
    let image = graph.input_of("data_0", FLOAT, &[1, 3, 224, 224].map(Dim::Fixed));
    let mean = graph.node("mean", "GlobalAveragePool", &[&image], &[]);
    let weights: Vec<f32> = (0..CLASSES).flat_map(|class| [weight(class), 0.0, 0.0]).collect();
    let weights = graph.floats("weights", &[CLASSES as i64, 3, 1, 1], &weights);
    let scores = graph.node("fc6_1", "Conv", &[&mean, &weights], &[]);
    graph.output_of(&scores, FLOAT, &[1, CLASSES as i64, 1, 1].map(Dim::Fixed));
    graph.finish("ranks")
}

fn wanted(name: &str, classes: u64, binary: bool) -> RequestedOutput {
    RequestedOutput {
        name: name.into(),
        binary,
        classes,
    }
}

async fn infer(server: &Server, model: &str, inputs: Vec<Tensor>, output: RequestedOutput) -> Reply {
    let request = InferRequest {
        inputs,
        outputs: vec![output],
        ..InferRequest::default()
    };
    let (body, json_len) = request.encode_binary();
    let url = server.url(&format!("/v2/models/{model}/infer"));
    let request = server.client.post(url).header(HEADER_LENGTH, json_len).body(body);
    Reply::of(request.send().await.unwrap()).await
}

fn texts(data: &[u8]) -> Vec<String> {
    let text = |element: Result<&[u8], _>| String::from_utf8(element.unwrap().to_vec()).unwrap();
    bytes_elements(data).map(text).collect()
}

#[tokio::test]
async fn the_first_model_of_tritons_quickstart_is_served_with_its_labels() {
    let data = Data::generate(&[], 0);
    data.add_model("densenet_onnx", &densenet());
    std::fs::write(data.path("models/densenet_onnx/config.pbtxt"), DENSENET).unwrap();
    let labels: String = (0..CLASSES).map(|class| format!("CLASS {class}\n")).collect();
    std::fs::write(data.path("models/densenet_onnx/densenet_labels.txt"), labels).unwrap();
    let server = serve(&data, "memory", &[]);
    let config = server.get("/v2/models/densenet_onnx/config").await.json();
    assert_eq!(config["output"][0]["label_filename"], "densenet_labels.txt", "{config}");
    let extensions = server.get("/v2").await.json();
    let extensions = extensions["extensions"].as_array().unwrap();
    assert!(extensions.contains(&"classification".into()), "{extensions:?}");

    let image: Vec<u8> = [0.5_f32.to_le_bytes(); 3 * 224 * 224].concat();
    let image = || vec![tensor("data_0", DataType::Fp32, &[3, 224, 224], image.clone())];
    let expected = |count: usize| -> Vec<String> {
        let text = |heavy: usize| {
            let class = (0..CLASSES).find(|&class| weight(class) == heavy as f32).unwrap();
            format!("{:.6}:{class}:CLASS {class}", heavy as f32 / 2.0)
        };
        (0..count).map(|rank| text(CLASSES - 1 - rank)).collect()
    };
    for (count, binary) in [(3, false), (3, true), (5000, true)] {
        let reply = infer(&server, "densenet_onnx", image(), wanted("fc6_1", count, binary)).await;
        let output = &reply.inferred().outputs[0];
        let count = CLASSES.min(count as usize);
        assert_eq!(
            (output.dtype, &output.shape[..]),
            (DataType::Bytes, &[count as i64][..])
        );
        assert_eq!(texts(&output.data.whole()), expected(count));
    }
    let mut message = raw("densenet_onnx", image());
    let three = InferParameter {
        parameter_choice: Some(ParameterChoice::Int64Param(3)),
    };
    message.outputs = vec![InferRequestedOutputTensor {
        name: "fc6_1".into(),
        parameters: [("classification".to_owned(), three)].into(),
    }];
    let reply = call::<_, _, ModelInferResponse>(wire(&server), "ModelInfer", Request::new(message)).await;
    let reply = reply.unwrap().into_inner();
    assert_eq!(
        (reply.outputs[0].datatype.as_str(), &reply.outputs[0].shape[..]),
        ("BYTES", &[3][..])
    );
    assert_eq!(texts(&reply.raw_output_contents[0]), expected(3));
}

#[tokio::test]
async fn requests_of_one_batch_get_as_many_classes_as_each_asks_for() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("echo", &echo());
    let labels =
        "max_batch_size = 256\n[[outputs]]\nname = 'y_INT8'\ndatatype = 'INT8'\ndims = [2]\nlabels = 'two.txt'\n";
    data.configure("echo", labels);
    std::fs::write(data.path("models/echo/two.txt"), "left\nright").unwrap();
    let server = serve(&data, "memory", &[]);
    let row = |seed: u8, count: usize| {
        let values = [seed % 64, (seed + 1) % 64];
        let best = usize::from(values[1] > values[0]);
        let text = |at: usize| format!("{}:{at}:{}", values[at], ["left", "right"][at]);
        [text(best), text(1 - best)][..count.min(2)].to_vec()
    };
    let requests = (0..32_u8).map(|client| {
        let output = wanted("y_INT8", u64::from(client % 4), client % 8 > 3);
        infer(&server, "echo", echoed(2, 2 * client), output)
    });
    for (client, reply) in (0..32_u8).zip(futures::future::join_all(requests).await) {
        let output = reply.inferred().outputs.remove(0);
        if client % 4 == 0 {
            assert_eq!((output.dtype, &output.shape[..]), (DataType::Int8, &[2, 2][..]));
            continue;
        }
        let count = usize::from(client % 4).min(2);
        assert_eq!(
            (output.dtype, &output.shape[..]),
            (DataType::Bytes, &[2, count as i64][..])
        );
        let expected = [row(2 * client, count), row(2 * client + 2, count)].concat();
        assert_eq!(texts(&output.data.whole()), expected, "{client}");
    }
    let text = infer(&server, "echo", echoed(1, 0), wanted("y_BYTES", 1, false)).await;
    assert_eq!(text.status, 400);
    assert!(
        text.error().contains("output `y_BYTES`: `classification`"),
        "{}",
        text.text()
    );
    let half = infer(&server, "echo", echoed(1, 0), wanted("y_FP16", 1, false)).await;
    assert_eq!(
        half.inferred().outputs[0].shape,
        [1, 1],
        "classes are text where FP16 is not"
    );
}
