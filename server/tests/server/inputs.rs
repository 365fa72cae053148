//! Models of the kinds that users bring, swept by the real load generator: refused without inputs, and measured with the lines
//! that the refusal gives; recorded requests, and replies held against what they should say.

use crate::harness::{Data, Server, on_tier};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tierlab_models::onnx::graph::int;
use tierlab_models::onnx::messages::ElementType;
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto};

const STEPS: &str = "seed = 3\nrepeats = 1\nwarmup_s = 0.1\nstep_s = 0.5\ndrain_s = 5.0\ntimeout_ms = 5000\nmax_in_flight = 16\n\
    [limits]\nforeign_cpu_share = 1\nsteal_share = 1\n[[load]]\nmode = \"realtime\"\nrates = [40]\n";

/// Images of any size: `image` [batch, 3, height, width] to the mean of each channel.
fn images() -> ModelProto {
    let mut graph = GraphBuilder::new("images");
    let dims = [
        Dim::Free("batch"),
        Dim::Fixed(3),
        Dim::Free("height"),
        Dim::Free("width"),
    ];
    let image = graph.input_of("image", ElementType::Float, &dims);
    let mean = graph.node("mean", "GlobalAveragePool", &[&image], &[]);
    graph.output(&mean, ElementType::Float, &[-1, 3, 1, 1]);
    graph.finish("means")
}

/// Tokens and their mask, which must be as long as each other.
fn tokens() -> ModelProto {
    let mut graph = GraphBuilder::new("tokens");
    let dims = [Dim::Free("batch"), Dim::Free("sequence")];
    let ids = graph.input_of("input_ids", ElementType::Int64, &dims);
    let mask = graph.input_of("attention_mask", ElementType::Int64, &dims);
    let both = graph.node("both", "Concat", &[&ids, &mask], &[int("axis", 0)]);
    let sum = graph.node("sum", "ReduceSum", &[&both], &[int("keepdims", 0)]);
    graph.output(&sum, ElementType::Int64, &[]);
    graph.finish("adds up")
}

/// Text: strings given back.
fn text() -> ModelProto {
    let mut graph = GraphBuilder::new("text");
    let dims = [Dim::Free("batch"), Dim::Fixed(1)];
    let text = graph.input_of("text", ElementType::String, &dims);
    let same = graph.node("same", "Identity", &[&text], &[]);
    graph.output_of(&same, ElementType::String, &dims);
    graph.finish("gives back")
}

/// Half precision, of any length.
fn half() -> ModelProto {
    let mut graph = GraphBuilder::new("half");
    let dims = [Dim::Free("batch"), Dim::Free("length")];
    let x = graph.input_of("x", ElementType::Float16, &dims);
    let y = graph.node("y", "Identity", &[&x], &[]);
    graph.output_of(&y, ElementType::Float16, &dims);
    graph.finish("gives back")
}

/// A recurrent model with a scalar: `input` [batch, length], `state` [2, batch, 4], `sr` without dimensions.
fn recurrent() -> ModelProto {
    let mut graph = GraphBuilder::new("recurrent");
    let input = graph.input_of("input", ElementType::Float, &[Dim::Free("batch"), Dim::Free("length")]);
    let state = graph.input_of(
        "state",
        ElementType::Float,
        &[Dim::Fixed(2), Dim::Free("batch"), Dim::Fixed(4)],
    );
    let sr = graph.input("sr", ElementType::Int64, &[]);
    let scale = graph.node("scale", "Cast", &[&sr], &[int("to", ElementType::Float as i64)]);
    let first = graph.node("output", "Mul", &[&input, &scale], &[]);
    let next = graph.node("state_out", "Identity", &[&state], &[]);
    graph.output_of(&first, ElementType::Float, &[Dim::Free("batch"), Dim::Free("length")]);
    graph.output_of(
        &next,
        ElementType::Float,
        &[Dim::Fixed(2), Dim::Free("batch"), Dim::Fixed(4)],
    );
    graph.finish("keeps a state")
}

