//! JSON and binary parts of a body.

use super::*;

#[test]
fn binary_sizes_are_exact() {
    let json = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}}]}"#;
    let with = |tail: &[u8], len: usize| {
        let body: Vec<u8> = json.bytes().chain(tail.iter().copied()).collect();
        InferRequest::decode(&body.into(), Some(len))
    };
    let read = with(&[1, 0, 2, 0], json.len()).unwrap();
    assert_eq!(read.inputs[0].data, [1, 0, 2, 0][..]);
    for (tail, len, named) in [
        (&[1, 0, 2][..], json.len(), "3 bytes are left"),
        (&[1, 0, 2, 0, 9], json.len(), "1 bytes follow"),
        (&[1, 0, 2, 0], json.len() + 5, "Inference-Header-Content-Length"),
        (&[1, 0, 2, 0], 0, "EOF"),
        (&[1, 0, 2, 0], json.len() + 1, "trailing"),
    ] {
        let message = with(tail, len).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
    let wrong = json.replace("[2]", "[3]");
    let body: Vec<u8> = wrong.bytes().chain([1, 0, 2, 0]).collect();
    let message = InferRequest::decode(&body.into(), Some(wrong.len()))
        .unwrap_err()
        .to_string();
    assert!(message.contains("input `x`: 4 bytes of data"), "{message}");
}

#[test]
fn replies_without_a_json_form_are_binary() {
    let reply = InferReply {
        model_name: "m".into(),
        model_version: "1".into(),
        id: None,
        outputs: vec![Tensor {
            name: "y".into(),
            dtype: DataType::Fp16,
            shape: vec![1],
            data: vec![0, 60].into(),
        }],
    };
    let (body, len) = reply.encode(&[]);
    assert!(len.is_some());
    assert_eq!(InferReply::decode(&body, len).unwrap(), reply);
}
