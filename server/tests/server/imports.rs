//! Models of the kinds that users bring: each imported, served, and asked over HTTP as JSON and binary and over gRPC, with an
//! answer that was computed by hand; or refused at the import, with what to do.

use crate::grpc::{call, raw, serve, wire};
use crate::harness::{Data, Server, json_request, tensor};
use std::path::{Path, PathBuf};
use tierlab_models::error::ModelsError;
use tierlab_models::import::{Import, ImportedModel, import};
use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::{DATA_EXTERNAL, ElementType, StringStringEntryProto};
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto, write_model};
use tierlab_models::stop::Stop;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::infer::Tensor;
use tierlab_protocol::tensor::DataType;
use tonic::Request;

const FLOAT: ElementType = ElementType::Float;
const INT64: ElementType = ElementType::Int64;
const N: Dim<'_> = Dim::Free("N");

/// A model, with a question and the answer to it.
struct ImportCase {
    name: &'static str,
    model: ModelProto,
    /// A config to import it with, and the file's name.
    config: Option<(&'static str, &'static str)>,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

fn case(name: &'static str, model: ModelProto, inputs: Vec<Tensor>, outputs: Vec<Tensor>) -> ImportCase {
    ImportCase {
        name,
        model,
        config: None,
        inputs,
        outputs,
    }
}

fn floats(name: &str, shape: &[i64], values: &[f32]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Fp32, shape, data)
}

fn ints(name: &str, shape: &[i64], values: &[i64]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, DataType::Int64, shape, data)
}

fn texts(name: &str, shape: &[i64], values: &[&str]) -> Tensor {
    let element = |text: &&str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    tensor(name, DataType::Bytes, shape, values.iter().flat_map(element).collect())
}

/// Mean of each channel of images of any size.
fn images() -> ImportCase {
    let mut graph = GraphBuilder::new("images");
    let [h, w] = [Dim::Free("H"), Dim::Free("W")];
    let image = graph.input_of("image", FLOAT, &[N, Dim::Fixed(3), h, w]);
    graph.node("mean", "GlobalAveragePool", &[&image], &[]);
    graph.output_of("mean", FLOAT, &[N, Dim::Fixed(3), Dim::Fixed(1), Dim::Fixed(1)]);
    let pixels: Vec<f32> = (0..3 * 2 * 5).map(|i| i as f32).collect();
    case(
        "images",
        graph.finish(""),
        vec![floats("image", &[1, 3, 2, 5], &pixels)],
        vec![floats("mean", &[1, 3, 1, 1], &[4.5, 14.5, 24.5])],
    )
}

/// Sum of the ids that are not masked, with ids and mask of any length.
fn text_ids() -> ImportCase {
    let mut graph = GraphBuilder::new("ids");
    let ids = graph.input_of("ids", INT64, &[N, Dim::Free("length")]);
    let mask = graph.input_of("mask", INT64, &[N, Dim::Free("length")]);
    let seen = graph.node("seen", "Mul", &[&ids, &mask], &[]);
    let axes = graph.ints("axes", &[1], &[1]);
    graph.node("sum", "ReduceSum", &[&seen, &axes], &[int("keepdims", 0)]);
    graph.output_of("sum", INT64, &[N]);
    let inputs = vec![
        ints("ids", &[2, 3], &[101, 7, 102, 101, 9, 0]),
        ints("mask", &[2, 3], &[1, 1, 1, 1, 1, 0]),
    ];
    case("ids", graph.finish(""), inputs, vec![ints("sum", &[2], &[210, 110])])
}

