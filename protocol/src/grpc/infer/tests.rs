use super::super::messages::InferParameter;
use super::*;
use proptest::prelude::*;
use prost::Message;

fn input(name: &str, datatype: &str, shape: &[i64], contents: Option<InferTensorContents>) -> InferTensor {
    InferTensor {
        name: name.into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        contents,
        ..InferTensor::default()
    }
}

fn request(inputs: Vec<InferTensor>, raw: &[&'static [u8]]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "m".into(),
        inputs,
        raw_input_contents: raw.iter().map(|raw| Bytes::from_static(raw)).collect(),
        ..ModelInferRequest::default()
    }
}

fn parameter(name: &str, choice: ParameterChoice) -> Parameters {
    let value = InferParameter {
        parameter_choice: Some(choice),
    };
    Parameters::from([(name.to_owned(), value)])
}

#[test]
fn raw_inputs_share_the_memory_of_the_message() {
    let sent = request(vec![input("x", "UINT8", &[1, 4], None)], &[&[1, 2, 3, 4]]);
    let wire = Bytes::from(sent.encode_to_vec());
    let read = InferRequest::try_from(ModelInferRequest::decode(wire.clone()).unwrap()).unwrap();
    let data = read.inputs[0].data.whole();
    assert_eq!(data[..], [1, 2, 3, 4]);
    assert!(
        wire.as_ptr_range().contains(&data.as_ptr()),
        "the tensor's bytes were copied"
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn typed_contents_of_every_type_are_what_raw_ones_would_be() {
    let none = InferTensorContents::default;
    let texts = vec![Bytes::from_static(b"a"), Bytes::from_static(b"")];
    for (dtype, contents, expected) in [
        (
            "BOOL",
            InferTensorContents {
                bool_contents: vec![true, false],
                ..none()
            },
            vec![1, 0],
        ),
        (
            "INT8",
            InferTensorContents {
                int_contents: vec![-1, 2],
                ..none()
            },
            vec![255, 2],
        ),
        (
            "INT16",
            InferTensorContents {
                int_contents: vec![-1, 2],
                ..none()
            },
            vec![255, 255, 2, 0],
        ),
        (
            "UINT8",
            InferTensorContents {
                uint_contents: vec![255, 2],
                ..none()
            },
            vec![255, 2],
        ),
        (
            "UINT16",
            InferTensorContents {
                uint_contents: vec![256, 2],
                ..none()
            },
            vec![0, 1, 2, 0],
        ),
        (
            "INT32",
            InferTensorContents {
                int_contents: vec![1, 2],
                ..none()
            },
            vec![1, 0, 0, 0, 2, 0, 0, 0],
        ),
        (
            "UINT32",
            InferTensorContents {
                uint_contents: vec![1, 2],
                ..none()
            },
            vec![1, 0, 0, 0, 2, 0, 0, 0],
        ),
        (
            "INT64",
            InferTensorContents {
                int64_contents: vec![1, -1],
                ..none()
            },
            [vec![1, 0, 0, 0, 0, 0, 0, 0], vec![255; 8]].concat(),
        ),
        (
            "UINT64",
            InferTensorContents {
                uint64_contents: vec![1, u64::MAX],
                ..none()
            },
            [vec![1, 0, 0, 0, 0, 0, 0, 0], vec![255; 8]].concat(),
        ),
        (
            "FP32",
            InferTensorContents {
                fp32_contents: vec![1.0, 0.0],
                ..none()
            },
            vec![0, 0, 128, 63, 0, 0, 0, 0],
        ),
        (
            "FP64",
            InferTensorContents {
                fp64_contents: vec![0.0, 0.0],
                ..none()
            },
            vec![0; 16],
        ),
        (
            "BYTES",
            InferTensorContents {
                bytes_contents: texts,
                ..none()
            },
            vec![1, 0, 0, 0, b'a', 0, 0, 0, 0],
        ),
    ] {
        let read = InferRequest::try_from(request(vec![input("x", dtype, &[2], Some(contents))], &[])).unwrap();
        assert_eq!(read.inputs[0].data, expected[..], "{dtype}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn bad_requests_are_refused_by_field() {
    let int = |values: &[i32]| {
        Some(InferTensorContents {
            int_contents: values.to_vec(),
            ..InferTensorContents::default()
        })
    };
    let shared = InferTensor {
        parameters: parameter("shared_memory_region", ParameterChoice::StringParam("a".into())),
        ..input("x", "INT8", &[1], None)
    };
    let x = || input("x", "INT8", &[1], None);
    let classified = |classes| InferRequestedOutputTensor {
        name: "y".into(),
        parameters: parameter("classification", ParameterChoice::Int64Param(classes)),
    };
    for (message, named) in [
        (request(vec![], &[]), "`inputs` is empty"),
        (request(vec![x()], &[b"a", b"b"]), "2 entries for 1 inputs"),
        (request(vec![x()], &[b"ab"]), "input `x`: 2 bytes of data"),
        (request(vec![x(), x()], &[b"a", b"b"]), "duplicate name"),
        (request(vec![input("", "INT8", &[1], None)], &[b"a"]), "input 0: `name`"),
        (request(vec![input("x", "FLOAT", &[1], None)], &[b"a"]), "FLOAT"),
        (request(vec![input("x", "INT8", &[-1], None)], &[b"a"]), "`shape` [-1]"),
        (
            request(vec![input("x", "INT8", &[1; 17], None)], &[b"a"]),
            "16 dimensions",
        ),
        (
            request(vec![input("x", "INT8", &[1], int(&[128]))], &[]),
            "128 in `contents` is not a valid INT8",
        ),
        (
            request(vec![input("x", "FP32", &[1], int(&[1]))], &[]),
            "`int_contents` is set",
        ),
        (
            request(vec![input("x", "FP16", &[1], int(&[1]))], &[]),
            "raw_input_contents",
        ),
        (
            request(vec![input("x", "INT8", &[1], int(&[1]))], &[b"a"]),
            "set either `contents`",
        ),
        (
            request(vec![shared], &[b"a"]),
            "input `x`: `parameters.shared_memory_region`",
        ),
        (
            ModelInferRequest {
                outputs: vec![classified(-1)],
                ..request(vec![x()], &[b"a"])
            },
            "output `y`: `parameters.classification`",
        ),
        (
            ModelInferRequest {
                outputs: vec![classified(1), classified(2)],
                ..request(vec![x()], &[b"a"])
            },
            "output `y`: duplicate name",
        ),
        (
            ModelInferRequest {
                parameters: parameter("timeout", ParameterChoice::Int64Param(-1)),
                ..request(vec![x()], &[b"a"])
            },
            "`parameters.timeout`",
        ),
    ] {
        let refusal = InferRequest::try_from(message).unwrap_err().to_string();
        assert!(refusal.contains(named), "{refusal}\n  should name {named}");
    }
}

#[test]
fn options_are_read_and_unknown_parameters_passed_over() {
    let mut message = request(vec![input("x", "INT8", &[1], None)], &[b"a"]);
    message.id = "seven".into();
    message.parameters = parameter("timeout", ParameterChoice::Uint64Param(5));
    message
        .parameters
        .extend(parameter("priority", ParameterChoice::Uint64Param(2)));
    message
        .parameters
        .extend(parameter("sequence_start", ParameterChoice::BoolParam(true)));
    message.outputs = vec![InferRequestedOutputTensor {
        name: "y".into(),
        parameters: parameter("classification", ParameterChoice::Int64Param(5)),
    }];
    let read = InferRequest::try_from(message).unwrap();
    assert_eq!(
        (read.id.as_deref(), read.timeout_us, read.priority),
        (Some("seven"), Some(5), 2)
    );
    assert_eq!(
        read.outputs,
        [RequestedOutput {
            name: "y".into(),
            binary: true,
            classes: 5
        }]
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(message) = ModelInferRequest::decode(Bytes::from(body)) {
            let _ = InferRequest::try_from(message);
        }
    }
}

#[test]
fn a_long_name_is_not_quoted_at_length() {
    let long = "é".repeat(1 << 20);
    let output = |name: &str| InferRequestedOutputTensor {
        name: name.into(),
        parameters: parameter("classification", ParameterChoice::Int64Param(1)),
    };
    let mut named = request(vec![input("x", "UINT8", &[1], None)], &[&[1]]);
    named.outputs = vec![output(&long), output(&long)];
    let typed = request(vec![input("x", &long, &[1], None)], &[&[1]]);
    for (sent, detail) in [
        (named, "`outputs`: a name is longer than 1024"),
        (typed, "`datatype`: `é"),
    ] {
        let refused = InferRequest::try_from(sent).unwrap_err().to_string();
        assert!(
            refused.len() < 1000 && refused.contains(detail),
            "{} bytes: {:.200}",
            refused.len(),
            refused
        );
    }
}