/// Model with as many outputs as the data has elements above zero.
fn found() -> ModelProto {
    let mut graph = GraphBuilder::new("found");
    let x = graph.input_of("x", ElementType::Int32, &[Dim::Free("length")]);
    let positions = graph.node("places", "NonZero", &[&x], &[]);
    graph.output_of(&positions, ElementType::Int64, &[Dim::Fixed(1), Dim::Free("found")]);
    graph.finish("finds")
}

/// `x` [batch, 2] given back.
fn echo() -> ModelProto {
    let mut graph = GraphBuilder::new("echo");
    let x = graph.input("x", ElementType::Float, &[-1, 2]);
    let y = graph.node("y", "Identity", &[&x], &[]);
    graph.output(&y, ElementType::Float, &[-1, 2]);
    graph.finish("gives back")
}

fn sweep(server: &Server, folder: &Path, plan: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_tierlab-server")).with_file_name("tierlab-loadgen");
    assert!(
        program.is_file(),
        "no {}: build the binaries first (cargo build --workspace --bins, as `make unit` does)",
        program.display()
    );
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    let _ = std::fs::remove_dir_all(folder.join("results"));
    Command::new(program)
        .arg("sweep")
        .arg(folder.join("plan.toml"))
        .args(["--url", &server.url(""), "--name", "r", "--out"])
        .arg(folder.join("results"))
        .env_remove("TIERLAB_CERTIFICATE")
        .env("XDG_STATE_HOME", folder.join("state"))
        .output()
        .unwrap()
}

/// The first repeat of the one point of a sweep that came to its end.
#[track_caller]
fn measured(output: &Output, folder: &Path) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let run: Value = serde_json::from_slice(&std::fs::read(folder.join("results/r/run.json")).unwrap()).unwrap();
    run["points"][0]["repeats"][0].clone()
}

/// The lines of a refusal that are to be added to the plan.
fn lines(stderr: &str) -> String {
    let toml = stderr.lines().filter(|line| {
        let is = |start: &str| line.starts_with(start);
        is("[inputs.") || is("shape = ") || is("values = ")
    });
    toml.map(|line| format!("{line}\n")).collect()
}

#[test]
fn models_are_refused_without_inputs_and_the_lines_of_the_refusal_measure_them() {
    let data = Data::generate(&[], 0);
    let kinds = [
        ("images", images(), "image", true),
        ("tokens", tokens(), "input_ids", true),
        ("text", text(), "text", true),
        ("half", half(), "x", true),
        ("recurrent", recurrent(), "state", true),
        ("found", found(), "x", true),
        ("echo", echo(), "x", false),
    ];
    for (name, model, ..) in &kinds {
        data.add_model(name, model);
    }
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let dir = tempfile::tempdir().unwrap();
    for (name, _, input, is_refused) in kinds {
        // Values without a form in JSON are told apart below.
        let head = if name == "half" { "encoding = \"binary\"\n" } else { "" };
        let plan = format!("name = \"{name}\"\nmodel = \"{name}\"\n{head}{STEPS}");
        let bare = sweep(&server, dir.path(), &plan);
        let stderr = String::from_utf8_lossy(&bare.stderr).into_owned();
        let plan = if is_refused {
            assert_eq!(bare.status.code(), Some(2), "{name}: {stderr}");
            assert!(
                !dir.path().join("results/r").exists(),
                "{name} was measured at a size that nobody asked for"
            );
            assert!(stderr.contains(&format!("`{input}`")), "{stderr}");
            let lines = lines(&stderr);
            assert!(!lines.is_empty(), "{stderr}");
            format!("{plan}\n{lines}")
        } else {
            plan
        };
        let repeat = measured(&sweep(&server, dir.path(), &plan), dir.path());
        assert_eq!(repeat["errors"], serde_json::json!({}), "{name}: {plan}");
        assert_eq!(repeat["completed"], repeat["scheduled"], "{name}");
        let sent = &repeat["sent"];
        assert!(
            sent["bytes"]["min"].as_u64() > Some(0) && sent["distinct"].as_u64() > Some(0),
            "{sent}"
        );
        let inputs = sent["inputs"].as_array().unwrap();
        let ours = inputs.iter().find(|one| one["name"] == input).unwrap();
        assert!(!ours["shapes"].as_array().unwrap().is_empty(), "{sent}");
        if name == "images" {
            assert_eq!(ours["shapes"][0]["shape"], serde_json::json!([1, 3, 224, 224]));
            let report = std::fs::read_to_string(dir.path().join("results/r/report.md")).unwrap_or_default();
            let html = std::fs::read_to_string(dir.path().join("results/r/report.html")).unwrap();
            assert!(
                (report + &html).contains("1, 3, 224, 224"),
                "the heading says what was sent"
            );
            let csv = std::fs::read_to_string(dir.path().join("results/r/summary.csv")).unwrap();
            assert!(csv.contains("image [1, 3, 224, 224] 1.000"), "{csv}");
        }
    }
    let json = sweep(
        &server,
        dir.path(),
        &format!("name = \"half\"\nmodel = \"half\"\n{STEPS}[inputs.tensor.x]\nshape = [\"rows\", 8]\n"),
    );
    let stderr = String::from_utf8_lossy(&json.stderr);
    assert_eq!(json.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("FP16") && stderr.contains("encoding = \"binary\""),
        "{stderr}"
    );
}

