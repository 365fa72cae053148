//! The files that hold a graph's large weights, as the graph names them.
//!
//! In: the bytes of a `model.onnx`. Out: the files beside it that it refers to, each a path that stays in the version's
//! folder, with what must be in them; or what is wrong with it, before any of them is read. Weights in the graph are not
//! copied.

use bytes::Bytes;
use tierlab_formats::onnx::{self, External};
use tierlab_storage::ObjectPath;

/// External files that a graph refers to.
///
/// # Errors
/// Bytes that are not an ONNX model; a path that leaves the folder.
pub(crate) fn external(onnx: Bytes) -> Result<External, String> {
    let model = onnx::decode(onnx)?;
    onnx::external(onnx::inference_tensors(&model), |path| ObjectPath::new(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use tierlab_formats::onnx::messages::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};

    fn model(location: &str) -> Bytes {
        let tensor = TensorProto {
            name: "w".into(),
            external_data: vec![StringStringEntryProto {
                key: "location".into(),
                value: location.into(),
            }],
            ..TensorProto::default()
        };
        let model = ModelProto {
            graph: Some(GraphProto {
                initializer: vec![tensor],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        };
        model.encode_to_vec().into()
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        for bad in ["../1/model.onnx", "/etc/passwd", "a/../../b", "", "a\\b", "./../a"] {
            assert!(external(model(bad)).is_err(), "{bad}");
        }
        // ONNX Runtime's mark for addresses in memory is a path like any other: it is looked for, and missing.
        for path in ["w.bin", "./w.bin", "a/w.bin", "*/_ORT_MEM_ADDR_/*"] {
            assert!(external(model(path)).unwrap().files.contains_key(path), "{path}");
        }
        assert!(external(Bytes::from_static(b"not a model")).is_err());
    }
}
