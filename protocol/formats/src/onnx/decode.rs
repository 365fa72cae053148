//! The bytes of a `model.onnx` to its messages, or what they are instead.

use super::external::Placeholder;
use super::messages::ModelProto;
use bytes::Bytes;
use prost::Message as _;

/// Reads a file's messages. Weights stay slices of `onnx`.
///
/// # Errors
/// Bytes that are no ONNX model: what they are, where that can be told, and what to do.
pub fn decode(onnx: Bytes) -> Result<ModelProto, String> {
    if let Some(placeholder) = Placeholder::of(&onnx) {
        return Err(format!("it is {placeholder}"));
    }
    let model = ModelProto::decode(onnx).map_err(|error| {
        let told = error.to_string();
        if told.contains("UTF-8") {
            return format!(
                "a name or text in it is no UTF-8, which ONNX asks for: rename it where the model was made, and export it \
                 again ({told})"
            );
        }
        format!("no ONNX model, or a damaged or truncated one: copy or download it again ({told})")
    })?;
    if model.graph.is_none() {
        return Err("no ONNX model: it has no graph".to_owned());
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use super::super::messages::{GraphProto, NodeProto};
    use super::*;
    use proptest::prelude::*;

    fn model() -> ModelProto {
        ModelProto {
            graph: Some(GraphProto {
                node: vec![NodeProto {
                    name: "first_node".into(),
                    ..NodeProto::default()
                }],
                ..GraphProto::default()
            }),
            ..ModelProto::default()
        }
    }

    #[test]
    fn what_is_no_model_is_told_by_what_it_is() {
        let bytes = model().encode_to_vec();
        assert_eq!(decode(bytes.clone().into()).unwrap(), model());
        let mut latin = bytes.clone();
        let at = latin.windows(5).position(|name| name == b"first").unwrap();
        latin[at] = 0xe9;
        for (bytes, told) in [
            (latin, "is no UTF-8"),
            (bytes[..bytes.len() - 3].to_vec(), "damaged or truncated"),
            (Vec::new(), "it has no graph"),
            (
                b"version https://git-lfs.github.com/spec/v1\nsize 7\n".to_vec(),
                "git lfs pull",
            ),
            (b"<!doctype html>".to_vec(), "a web page"),
            (b"PK\x03\x04 a zip file".to_vec(), "no ONNX model"),
        ] {
            let error = decode(bytes.into()).unwrap_err();
            assert!(error.contains(told), "{error}\n  should say {told}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(bytes.into());
        }
    }
}
