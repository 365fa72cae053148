//! The real binary: its output, its files, its exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tierlab_formats::model::{Manifest, ModelConfig};
use tierlab_models::generators::{ModelKind, Request, Size};
use tierlab_models::onnx::messages::{DATA_EXTERNAL, ElementType, StringStringEntryProto};
use tierlab_models::onnx::{Dim, GraphBuilder, ModelProto, write_model};

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tierlab-models"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// Runs a command that must succeed and returns its stdout.
fn succeed(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with `code` and returns its stderr.
fn fail(folder: &Path, args: &[&str], code: i32) -> String {
    let output = run(folder, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?} printed to stdout");
    stderr
}

#[test]
fn nonsense_is_refused_with_exit_code_2_and_a_sentence() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    fs::write(at.join("bad.toml"), "kind = \"tape\"\n").unwrap();
    fs::write(at.join("nvme.toml"), "kind = \"nvme\"\nroot = \"/nowhere\"\n").unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&[], "Usage"),
        (&["fly"], "unrecognized subcommand 'fly'"),
        (&["generate", "--model", "gpt"], "possible values: mlp, ctr, vision"),
        (&["generate", "--seed", "-1"], "--seed"),
        (&["features", "--table", "ctr"], "--rows"),
        (&["features", "--table", "ctr", "--rows", "0"], "--rows"),
        (&["features", "--table", "vision", "--rows", "18000000"], "64 MiB"),
        (
            &["features", "--table", "ctr", "--rows", "18446744073709551615"],
            "--rows",
        ),
        (
            &["publish", "--to", "missing.toml"],
            "missing.toml: cannot read the tier's config",
        ),
        (&["publish", "--to", "bad.toml"], "tape"),
        (&["publish", "--to", "nvme.toml", "--set", "root"], "key=value"),
        (&["publish", "--to", "nvme.toml", "--set", "colour=red"], "colour"),
        (&["import", "x.onnx", "--name", "../x"], "not a valid name"),
        (&["inspect"], "tierlab-models generate"),
    ];
    for (args, wanted) in cases {
        let stderr = fail(at, args, 2);
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
    }
    let tier = ["publish", "--to", "nvme.toml", "--set", "root=.", "--repository"];
    assert!(fail(at, &[&tier[..], &["empty"]].concat(), 2).contains("nothing to publish"));
    assert!(fail(at, &[&tier[..], &["absent"]].concat(), 2).contains("absent: no such folder"));
    assert!(fail(at, &["inspect", "absent"], 1).contains("absent: cannot list"));
}

#[test]
fn help_and_version_are_complete() {
    let here = tempfile::tempdir().unwrap();
    let help = succeed(here.path(), &["--help"]);
    for wanted in [
        "generate",
        "features",
        "import",
        "publish",
        "inspect",
        "Examples:",
        "Exit codes:",
    ] {
        assert!(help.contains(wanted), "{wanted} is not in --help");
    }
    assert!(succeed(here.path(), &["--version"]).starts_with("tierlab-models "));
}

#[test]
fn models_are_generated_once_and_edited_configs_stay() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let generate = ["generate", "--model", "mlp", "--model", "ctr", "--seed", "5"];
    assert_eq!(succeed(at, &generate).matches(": written").count(), 2);
    let model = at.join("models/repository/ctr/1/model.onnx");
    let first = fs::read(&model).unwrap();
    assert_eq!(succeed(at, &generate).matches("already there and undamaged").count(), 2);

    let config = at.join("models/repository/ctr/config.toml");
    let joined = ModelConfig::parse(&fs::read_to_string(&config).unwrap())
        .unwrap()
        .joined;
    assert_eq!(joined.keys().collect::<Vec<_>>(), ["categorical", "dense"]);
    let edited = "max_batch_size = 3\n";
    fs::write(&config, edited).unwrap();
    let mut damaged = first.clone();
    damaged[1000] ^= 1;
    fs::write(&model, damaged).unwrap();
    let again = succeed(at, &generate);
    assert!(
        again.contains("ctr: written") && again.contains("kept its edited config.toml"),
        "{again}"
    );
    assert!(
        fs::read(&model).unwrap() == first,
        "the same arguments give the same bytes"
    );
    assert_eq!(fs::read_to_string(&config).unwrap(), edited);
}

