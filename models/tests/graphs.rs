//! The generated graphs in the real ONNX Runtime: they load, agree with arithmetic by hand, and do not depend on the
//! rest of the batch.

use ort::session::{Session, SessionInputValue};
use ort::value::Tensor;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_models::generators::{CARDINALITIES, CTR_CATEGORICAL, CTR_DENSE, ModelKind, REVISION, Request, Size};
use tierlab_models::onnx::{Interface, ModelProto, write_model};
use tierlab_models::tables::{ctr, vision};

type Inputs = Vec<(Cow<'static, str>, SessionInputValue<'static>)>;

fn library() -> PathBuf {
    let path = std::env::var_os("ORT_DYLIB_PATH").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../.runtime/onnxruntime/libonnxruntime.so.1.31.1"
            ))
        },
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "no ONNX Runtime library at {}: run `scripts/setup onnxruntime` at the project's root, or set ORT_DYLIB_PATH",
        path.display()
    );
    path
}

fn session(model: &ModelProto) -> Session {
    let mut bytes = Vec::new();
    write_model(model, &mut bytes).unwrap();
    let environment = ort::init_from(library()).unwrap().build().unwrap();
    Session::builder(&environment)
        .unwrap()
        .with_intra_threads(1)
        .unwrap()
        .commit_from_memory(&bytes)
        .unwrap()
}

fn run(session: &mut Session, inputs: Inputs, output: &str) -> (Vec<i64>, Vec<f32>) {
    let outputs = session.run(inputs).unwrap();
    let (shape, values) = outputs[output].try_extract_tensor::<f32>().unwrap();
    (shape.to_vec(), values.to_vec())
}

fn input<T: ort::value::PrimitiveTensorElementType + std::fmt::Debug + Clone + 'static>(
    name: &'static str,
    shape: &[usize],
    values: Vec<T>,
) -> (Cow<'static, str>, SessionInputValue<'static>) {
    (
        Cow::Borrowed(name),
        Tensor::from_array((shape.to_vec(), values)).unwrap().into(),
    )
}

fn small(kind: ModelKind) -> ModelProto {
    Request {
        kind,
        size: Size::Small,
        seed: 1,
    }
    .build()
}

/// Runs five rows together and each alone, and returns the five rows' outputs.
fn rows_agree(
    model: &ModelProto,
    output: &str,
    width: usize,
    inputs: impl Fn(std::ops::Range<usize>) -> Inputs,
) -> Vec<f32> {
    let mut session = session(model);
    let (shape, together) = run(&mut session, inputs(0..5), output);
    assert_eq!(shape, [5, width as i64]);
    assert!(together.iter().all(|value| value.is_finite()));
    for row in 0..5 {
        let (shape, alone) = run(&mut session, inputs(row..row + 1), output);
        assert_eq!(shape, [1, width as i64]);
        for (a, b) in alone.iter().zip(&together[row * width..]) {
            assert!((a - b).abs() <= 1e-5, "row {row}: {a} alone, {b} in a batch");
        }
    }
    together
}

/// Rows must not all get the same answer.
fn assert_varied(rows: &[f32], width: usize, least: f32) {
    for other in 1..rows.len() / width {
        let distance = rows[..width]
            .iter()
            .zip(&rows[other * width..])
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(distance > least, "rows 0 and {other} differ by {distance} only");
    }
}

/// The model's constants by name, as floats.
fn constants(model: &ModelProto) -> BTreeMap<String, Vec<f32>> {
    let graph = model.graph.as_ref().unwrap();
    let floats = |raw: &[u8]| {
        raw.chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect()
    };
    graph
        .initializer
        .iter()
        .map(|tensor| (tensor.name.clone(), floats(&tensor.raw_data)))
        .collect()
}

fn linear(constants: &BTreeMap<String, Vec<f32>>, name: &str, input: &[f32]) -> Vec<f32> {
    let (weight, bias) = (
        &constants[&format!("{name}.weight")],
        &constants[&format!("{name}.bias")],
    );
    let width = bias.len();
    assert_eq!(weight.len(), width * input.len());
    (0..width)
        .map(|to| {
            bias[to]
                + input
                    .iter()
                    .enumerate()
                    .map(|(from, x)| x * weight[from * width + to])
                    .sum::<f32>()
        })
        .collect()
}