#[test]
fn recorded_requests_are_sent_and_wrong_values_are_errors_of_their_own() {
    let data = Data::generate(&[], 0);
    data.add_batched_model("echo", &echo());
    let server = Server::start(&on_tier(&data, "memory"), &[]);
    let dir = tempfile::tempdir().unwrap();
    let plan = |inputs: &str| format!("name = \"echo\"\nmodel = \"echo\"\n{STEPS}[inputs]\n{inputs}");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "good.json",
        r#"{"data": [[{"x": [1, 2]}, {"x": {"content": [3, 4], "shape": [2]}}]], "validation_data": [[{"y": [1, 2.0005]}, {"y": [3, 4]}]]}"#,
    );
    write(
        "bad.json",
        r#"{"data": [{"x": [1, 2]}], "validation_data": [{"y": [1, 2.5]}]}"#,
    );
    write(
        "rows.jsonl",
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[3,2],\"data\":[1,2,3,4,5,6]}]}\n",
    );

    let check = "[inputs.check]\nshare = 1.0\ntolerance = 1e-3\n";
    let repeat = measured(
        &sweep(&server, dir.path(), &plan(&format!("data = \"good.json\"\n{check}"))),
        dir.path(),
    );
    assert_eq!(repeat["errors"], serde_json::json!({}));
    assert_eq!(repeat["sent"]["distinct"], 2);
    assert_eq!(repeat["sent"]["checked"]["requests"], 2);

    // The request before the first step is looked at already.
    let output = sweep(&server, dir.path(), &plan(&format!("data = \"bad.json\"\n{check}")));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("output `y`, element 1: expected 2.5, got 2"), "{text}");

    // Only later ones are wrong.
    write(
        "later.json",
        r#"{"data": [{"x": [1, 2]}, {"x": [3, 4]}], "validation_data": [{"y": [1, 2]}, {"y": [3, 5]}]}"#,
    );
    let output = sweep(&server, dir.path(), &plan(&format!("data = \"later.json\"\n{check}")));
    let repeat = measured(&output, dir.path());
    let mismatches = repeat["errors"]["wrong-value"].as_u64().unwrap();
    assert!(mismatches * 2 >= repeat["scheduled"].as_u64().unwrap() - 2, "{repeat}");
    assert_eq!(
        repeat["examples"]["wrong-value"],
        "output `y`, element 1: expected 5, got 4"
    );
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        report.contains("saturated") && report.contains("wrong-value"),
        "{report}"
    );

    let repeat = measured(
        &sweep(&server, dir.path(), &plan("requests = \"rows.jsonl\"\n")),
        dir.path(),
    );
    assert_eq!(repeat["errors"], serde_json::json!({}));
    assert_eq!(repeat["sent"]["inferences_per_request"], 3.0);
}