/// A step of a recurrent network: a state in and out and a scalar. Its file leaves a dimension free that ONNX Runtime infers.
fn recurrent() -> ImportCase {
    let mut graph = GraphBuilder::new("recurrent");
    let fixed = [Dim::Fixed(1), Dim::Fixed(4)];
    let frame = graph.input_of("frame", FLOAT, &fixed);
    let state = graph.input_of("state", FLOAT, &fixed);
    let rate = graph.input_of("rate", INT64, &[]);
    let scale = graph.node("scale", "Cast", &[&rate], &[int("to", 1)]);
    let scaled = graph.node("scaled", "Mul", &[&frame, &scale], &[]);
    let next = graph.node("next_state", "Add", &[&scaled, &state], &[]);
    let axes = graph.ints("axes", &[1], &[1]);
    graph.node("out", "Unsqueeze", &[&next, &axes], &[]);
    graph.output_of("out", FLOAT, &[Dim::Fixed(1), Dim::Free("steps"), Dim::Fixed(4)]);
    graph.output_of("next_state", FLOAT, &fixed);
    let inputs = vec![
        floats("frame", &[1, 4], &[1.0, 2.0, 3.0, 4.0]),
        floats("state", &[1, 4], &[0.5; 4]),
        ints("rate", &[], &[2]),
    ];
    let next = [2.5, 4.5, 6.5, 8.5];
    let outputs = vec![floats("out", &[1, 1, 4], &next), floats("next_state", &[1, 4], &next)];
    case("recurrent", graph.finish(""), inputs, outputs)
}

/// The same, whose scalar clients send as `[1]`, as Triton's config has it.
fn reshaped() -> ImportCase {
    let mut model = recurrent();
    model.name = "reshaped";
    model.config = Some((
        "config.pbtxt",
        "name: 'reshaped' backend: 'onnxruntime' max_batch_size: 0\n\
         input { name: 'rate' data_type: TYPE_INT64 dims: [ 1 ] reshape: { shape: [ ] } }\n\
         output { name: 'out' data_type: TYPE_FP32 dims: [ 1, -1, 4 ] }\n\
         output { name: 'next_state' data_type: TYPE_FP32 dims: [ 4 ] reshape: { shape: [ 1, 4 ] } }\n\
         model_warmup { name: 'one' batch_size: 1 inputs { key: 'rate' value: { data_type: TYPE_INT64 dims: [ 1 ] zero_data: true } } }\n",
    ));
    model.inputs[2].shape = vec![1];
    model.outputs[1].shape = vec![4];
    model
}

