//! Generates the messages of ONNX files and of `TFRecord` files from `proto/` with protox, so that builds do not need
//! `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let texts = protox::compile(["onnx.proto", "example.proto"], ["proto"])?;
    prost_build::Config::new()
        .bytes([".onnx.TensorProto.raw_data"])
        .btree_map([".tensorflow.Features.feature"])
        .compile_fds(texts)?;
    Ok(())
}