/// Linear layers `name.0`, `name.1`, … with ReLU after each.
fn perceptron(constants: &BTreeMap<String, Vec<f32>>, name: &str, input: &[f32]) -> Vec<f32> {
    let mut value = input.to_vec();
    for layer in (0..)
        .map(|i| format!("{name}.{i}"))
        .take_while(|l| constants.contains_key(&format!("{l}.weight")))
    {
        value = linear(constants, &layer, &value).iter().map(|x| x.max(0.0)).collect();
    }
    value
}

fn mlp_rows() -> Vec<f32> {
    (0..5 * 64).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect()
}

#[test]
fn mlp_computes_what_it_says() {
    let model = small(ModelKind::Mlp);
    let rows = mlp_rows();
    let outputs = rows_agree(&model, "output", 1, |range| {
        vec![input(
            "input",
            &[range.len(), 64],
            rows[range.start * 64..range.end * 64].to_vec(),
        )]
    });
    assert_varied(&outputs, 1, 1e-3);
    let constants = constants(&model);
    for (row, found) in rows.chunks(64).zip(&outputs) {
        let wanted = linear(&constants, "output", &perceptron(&constants, "hidden", row))[0];
        assert!((wanted - found).abs() < 1e-4, "{found} is not {wanted}");
    }
}

fn ctr_inputs(dense: &[f32], categorical: &[i64]) -> Inputs {
    let rows = dense.len() / CTR_DENSE;
    vec![
        input("dense", &[rows, CTR_DENSE], dense.to_vec()),
        input("categorical", &[rows, CTR_CATEGORICAL], categorical.to_vec()),
    ]
}

/// DLRM by hand: bottom MLP, embeddings, pairwise dots, top MLP, sigmoid.
fn ctr_by_hand(constants: &BTreeMap<String, Vec<f32>>, dense: &[f32], categorical: &[i64]) -> f32 {
    const WIDTH: usize = 16;
    let tamed: Vec<f32> = dense.iter().map(|x| x.max(0.0).ln_1p()).collect();
    let bottom = perceptron(constants, "bottom", &tamed);
    let mut vectors = vec![bottom.clone()];
    for (i, &id) in categorical.iter().enumerate() {
        let table = &constants[&format!("table.{i}")];
        let row = id.rem_euclid((table.len() / WIDTH) as i64) as usize;
        vectors.push(table[row * WIDTH..(row + 1) * WIDTH].to_vec());
    }
    let mut joined = bottom;
    for i in 0..vectors.len() {
        for j in 0..i {
            joined.push(vectors[i].iter().zip(&vectors[j]).map(|(a, b)| a * b).sum());
        }
    }
    let logit = linear(constants, "logit", &perceptron(constants, "top", &joined))[0];
    1.0 / (1.0 + (-logit).exp())
}

#[test]
fn ctr_computes_what_it_says_on_its_own_table() {
    let model = small(ModelKind::Ctr);
    let rows: Vec<_> = (0..5).map(|id| ctr::row_values(1, id)).collect();
    let outputs = rows_agree(&model, "probability", 1, |range| {
        let dense: Vec<f32> = rows[range.clone()].iter().flat_map(|row| row.dense).collect();
        let categorical: Vec<i64> = rows[range].iter().flat_map(|row| row.categorical).collect();
        ctr_inputs(&dense, &categorical)
    });
    assert_varied(&outputs, 1, 1e-4);
    let constants = constants(&model);
    for (row, found) in rows.iter().zip(&outputs) {
        let wanted = ctr_by_hand(&constants, &row.dense, &row.categorical);
        assert!((wanted - found).abs() < 1e-5, "{found} is not {wanted}");
        assert!((0.001..0.999).contains(found), "{found} is saturated");
    }
}

