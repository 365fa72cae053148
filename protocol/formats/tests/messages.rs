//! The generated messages of ONNX are those of their text, `protocol/proto/onnx.proto`.
//!
//! After a change to the text, `TIERLAB_WRITE_MESSAGES=1 cargo test --release -p tierlab-formats --test messages` writes
//! them anew.

use std::path::Path;
use std::{env, fs};

#[test]
fn generated_messages_are_those_of_their_text() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = crate_folder.join("../proto");
    let files = protox::compile(["onnx.proto"], [&texts]).expect("the text is valid");
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .bytes(["."])
        .out_dir(out.path())
        .compile_fds(files)
        .expect("messages are generated");
    let generated = fs::read_to_string(out.path().join("onnx.rs")).unwrap();
    let path = crate_folder.join("src/onnx/generated.rs");
    if env::var_os("TIERLAB_WRITE_MESSAGES").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is not what its text says: see the note at the top of this test",
        path.display()
    );
}
