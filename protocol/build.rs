//! Generates the gRPC messages from the texts in `proto/`. protox reads them, so that no build needs `protoc`.

use std::error::Error;

/// Maps that are sent in the order of their keys.
const SORTED_MAPS: [&str; 2] = [".inference.ModelConfig.parameters", ".inference.ModelWarmup.inputs"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let texts = protox::compile(["inference.proto", "health.proto", "status.proto"], ["proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(SORTED_MAPS)
        .compile_fds(texts)?;
    Ok(())
}