/// Bytes and INT32.
fn bytes() -> ImportCase {
    let mut graph = GraphBuilder::new("bytes");
    let raw = graph.input_of("raw", ElementType::Uint8, &[N, Dim::Free("bytes")]);
    let offset = graph.input_of("offset", ElementType::Int32, &[N, Dim::Fixed(1)]);
    let wide = graph.node("wide", "Cast", &[&raw], &[int("to", 6)]);
    graph.node("y", "Add", &[&wide, &offset], &[]);
    graph.output_of("y", ElementType::Int32, &[N, Dim::Free("bytes")]);
    let int32 = |values: &[i32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let inputs = vec![
        tensor("raw", DataType::Uint8, &[1, 3], vec![0, 128, 255]),
        tensor("offset", DataType::Int32, &[1, 1], int32(&[-200])),
    ];
    let outputs = vec![tensor("y", DataType::Int32, &[1, 3], int32(&[-200, -72, 55]))];
    case("bytes", graph.finish(""), inputs, outputs)
}

/// Halves; for BF16 ONNX Runtime's CPU build has no `Add`, but it has `Identity`.
fn halves(name: &'static str, element: ElementType, dtype: DataType, op: &str) -> ImportCase {
    let mut graph = GraphBuilder::new(name);
    let x = graph.input_of("x", element, &[N, Dim::Fixed(2)]);
    let inputs = if op == "Add" {
        vec![x.as_str(), x.as_str()]
    } else {
        vec![x.as_str()]
    };
    graph.node("y", op, &inputs, &[]);
    graph.output_of("y", element, &[N, Dim::Fixed(2)]);
    // 1 and -2 as FP16; with one more in the exponent, twice that.
    let (one, two) = ([0x3c00_u16, 0xc000], [0x4000_u16, 0xc400]);
    let data = |values: [u16; 2]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let answer = if op == "Add" { two } else { one };
    case(
        name,
        graph.finish(""),
        vec![tensor("x", dtype, &[1, 2], data(one))],
        vec![tensor("y", dtype, &[1, 2], data(answer))],
    )
}

/// Text to text.
fn strings() -> ImportCase {
    let mut graph = GraphBuilder::new("strings");
    let x = graph.input_of("x", ElementType::String, &[N]);
    graph.node("y", "StringConcat", &[&x, &x], &[]);
    graph.output_of("y", ElementType::String, &[N]);
    let mut model = graph.finish("");
    // The operator came with this version.
    (model.ir_version, model.opset_import[0].version) = (9, 20);
    case(
        "strings",
        model,
        vec![texts("x", &[3], &["One", "", "zwölf "])],
        vec![texts("y", &[3], &["OneOne", "", "zwölf zwölf "])],
    )
}

/// Model with as many answers as the values ask for.
fn varying() -> ImportCase {
    let mut graph = GraphBuilder::new("varying");
    let x = graph.input_of("x", FLOAT, &[N]);
    graph.node("where", "NonZero", &[&x], &[]);
    graph.output_of("where", INT64, &[Dim::Fixed(1), Dim::Free("K")]);
    case(
        "varying",
        graph.finish(""),
        vec![floats("x", &[5], &[0.0, 1.0, 0.0, -2.0, 3.0])],
        vec![ints("where", &[1, 3], &[1, 3, 4])],
    )
}

/// Two outputs of different types, batched by its config.
fn several() -> ImportCase {
    let mut graph = GraphBuilder::new("several");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(4)]);
    let k = graph.ints("k", &[1], &[2]);
    let outputs = graph.node_with_outputs("top", "TopK", &[&x, &k], &[], 2);
    graph.output_of(&outputs[0], FLOAT, &[N, Dim::Fixed(2)]);
    graph.output_of(&outputs[1], INT64, &[N, Dim::Fixed(2)]);
    let inputs = vec![floats("x", &[2, 4], &[1.0, 4.0, 2.0, 3.0, 9.0, 8.0, 7.0, 6.0])];
    let answers = vec![
        floats("top:0", &[2, 2], &[4.0, 3.0, 9.0, 8.0]),
        ints("top:1", &[2, 2], &[1, 3, 0, 1]),
    ];
    ImportCase {
        config: Some(("config.toml", "max_batch_size = 8\n")),
        ..case("several", graph.finish(""), inputs, answers)
    }
}

/// No batch: three numbers to one, a scalar; and the output has no shape in the file.
fn unbatched(name: &'static str, with_shape: bool) -> ImportCase {
    let mut graph = GraphBuilder::new(name);
    let x = graph.input_of("x", FLOAT, &[Dim::Fixed(3)]);
    let op = if with_shape { "ReduceSum" } else { "Neg" };
    let attributes = [int("keepdims", 0)];
    graph.node("y", op, &[&x], if with_shape { &attributes[..] } else { &[] });
    graph.output_of("y", FLOAT, &[]);
    let mut model = graph.finish("");
    let (shape, answer) = if with_shape {
        (vec![], vec![6.5])
    } else {
        forget_shape(&mut model);
        (vec![3], vec![-1.0, -2.0, -3.5])
    };
    case(
        name,
        model,
        vec![floats("x", &[3], &[1.0, 2.0, 3.5])],
        vec![floats("y", &shape, &answer)],
    )
}

/// A vector in the shape that a second input says: no shape in the file, and nothing to infer it from.
fn unranked() -> ImportCase {
    let mut graph = GraphBuilder::new("unranked");
    let x = graph.input_of("x", FLOAT, &[N]);
    let shape = graph.input_of("shape", INT64, &[Dim::Free("K")]);
    graph.node("y", "Reshape", &[&x, &shape], &[]);
    graph.output_of("y", FLOAT, &[]);
    let mut model = graph.finish("");
    forget_shape(&mut model);
    let values = [1.0, 2.0, 3.0, 4.0];
    case(
        "unranked",
        model,
        vec![floats("x", &[4], &values), ints("shape", &[2], &[2, 2])],
        vec![floats("y", &[2, 2], &values)],
    )
}

fn forget_shape(model: &mut ModelProto) {
    let output = &mut model.graph.as_mut().unwrap().output[0];
    if let Some(tensor) = output.r#type.as_mut().unwrap().tensor_type.as_mut() {
        tensor.shape = None;
    }
}

