//! The generated messages are those of the texts in `protocol/proto`.
//!
//! After a change to a text, `TIERLAB_WRITE_MESSAGES=1 cargo test --release -p tierlab-formats --test messages` writes
//! them anew.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The texts.
const PROTOS: [&str; 3] = ["inference.proto", "health.proto", "status.proto"];
/// Files that the generator writes, one per package, and their paths below `protocol/`.
const FILES: [(&str, &str); 3] = [
    ("inference.rs", "src/grpc/generated/inference.rs"),
    ("grpc.health.v1.rs", "src/grpc/generated/health.rs"),
    ("google.rpc.rs", "src/grpc/generated/status.rs"),
];
/// Maps that are sent in the order of their keys.
const SORTED_MAPS: [&str; 2] = [".inference.ModelConfig.parameters", ".inference.ModelWarmup.inputs"];

fn protocol() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn generate(out: &Path) {
    let texts = protocol().join("proto");
    let files = protox::compile(PROTOS.map(|proto| texts.join(proto)), [&texts]).expect("the texts are valid");
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(SORTED_MAPS)
        .out_dir(out)
        .compile_fds(files)
        .expect("messages are generated");
}

#[test]
fn generated_messages_are_those_of_their_texts() {
    let out = tempfile::tempdir().unwrap();
    generate(out.path());
    for (generated, kept) in FILES {
        let generated = fs::read_to_string(out.path().join(generated)).unwrap();
        let path = protocol().join(kept);
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
}