#[test]
fn inspect_finds_damage() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    succeed(at, &["generate", "--model", "mlp"]);
    succeed(at, &["features", "--table", "ctr", "--rows", "1000"]);
    let whole = succeed(at, &["inspect", "--verify"]);
    for wanted in [
        "input FP32 [-1, 64]",
        "every file matches",
        "1000 rows of 512 bytes",
        "every row and block matches",
    ] {
        assert!(whole.contains(wanted), "{whole}");
    }
    for (file, wanted) in [
        ("models/repository/mlp/1/model.onnx", "SHA-256"),
        ("models/features/ctr.rows", "row of entity 999"),
    ] {
        let path = at.join(file);
        let bytes = fs::read(&path).unwrap();
        let mut damaged = bytes.clone();
        let last = damaged.len() - 100;
        damaged[last] ^= 0x40;
        fs::write(&path, damaged).unwrap();
        succeed(at, &["inspect"]);
        let output = run(at, &["inspect", "--verify"]);
        assert_eq!(output.status.code(), Some(1));
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains("DAMAGED") && stdout.contains(wanted), "{stdout}");
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(
            run(at, &["inspect", "--verify"]).status.code(),
            Some(1),
            "{file} is truncated"
        );
        fs::write(&path, bytes).unwrap();
    }
    succeed(at, &["inspect", "--verify"]);
}

#[test]
fn a_users_model_is_imported_with_its_external_weights() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let mut model = Request {
        kind: ModelKind::Mlp,
        size: Size::Small,
        seed: 1,
    }
    .build();
    let tensor = &mut model.graph.as_mut().unwrap().initializer[0];
    fs::write(at.join("weights.bin"), &tensor.raw_data).unwrap();
    tensor.raw_data = Default::default();
    tensor.data_location = DATA_EXTERNAL;
    tensor.external_data = vec![StringStringEntryProto {
        key: "location".to_owned(),
        value: "./weights.bin".to_owned(),
    }];
    write_model(&model, &mut fs::File::create(at.join("mine.onnx")).unwrap()).unwrap();

    succeed(at, &["import", "mine.onnx"]);
    let folder = at.join("models/repository/mine");
    let manifest = Manifest::parse(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let files: Vec<&str> = manifest.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((manifest.seed, files), (None, vec!["1/model.onnx", "1/weights.bin"]));
    assert_eq!(
        fs::read(folder.join("1/weights.bin")).unwrap(),
        fs::read(at.join("weights.bin")).unwrap()
    );
    succeed(at, &["inspect", "--verify", "models/repository/mine"]);
    // No version begins with a zero, as in Triton.
    for version in ["01", "2"] {
        fs::create_dir_all(at.join("r/m").join(version)).unwrap();
        fs::copy(at.join("mine.onnx"), at.join("r/m").join(version).join("model.onnx")).unwrap();
    }
    assert!(succeed(at, &["inspect", "r"]).contains("r/m/2/model.onnx"));

    assert!(fail(at, &["import", "mine.onnx"], 2).contains("--replace"));
    succeed(at, &["import", "mine.onnx", "--replace"]);
    fs::remove_file(at.join("weights.bin")).unwrap();
    assert!(fail(at, &["import", "mine.onnx", "--replace"], 1).contains("weights.bin: cannot open"));
    succeed(at, &["inspect", "--verify", "models/repository/mine"]);
    fs::write(at.join("text.onnx"), "no model at all").unwrap();
    assert!(fail(at, &["import", "text.onnx"], 1).contains("text.onnx: not an ONNX model"));
    let left: Vec<_> = fs::read_dir(at.join("models/repository")).unwrap().collect();
    assert_eq!(left.len(), 1, "only the imported model is left");
}

#[test]
fn an_import_begins_without_the_files_of_a_killed_one() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let model = Request {
        kind: ModelKind::Mlp,
        size: Size::Small,
        seed: 1,
    }
    .build();
    write_model(&model, &mut fs::File::create(at.join("mine.onnx")).unwrap()).unwrap();
    // In a container, each process begins with the same id.
    let script = "left=models/repository/.mine.$$.partial; mkdir -p $left; echo max_batch_size = 7 > $left/config.toml; \
                  exec \"$0\" import mine.onnx --unchecked";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_tierlab-models")]);
    let output = shell.current_dir(at).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = at.join("models/repository/mine");
    assert!(folder.join("1/model.onnx").exists() && !folder.join("config.toml").exists());
}

