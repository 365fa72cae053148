//! `tierlab-models import --batching`: the real binary with graphs whose rows are independent, and graphs whose rows
//! are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tierlab_formats::model::ModelConfig;
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto, write_model};

const N: Dim<'_> = Dim::Free("N");
const FLOAT: ElementType = ElementType::Float;

/// Imports a model as `name`; returns the output, and its config.
fn import(at: &Path, name: &str, model: &ModelProto, options: &[&str]) -> (Output, Option<ModelConfig>) {
    let file = at.join(format!("{name}.onnx"));
    write_model(model, &mut fs::File::create(&file).unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tierlab-models"))
        .current_dir(at)
        .env("ORT_DYLIB_PATH", library())
        .arg("import")
        .arg(&file)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let config = fs::read_to_string(at.join(format!("models/repository/{name}/config.toml"))).ok();
    (output, config.map(|text| ModelConfig::parse(&text).unwrap()))
}

fn library() -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../.runtime/onnxruntime");
    std::env::var_os("ORT_DYLIB_PATH").map_or_else(|| folder.into(), PathBuf::from)
}

fn text(output: &Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{stdout}{stderr}")
}

#[test]
fn rows_that_do_not_depend_on_each_other_are_batched() {
    let here = tempfile::tempdir().unwrap();
    for (kind, options, most) in [
        (ModelKind::Mlp, &["--batching"][..], 32),
        (ModelKind::Ctr, &["--batching=300"], 300),
        (ModelKind::Vision, &["--batching=4"], 4),
    ] {
        let request = Request {
            kind,
            size: Size::Small,
            seed: 1,
        };
        let (output, config) = import(here.path(), &kind.to_string(), &request.build(), options);
        assert!(output.status.success(), "{}", text(&output));
        let sizes = format!(", {most} rows;");
        assert!(text(&output).contains(&sizes), "{} should say {sizes}", text(&output));
        let expected = ModelConfig {
            max_batch_size: most,
            ..ModelConfig::default()
        };
        assert_eq!(config, Some(expected));
    }
}