/// `y = relu(x · w)`, in another version of the format and the operators.
fn of_version(name: &'static str, ir: i64, opset: i64) -> ImportCase {
    let mut graph = GraphBuilder::new(name);
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let w = graph.floats("w", &[2, 2], &[1.0, -1.0, 2.0, -2.0]);
    let product = graph.node("product", "MatMul", &[&x, &w], &[]);
    graph.node("y", "Relu", &[&product], &[]);
    graph.output_of("y", FLOAT, &[N, Dim::Fixed(2)]);
    let mut model = graph.finish("");
    model.ir_version = ir;
    model.opset_import[0].version = opset;
    if ir < 4 {
        // The weights stand among the inputs.
        let graph = model.graph.as_mut().unwrap();
        let mut listed = graph.input[0].clone();
        listed.name = "w".into();
        graph.input.push(listed);
    }
    case(
        name,
        model,
        vec![floats("x", &[1, 2], &[1.0, 1.0])],
        vec![floats("y", &[1, 2], &[3.0, 0.0])],
    )
}

/// The weights in a file of their own, in a folder beside the graph, behind some bytes that are not theirs.
fn external(folder: &Path) -> ImportCase {
    let mut case = of_version("external", 8, 17);
    let weight = &mut case.model.graph.as_mut().unwrap().initializer[0];
    std::fs::create_dir_all(folder.join("weights")).unwrap();
    let file = [&[7; 4096][..], &weight.raw_data].concat();
    std::fs::write(folder.join("weights/w.bin"), file).unwrap();
    weight.raw_data = bytes::Bytes::new();
    weight.data_location = DATA_EXTERNAL;
    weight.external_data = [("location", "./weights/w.bin"), ("offset", "4096"), ("length", "16")]
        .map(|(key, value)| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        })
        .into();
    case
}

fn every_kind(folder: &Path) -> Vec<ImportCase> {
    vec![
        images(),
        text_ids(),
        recurrent(),
        reshaped(),
        bytes(),
        halves("fp16", ElementType::Float16, DataType::Fp16, "Add"),
        halves("bf16", ElementType::Bfloat16, DataType::Bf16, "Identity"),
        strings(),
        varying(),
        unranked(),
        several(),
        unbatched("scalar", true),
        unbatched("shapeless", false),
        of_version("oldest", 3, 9),
        of_version("newest", 10, 21),
        external(folder),
    ]
}