/// A vector in the shape that a second input says.
fn reshape(dimensions: Dim<'_>) -> ModelProto {
    let mut graph = GraphBuilder::new("reshape");
    let x = graph.input_of("x", ElementType::Float, &[Dim::Free("n")]);
    let shape = graph.input_of("shape", ElementType::Int64, &[dimensions]);
    graph.node("y", "Reshape", &[&x, &shape], &[]);
    graph.output_of("y", ElementType::Float, &[]);
    let mut model = graph.finish("");
    let output = &mut model.graph.as_mut().unwrap().output[0];
    if let Some(tensor) = output.r#type.as_mut().unwrap().tensor_type.as_mut() {
        tensor.shape = None;
    }
    model
}

#[test]
fn models_as_other_programs_export_them_are_imported_or_refused_with_advice() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    let write =
        |model: &ModelProto, name: &str| write_model(model, &mut fs::File::create(at.join(name)).unwrap()).unwrap();
    // No shape gives the number of dimensions.
    write(&reshape(Dim::Free("k")), "rank.onnx");
    assert!(succeed(at, &["import", "rank.onnx"]).contains("imported"));
    // Zeros are not a shape of one number: reported once, and not by ONNX Runtime.
    write(&reshape(Dim::Fixed(2)), "zeros.onnx");
    let output = run(at, &["import", "zeros.onnx"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && !stderr.contains("[E:onnxruntime"),
        "{stderr}"
    );
    let mut newer = reshape(Dim::Free("k"));
    newer.ir_version = 99;
    write(&newer, "newer.onnx");
    assert!(fail(at, &["import", "newer.onnx"], 1).contains("`model.ir_version`"));
}

#[test]
fn everything_goes_to_a_directory_through_the_command_line() {
    let here = tempfile::tempdir().unwrap();
    let at = here.path();
    succeed(at, &["generate", "--model", "mlp"]);
    succeed(at, &["features", "--table", "ctr", "--rows", "100"]);
    fs::write(at.join("nvme.toml"), "kind = \"nvme\"\nroot = \"/overlaid\"\n").unwrap();
    fs::create_dir(at.join("tier")).unwrap();
    let publish = ["publish", "--to", "nvme.toml", "--set", "root=tier"];
    assert!(succeed(at, &publish).contains("4 objects put"));
    for (object, file) in [
        ("models/mlp/1/model.onnx", "models/repository/mlp/1/model.onnx"),
        ("models/mlp/manifest.json", "models/repository/mlp/manifest.json"),
        ("features/ctr.rows", "models/features/ctr.rows"),
    ] {
        assert!(
            fs::read(at.join("tier").join(object)).unwrap() == fs::read(at.join(file)).unwrap(),
            "{object}"
        );
    }
    assert!(succeed(at, &publish).contains("0 objects put"));
}

#[test]
fn a_signal_stops_a_long_write_and_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    let out = here.path().join("out");
    // A terminal that closes sends HUP.
    for signal in ["-INT", "-TERM", "-HUP"] {
        // 5 GB: it cannot be finished before the signal comes.
        let mut child = command(
            here.path(),
            &["features", "--table", "ctr", "--rows", "10000000", "--out", "out"],
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        let partial = out.join(".ctr.rows.partial");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !partial.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status();
        let status = child.wait().unwrap();
        assert!(killed.unwrap().success());
        assert_eq!(status.code(), Some(1), "{signal}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_tier_that_does_not_answer() {
    let here = tempfile::tempdir().unwrap();
    for args in [&["publish"][..], &["lay-out", "--layout", "tar"]] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let tier = format!(
            "kind = \"s3\"\nbucket = \"b\"\nregion = \"r\"\nendpoint = \"http://{address}\"\nallow_http = true\n\
             anonymous = true\ntimeout_ms = 20000\n"
        );
        fs::write(here.path().join("s3.toml"), tier).unwrap();
        let child = command(here.path(), &[args, &["--to", "s3.toml"]].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The program has connected, and waits.
        let _connection = listener.accept().unwrap();
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        let output = child.wait_with_output().unwrap();
        assert!(killed.unwrap().success());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("stopped on request"), "{args:?}: {stderr}");
        assert!(stderr.contains("only redis resumes an object"), "{args:?}: {stderr}");
    }
}

#[test]
fn name_version_and_help_are_its_own() {
    let here = Path::new(".");
    let version = succeed(here, &["--version"]);
    let number = format!("tierlab-models {} (commit ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&number), "{version}");
    let help = succeed(here, &["--help"]);
    assert!(
        help.starts_with("Generates, imports, checks and publishes models"),
        "{help}"
    );
    assert!(
        help.contains("Usage: tierlab-models") && help.contains("Examples:"),
        "{help}"
    );
}