/// Texts and booleans, and a second free dimension.
#[test]
fn every_kind_of_element_is_tried() {
    let here = tempfile::tempdir().unwrap();
    let mut graph = GraphBuilder::new("kinds");
    let length = Dim::Free("length");
    for (name, element) in [
        ("text", ElementType::String),
        ("flag", ElementType::Bool),
        ("half", ElementType::Float16),
        ("brain", ElementType::Bfloat16),
        ("double", ElementType::Double),
        ("byte", ElementType::Int8),
        ("whole", ElementType::Uint64),
    ] {
        let x = graph.input_of(name, element, &[N, length]);
        let y = graph.node(&format!("{name}_out"), "Identity", &[&x], &[]);
        graph.output_of(&y, element, &[N, length]);
    }
    let (output, config) = import(here.path(), "kinds", &graph.finish("gives back"), &["--batching"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(config.unwrap().max_batch_size, 32);
}

#[test]
fn indices_of_every_row_are_in_their_table() {
    let here = tempfile::tempdir().unwrap();
    let mut graph = GraphBuilder::new("embedding");
    let id = graph.input_of("id", ElementType::Int64, &[N]);
    // The first limit of integers is 100.
    let values: Vec<f32> = (0..99_u8).map(f32::from).collect();
    let table = graph.floats("table", &[99, 1], &values);
    let y = graph.node("y", "Gather", &[&table, &id], &[int("axis", 0)]);
    graph.output_of(&y, FLOAT, &[N, Dim::Fixed(1)]);
    let (output, config) = import(here.path(), "embedding", &graph.finish("looks up"), &["--batching=300"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(config.unwrap().max_batch_size, 300);
}

/// ONNX Runtime copies no output that is an input.
#[test]
fn an_output_that_is_an_input_is_compared_while_it_is_in_memory() {
    let here = tempfile::tempdir().unwrap();
    let mut graph = GraphBuilder::new("passed");
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(300)]);
    let y = graph.node("y", "Relu", &[&x], &[]);
    graph.output_of(&x, FLOAT, &[N, Dim::Fixed(300)]);
    graph.output_of(&y, FLOAT, &[N, Dim::Fixed(300)]);
    let (output, config) = import(here.path(), "passed", &graph.finish("passes on"), &["--batching"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(config.unwrap().max_batch_size, 32);
}

/// A graph of `x` [N, 2] with one node, to `y` of a shape.
fn one_node(op: &str, constant: Option<&[i64]>, axis: Option<i64>, shape: &[Dim<'_>]) -> ModelProto {
    let mut graph = GraphBuilder::new(op);
    let x = graph.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let constant = constant.map(|values| {
        let dims: &[i64] = if op == "CumSum" { &[] } else { &[1] };
        graph.ints("constant", dims, values)
    });
    let inputs: Vec<&str> = [&x].into_iter().chain(&constant).map(String::as_str).collect();
    let attributes: Vec<_> = axis.map(|axis| int("axis", axis)).into_iter().collect();
    let y = graph.node("y", op, &inputs, &attributes);
    graph.output_of(&y, FLOAT, shape);
    graph.finish("one node")
}

#[test]
fn rows_that_depend_on_each_other_are_refused_and_imported_without_batches() {
    let here = tempfile::tempdir().unwrap();
    let same = [N, Dim::Fixed(2)];
    let mut crossing = GraphBuilder::new("crossing");
    let x = crossing.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let turned = crossing.node("turned", "Transpose", &[&x], &[]);
    let y = crossing.node("y", "MatMul", &[&x, &turned], &[]);
    crossing.output_of(&y, FLOAT, &[N, N]);
    let mut constant = GraphBuilder::new("constant");
    let x = constant.input_of("x", FLOAT, &[N, Dim::Fixed(2)]);
    let zero = constant.floats("zero", &[], &[0.0]);
    let y = constant.node("y", "Mul", &[&x, &zero], &[]);
    constant.output_of(&y, FLOAT, &[N, Dim::Fixed(2)]);
    let mut filter = GraphBuilder::new("filter");
    let x = filter.input_of("x", FLOAT, &[N]);
    let zero = filter.floats("zero", &[], &[0.0]);
    let kept = filter.node("kept", "Greater", &[&x, &zero], &[]);
    let y = filter.node("y", "Compress", &[&x, &kept], &[int("axis", 0)]);
    filter.output_of(&y, FLOAT, &[Dim::Free("")]);
    let mut two = GraphBuilder::new("two");
    let a = two.input_of("a", FLOAT, &[N]);
    let b = two.input_of("b", FLOAT, &[Dim::Free("M")]);
    let y = two.node("y", "Concat", &[&a, &b], &[int("axis", 0)]);
    two.output_of(&y, FLOAT, &[Dim::Free("")]);
    for (name, model, want) in [
        (
            "cumulative",
            one_node("CumSum", Some(&[0]), None, &same),
            "output `y`: row 1 of 2, run alone, differs by",
        ),
        (
            "softmax",
            one_node("Softmax", None, Some(0), &same),
            "output `y`: row 0 of 2, run alone, differs by",
        ),
        (
            "total",
            one_node("ReduceSum", Some(&[0]), None, &same),
            "output `y` is fixed at 1",
        ),
        ("filter", filter.finish("keeps some"), "output `y` has shape ["),
        (
            "crossing",
            crossing.finish("crosses"),
            "output `y`: row 0 of 2, run alone, has 1 elements instead of 2",
        ),
        (
            "constant",
            constant.finish("forgets"),
            "output `y` is the same for every tested row",
        ),
        ("two", two.finish("joins"), "input `b` is `M`, that of input `a` is `N`"),
    ] {
        let (output, config) = import(here.path(), name, &model, &["--batching=8"]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output));
        for part in ["imported without batching", want] {
            assert!(
                text(&output).contains(part),
                "{name}: {} should say {part}",
                text(&output)
            );
        }
        assert_eq!(config.unwrap().max_batch_size, 0);
        let folder = here.path().join("models/repository").join(name);
        let written = fs::read_to_string(folder.join("config.toml")).unwrap();
        assert!(written.contains(want), "{written}");
        assert!(folder.join("1/model.onnx").is_file());
    }
}

#[test]
fn without_the_option_nothing_is_said_and_nonsense_is_refused() {
    let here = tempfile::tempdir().unwrap();
    let model = || one_node("Relu", None, None, &[N, Dim::Fixed(2)]);
    let (output, config) = import(here.path(), "silent", &model(), &[]);
    assert!(output.status.success() && config.is_none(), "{}", text(&output));
    fs::write(here.path().join("c.toml"), "max_batch_size = 4\n").unwrap();
    for (options, want) in [
        (&["--batching", "--config", "c.toml"][..], "--config"),
        (&["--batching=1"], "--batching"),
        (
            &["--batching", "--onnxruntime", "nowhere"],
            "no ONNX Runtime at nowhere",
        ),
    ] {
        let (output, _) = import(here.path(), "nonsense", &model(), options);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(want), "{} should say {want}", text(&output));
    }
    assert!(!here.path().join("models/repository/nonsense").exists());
}

#[test]
fn the_names_of_classes_are_imported_with_the_config() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let model = one_node("Relu", None, None, &[N, Dim::Fixed(2)]);
    let config =
        "max_batch_size = 4\n[[outputs]]\nname = \"y\"\ndatatype = \"FP32\"\ndims = [2]\nlabels = \"names.txt\"\n";
    fs::write(at.join("c.toml"), config).unwrap();
    let (output, _) = import(at, "named", &model, &["--config", "c.toml"]);
    assert!(!output.status.success() && text(&output).contains("names.txt: cannot read the labels"));
    fs::write(at.join("names.txt"), "cat\ndog\n").unwrap();
    let (output, _) = import(at, "named", &model, &["--config", "c.toml"]);
    assert!(output.status.success(), "{}", text(&output));
    let copied = fs::read_to_string(at.join("models/repository/named/names.txt")).unwrap();
    assert_eq!(copied, "cat\ndog\n");
}