#[test]
fn ctr_takes_any_id_and_any_count() {
    let model = small(ModelKind::Ctr);
    let mut session = session(&model);
    let constants = constants(&model);
    for (count, id) in [
        (0.0, -1),
        (-5.0, i64::MIN),
        (1e30, i64::MAX),
        (3.0, i64::from(CARDINALITIES[2])),
    ] {
        let (dense, categorical) = ([count; CTR_DENSE], [id; CTR_CATEGORICAL]);
        let (_, found) = run(&mut session, ctr_inputs(&dense, &categorical), "probability");
        let wanted = ctr_by_hand(&constants, &dense, &categorical);
        assert!(
            (found[0] - wanted).abs() < 1e-4,
            "count {count}, id {id}: {} is not {wanted}",
            found[0]
        );
    }
}

fn images(range: std::ops::Range<usize>) -> Inputs {
    let pixels: Vec<u8> = range.clone().flat_map(|id| vision::row_values(1, id as i64)).collect();
    vec![input("image", &[range.len(), 3, 224, 224], pixels)]
}

#[test]
fn vision_tells_images_apart() {
    let outputs = rows_agree(&small(ModelKind::Vision), "logits", 1000, images);
    assert_varied(&outputs, 1000, 1e-2);
    assert!(outputs.iter().all(|logit| logit.abs() < 100.0));
}

#[test]
fn full_vision_is_resnet_50() {
    let model = Request {
        kind: ModelKind::Vision,
        size: Size::Full,
        seed: 1,
    }
    .build();
    let graph = model.graph.as_ref().unwrap();
    // 53 convolutions and one linear layer: 25,557,032 parameters with batch normalisation's scale and shift, of which
    // folding leaves one bias per channel (26,560 fewer), and 6 constants of the normalisation.
    let parameters: i64 = graph
        .initializer
        .iter()
        .map(|tensor| tensor.dims.iter().product::<i64>())
        .sum();
    assert_eq!(parameters, 25_557_032 - 26_560 + 6);
    assert_eq!(graph.node.iter().filter(|node| node.op_type == "Conv").count(), 53);
    let (shape, logits) = run(&mut session(&model), images(0..2), "logits");
    assert_eq!(shape, [2, 1000]);
    assert!(logits.iter().all(|logit| logit.is_finite() && logit.abs() < 1e3));
    assert_varied(&logits, 1000, 1e-2);
}

#[test]
fn the_same_request_gives_the_same_bytes_everywhere() {
    let sum = |kind, seed| {
        let mut bytes = Vec::new();
        write_model(
            &Request {
                kind,
                size: Size::Small,
                seed,
            }
            .build(),
            &mut bytes,
        )
        .unwrap();
        hex::encode(Sha256::digest(&bytes))
    };
    // Sums of recipe 1. A change of the generators that alters them is fine: raise `REVISION` and put new sums here.
    assert_eq!(REVISION, 1);
    assert_eq!(
        sum(ModelKind::Mlp, 1),
        "8be8cc4e1f080b47946790cf9de0b35645c2232e85d8fb47a846927b6f79f349"
    );
    assert_eq!(
        sum(ModelKind::Ctr, 1),
        "6d8b62f4286501a8e8d6dfc9e42b0aa7ff1a308f03ff99e654a091057783aece"
    );
    assert_eq!(
        sum(ModelKind::Vision, 1),
        "30915339c9c2afbf528b01fa59a55710677ef7d91042825e5430cea3520aaf4c"
    );
    assert_ne!(sum(ModelKind::Mlp, 1), sum(ModelKind::Mlp, 2));
}

#[test]
fn interfaces_are_the_ones_documented() {
    let lines = |kind| {
        let interface = Interface::from_model(&small(kind)).unwrap();
        let specs = interface.inputs.iter().chain(&interface.outputs);
        specs
            .map(|spec| format!("{} {} {:?}", spec.name, spec.dtype, spec.shape))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(ModelKind::Mlp), ["input FP32 [-1, 64]", "output FP32 [-1, 1]"]);
    assert_eq!(
        lines(ModelKind::Ctr),
        [
            "dense FP32 [-1, 13]",
            "categorical INT64 [-1, 26]",
            "probability FP32 [-1, 1]"
        ]
    );
    assert_eq!(
        lines(ModelKind::Vision),
        ["image UINT8 [-1, 3, 224, 224]", "logits FP32 [-1, 1000]"]
    );
}