/// Imports a model from a folder of its user's into the repository of `data`.
fn import_case(data: &Data, folder: &Path, case: &ImportCase) -> Result<ImportedModel, ModelsError> {
    let file = folder.join(format!("{}.onnx", case.name));
    write_model(&case.model, &mut std::fs::File::create(&file).unwrap()).unwrap();
    let config = case.config.map(|(name, text)| {
        let path: PathBuf = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let request = Import {
        model: file,
        config,
        ..Import::default()
    };
    import(&data.path("models"), &request, &Stop::never())
}

fn assert_same(label: &str, expected: &[Tensor], actual: &[Tensor]) {
    assert_eq!(expected.len(), actual.len(), "{label}");
    for (expected, actual) in expected.iter().zip(actual) {
        let parts = |tensor: &Tensor| {
            (
                tensor.name.clone(),
                tensor.dtype,
                tensor.shape.clone(),
                tensor.data.whole().to_vec(),
            )
        };
        assert_eq!(parts(expected), parts(actual), "{label}");
    }
}

async fn check_served(server: &Server, case: &ImportCase) {
    let name = case.name;
    let reply = server.infer(name, case.inputs.clone()).await;
    assert_same(
        &format!("{name} by binary HTTP"),
        &case.outputs,
        &reply.inferred().outputs,
    );
    // Half floats have no JSON form.
    if !case
        .outputs
        .iter()
        .any(|output| matches!(output.dtype, DataType::Fp16 | DataType::Bf16))
    {
        let body = json_request(case.inputs.clone(), None, None);
        let reply = server.post(&format!("/v2/models/{name}/infer"), body).await;
        assert_same(&format!("{name} by JSON"), &case.outputs, &reply.inferred().outputs);
    }
    let message = Request::new(raw(name, case.inputs.clone()));
    let reply: ModelInferResponse = call(wire(server), "ModelInfer", message).await.unwrap().into_inner();
    let outputs = reply.outputs.into_iter().zip(reply.raw_output_contents);
    let outputs: Vec<Tensor> = outputs
        .map(|(output, data)| {
            tensor(
                &output.name,
                output.datatype.parse().unwrap(),
                &output.shape,
                data.to_vec(),
            )
        })
        .collect();
    assert_same(&format!("{name} by gRPC"), &case.outputs, &outputs);
}

#[tokio::test]
async fn what_is_imported_is_served_and_answers_right() {
    let (data, folder) = (Data::generate(&[], 0), tempfile::tempdir().unwrap());
    let models = every_kind(folder.path());
    for case in &models {
        import_case(&data, folder.path(), case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
    let server = serve(&data, "memory", &[]);
    for case in &models {
        check_served(&server, case).await;
    }
    // Clients may send the shapes of the metadata.
    let metadata = server.get("/v2/models/reshaped").await.json();
    assert_eq!(metadata["inputs"][2]["shape"], serde_json::json!([1]), "{metadata}");
    assert_eq!(metadata["outputs"][1]["shape"], serde_json::json!([4]), "{metadata}");
    let config = server.get("/v2/models/reshaped/config").await.json();
    assert_eq!(
        (&config["input"][2]["dims"], &config["input"][2]["reshape"]["shape"]),
        (&serde_json::json!([1]), &serde_json::json!([])),
        "{config}"
    );
    assert_eq!(
        config["output"][1]["reshape"]["shape"],
        serde_json::json!([1, 4]),
        "{config}"
    );
    assert_eq!(config["input"][0].get("reshape"), None, "{config}");
    let mut mismatched = reshaped().inputs;
    mismatched[2].shape = vec![];
    let refused = server.infer("reshaped", mismatched).await;
    assert!(
        refused.status == 400 && refused.error().contains("`shape` is [], but the model requires [1]"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_manifest_may_leave_free_what_onnx_runtime_infers_and_nothing_else() {
    let (data, folder) = (Data::generate(&[], 0), tempfile::tempdir().unwrap());
    let imported = import_case(&data, folder.path(), &recurrent()).unwrap();
    assert_eq!(imported.manifest.outputs[0].shape, [1, -1, 4], "as the file has it");
    let manifest = data.path("models/recurrent/manifest.json");
    let mut other = imported.manifest.clone();
    other.outputs[0].shape = vec![1, 2, 4];
    std::fs::write(&manifest, serde_json::to_vec(&other).unwrap()).unwrap();
    let output = crate::harness::refused(&crate::harness::on_tier(&data, "memory"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "output `out` is FP32 [1, 2, 4] in the manifest and FP32 [1, 1, 4] in the graph";
    assert!(message.contains(expected), "{message}\n  should say {expected}");
}

#[test]
fn what_the_server_would_refuse_is_not_imported() {
    let (data, folder) = (Data::generate(&[], 0), tempfile::tempdir().unwrap());
    let with_config = |mut case: ImportCase, name: &'static str, config: &'static str| {
        case.name = name;
        case.config = Some(("config.toml", config));
        case
    };
    let declared = |text: &'static str, name| with_config(varying(), name, text);
    for (case, expected) in [
        (
            halves("brain", ElementType::Bfloat16, DataType::Bf16, "Add"),
            "has no kernel for that operator with these types: export the model with other ones",
        ),
        (
            with_config(varying(), "rows", "max_batch_size = 4\n"),
            "`max_batch_size` = 4, but the first dimension of output `where` is fixed at 1",
        ),
        (
            declared("[[inputs]]\nname = 'x'\ndatatype = 'FP64'\ndims = [-1]\n", "type"),
            "input `x`: the config declares FP64, the graph has FP32",
        ),
        (
            declared("[[outputs]]\nname = 'z'\ndatatype = 'INT64'\ndims = [1, -1]\n", "name"),
            "the config declares output `z`, the graph has where",
        ),
        (
            declared("[joined.y]\ntable = 't'\n", "joined"),
            "`joined.y`: the graph has no such input",
        ),
        (
            declared(
                "[[warmup]]\nname = 'w'\n[warmup.inputs.x]\ndims = [2, 2]\ndata = 'zero'\n",
                "warmup",
            ),
            "warm-up `w`: input `x`: shape [2, 2] does not fit the graph's [-1]",
        ),
        (
            with_config(
                images(),
                "sum",
                "[[warmup]]\nname = 'w'\n[warmup.inputs.image]\ndims = [1, 3, 2, 2]\ndata = { file = 'x.bin' }\n",
            ),
            "x.bin: cannot read the file of a warm-up sample",
        ),
    ] {
        let err = import_case(&data, folder.path(), &case).err();
        let err = err.unwrap_or_else(|| panic!("{} was imported", case.name)).to_string();
        assert!(err.contains(expected), "{err}\n  should say {expected}");
        assert!(!data.path(&format!("models/{}", case.name)).exists(), "nothing is left");
    }
    let mut rows = declared_sum();
    rows.name = "lost_rows";
    let error = import_case(&data, folder.path(), &rows).unwrap_err().to_string();
    assert!(
        error.contains("output `y` has shape [") && error.contains("set `max_batch_size` to 0"),
        "{error}"
    );
}

/// Its file says that its output has rows, and it adds them up.
fn declared_sum() -> ImportCase {
    let mut graph = GraphBuilder::new("sum");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    graph.node("where", "NonZero", &[&x], &[]);
    graph.node("y", "Transpose", &["where"], &[]);
    graph.output_of("y", INT64, &[Dim::Free(""), Dim::Fixed(2)]);
    ImportCase {
        config: Some(("config.toml", "max_batch_size = 8\n")),
        ..case("sum", graph.finish(""), vec![], vec![])
    }
}

#[test]
fn weights_that_are_not_whole_are_told_with_their_sizes() {
    let (data, folder) = (Data::generate(&[], 0), tempfile::tempdir().unwrap());
    let case = external(folder.path());
    let weights = folder.path().join("weights/w.bin");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4112\n";
    for (bytes, expected) in [
        (
            &[7; 4100][..],
            &[
                "have 4100 bytes",
                "tensor `w` ends at byte 4112",
                "copy or download it again",
            ][..],
        ),
        (
            pointer.as_bytes(),
            &[
                "w.bin: ",
                "needs 4112 bytes",
                "a git-lfs pointer to a file of 4112 bytes",
                "git lfs pull",
            ],
        ),
    ] {
        std::fs::write(&weights, bytes).unwrap();
        let error = import_case(&data, folder.path(), &case).unwrap_err().to_string();
        for expected in expected {
            assert!(error.contains(expected), "{error}\n  should say {expected}");
        }
    }
    std::fs::write(folder.path().join("pointer.onnx"), pointer).unwrap();
    let request = Import {
        model: folder.path().join("pointer.onnx"),
        unchecked: true,
        ..Import::default()
    };
    let error = import(&data.path("models"), &request, &Stop::never())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("pointer.onnx") && error.contains("git lfs pull"),
        "{error}"
    );
    assert!(
        std::fs::read_dir(data.0.path())
            .unwrap()
            .next()
            .is_none_or(|models| { std::fs::read_dir(models.unwrap().path()).unwrap().next().is_none() })
    );
}

/// The server says the same of files that were put there in another way.
#[test]
fn the_server_tells_truncated_weights_before_it_reads_them() {
    let (data, folder) = (Data::generate(&[], 0), tempfile::tempdir().unwrap());
    import_case(&data, folder.path(), &external(folder.path())).unwrap();
    std::fs::remove_file(data.path("models/external/manifest.json")).unwrap();
    std::fs::write(data.path("models/external/1/weights/w.bin"), [7; 4100]).unwrap();
    let output = crate::harness::refused(&crate::harness::on_tier(&data, "memory"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("`weights/w.bin` have 4100 bytes") && message.contains("ends at byte 4112"),
        "{message}"
    );
}
