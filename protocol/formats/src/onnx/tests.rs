//! Decoding of files, and tensors wherever one can stand.

use super::messages::{FunctionProto, TrainingInfoProto};
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
    for (bytes, expected) in [
        (latin, "is not UTF-8"),
        (bytes[..bytes.len() - 3].to_vec(), "damaged or truncated"),
        (Vec::new(), "missing graph"),
        (
            b"version https://git-lfs.github.com/spec/v1\nsize 7\n".to_vec(),
            "git lfs pull",
        ),
        (b"<!doctype html>".to_vec(), "a web page"),
        (b"PK\x03\x04 a zip file".to_vec(), "not an ONNX model"),
    ] {
        let error = decode(bytes.into()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  should say {expected}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(bytes.into());
    }
}

fn tensor(name: &str) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        ..TensorProto::default()
    }
}

fn sparse(name: &str) -> SparseTensorProto {
    SparseTensorProto {
        values: Some(tensor(name)),
        indices: Some(tensor(&format!("{name}.indices"))),
        dims: vec![],
    }
}

fn node(attribute: AttributeProto) -> NodeProto {
    NodeProto {
        attribute: vec![attribute],
        ..NodeProto::default()
    }
}

fn graph(name: &str) -> GraphProto {
    GraphProto {
        initializer: vec![tensor(name)],
        ..GraphProto::default()
    }
}

fn names(found: &[&TensorProto]) -> Vec<String> {
    let mut names: Vec<String> = found.iter().map(|tensor| tensor.name.clone()).collect();
    names.sort();
    names
}

#[test]
fn tensors_are_found_wherever_one_can_stand() {
    let attribute = AttributeProto {
        t: Some(tensor("t")),
        tensors: vec![tensor("tensors")],
        g: Some(graph("g")),
        graphs: vec![GraphProto {
            node: vec![node(AttributeProto {
                g: Some(graph("deep")),
                ..AttributeProto::default()
            })],
            ..GraphProto::default()
        }],
        sparse_tensor: Some(sparse("sparse")),
        sparse_tensors: vec![sparse("sparses")],
        ..AttributeProto::default()
    };
    let default = AttributeProto {
        t: Some(tensor("default")),
        ..AttributeProto::default()
    };
    let model = ModelProto {
        graph: Some(GraphProto {
            node: vec![node(attribute)],
            initializer: vec![tensor("initializer")],
            sparse_initializer: vec![sparse("sparse_initializer")],
            ..GraphProto::default()
        }),
        functions: vec![FunctionProto {
            node: vec![node(AttributeProto {
                t: Some(tensor("function")),
                ..AttributeProto::default()
            })],
            attribute_proto: vec![default],
            ..FunctionProto::default()
        }],
        training_info: vec![TrainingInfoProto {
            initialization: Some(graph("initialization")),
            algorithm: Some(graph("algorithm")),
        }],
        ..ModelProto::default()
    };
    let inference = [
        "deep",
        "default",
        "function",
        "g",
        "initializer",
        "sparse",
        "sparse.indices",
        "sparse_initializer",
        "sparse_initializer.indices",
        "sparses",
        "sparses.indices",
        "t",
        "tensors",
    ];
    assert_eq!(names(&inference_tensors(&model)), inference);
    let mut all: Vec<&str> = inference.to_vec();
    all.extend(["algorithm", "initialization"]);
    all.sort_unstable();
    assert_eq!(names(&all_tensors(&model)), all);
}
