use super::*;
use proptest::prelude::*;

fn decode(json: &str) -> Result<InferRequest, BadRequest> {
    InferRequest::decode(&json.as_bytes().to_vec().into(), None)
}

fn refusal(json: &str) -> String {
    decode(json).unwrap_err().to_string()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor
        .data
        .whole()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

#[test]
fn flat_and_nested_data_read_alike_in_any_order_of_keys() {
    let expected = [1.0, 2.5, -3.0, 4.0, 5.0, 6e-3];
    for json in [
        r#"{"id":"a","inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","data":[1,2.5,-3,4,5,6e-3]}]}"#,
        r#"{"inputs":[{"data":[[1,2.5,-3],[4,5,6e-3]],"name":"x","shape":[2,3],"datatype":"FP32"}],"id":"a"}"#,
        r#"{"inputs":[{"datatype":"FP32","data":[[1,2.5,-3],[4,5,6e-3]],"shape":[2,3],"name":"x"}],"id":"a","x":{}}"#,
    ] {
        let request = decode(json).unwrap();
        assert_eq!(request.id.as_deref(), Some("a"));
        assert_eq!(floats(&request.inputs[0]), expected, "{json}");
    }
}

#[test]
fn bad_requests_are_refused_by_field() {
    let tensor = |rest: &str| format!(r#"{{"inputs":[{{"name":"x",{rest}}}]}}"#);
    for (json, named) in [
        ("", "EOF"),
        ("[]", "`inputs`"),
        ("{}", "`inputs` is missing"),
        (r#"{"inputs":[]}"#, "`inputs` is empty"),
        (r#"{"inputs":{}}"#, "`inputs`"),
        (r#"{"id":5,"inputs":[]}"#, "`id`"),
        (r#"{"parameters":{"timeout":-1},"inputs":[]}"#, "`parameters`"),
        (r#"{"inputs":[],"inputs":[]}"#, "`inputs` stands twice"),
        (
            r#"{"inputs":[{"shape":[1],"datatype":"FP32","data":[1]}]}"#,
            "input 0: `name`",
        ),
        (&tensor(r#""shape":[1],"data":[1]"#), "`datatype` is missing"),
        (&tensor(r#""shape":[1],"datatype":"FLOAT","data":[1]"#), "FLOAT"),
        (&tensor(r#""datatype":"FP32","data":[1]"#), "`shape` is missing"),
        (&tensor(r#""shape":[-1],"datatype":"FP32","data":[1]"#), "`shape` [-1]"),
        (
            &tensor(r#""shape":["a"],"datatype":"FP32","data":[1]"#),
            "input `x`: `shape`",
        ),
        (
            &tensor(r#""shape":[9223372036854775807,9],"datatype":"FP32","data":[1]"#),
            "too large",
        ),
        (
            &tensor(r#""shape":[2],"datatype":"FP32","data":[1]"#),
            "1 elements in `data`",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"FP32","data":[1,2]"#),
            "more elements",
        ),
        (&tensor(r#""shape":[1],"datatype":"FP32","data":["a"]"#), "a string"),
        (&tensor(r#""shape":[1],"datatype":"FP32","data":[null]"#), "null"),
        (&tensor(r#""shape":[1],"datatype":"FP32","data":[1e300]"#), "no FP32"),
        (
            &tensor(r#""shape":[1],"datatype":"FP32","data":5"#),
            "`data` of input `x`",
        ),
        (&tensor(r#""shape":[1],"datatype":"FP32","data":[{}]"#), "input `x`"),
        (
            &tensor(r#""shape":[1],"datatype":"UINT8","data":[256]"#),
            "256 in `data` is no UINT8",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"INT64","data":[1.5]"#),
            "1.5 in `data` is no INT64",
        ),
        (&tensor(r#""shape":[1],"datatype":"BOOL","data":[1]"#), "no BOOL"),
        (&tensor(r#""shape":[1],"datatype":"FP16","data":[1]"#), "binary"),
        (
            &tensor(r#""shape":[2,2],"datatype":"INT8","data":[[1,2,3],[4]]"#),
            "depth 1",
        ),
        (
            &tensor(r#""shape":[2,2],"datatype":"INT8","data":[[1,2],3,4]"#),
            "mixes",
        ),
        (&tensor(r#""shape":[2],"datatype":"INT8","data":[[1],[2]]"#), "deeper"),
        (&tensor(r#""shape":[1],"datatype":"INT8""#), "neither `data` nor"),
        (
            &tensor(r#""shape":[1],"datatype":"INT8","data":[1],"data":[1]"#),
            "`data` stands twice",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1}"#),
            "both",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}"#),
            "Inference-Header",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"INT8","parameters":{"shared_memory_region":"a"}"#),
            "shared_memory",
        ),
        (
            r#"{"inputs":[{"name":"x","shape":[0],"datatype":"INT8","data":[]},
                          {"name":"x","shape":[0],"datatype":"INT8","data":[]}]}"#,
            "input `x`: the name stands twice",
        ),
        (
            r#"{"outputs":[{"name":"y"},{"name":"y"}],"inputs":[]}"#,
            "output `y`: the name stands twice",
        ),
        (
            r#"{"outputs":[{"name":"y","parameters":{"classification":3}}],"inputs":[]}"#,
            "classification",
        ),
    ] {
        let message = refusal(json);
        assert!(message.contains(named), "{json}\n  {message}\n  should name {named}");
    }
}

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
fn cut_off_strings_and_odd_booleans_are_refused() {
    let tensor = |dtype, data: &[u8]| Tensor {
        name: "x".into(),
        dtype,
        shape: vec![1],
        data: data.to_vec().into(),
    };
    for bad in [
        tensor(DataType::Bytes, &[2, 0, 0, 0, b'a']),
        tensor(DataType::Bytes, &[255, 255, 255, 255]),
        tensor(DataType::Bytes, &[1, 0]),
        tensor(DataType::Bool, &[2]),
    ] {
        let request = InferRequest {
            inputs: vec![bad],
            ..InferRequest::default()
        };
        let (body, len) = request.encode_binary();
        assert!(
            InferRequest::decode(&body.into(), Some(len))
                .unwrap_err()
                .to_string()
                .contains("input `x`")
        );
    }
}

#[test]
fn deep_nests_are_refused_without_a_deep_stack() {
    let nest = "[".repeat(100_000);
    for json in [
        format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","data":{nest}"#),
        format!(r#"{{"inputs":[{{"name":"x","data":{nest}"#),
        format!(r#"{{"else":{nest}"#),
        nest,
    ] {
        assert!(decode(&json).is_err());
    }
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

#[test]
fn numbers_that_json_cannot_hold_are_null_in_replies() {
    let nan = Tensor {
        name: "y".into(),
        dtype: DataType::Fp32,
        shape: vec![1],
        data: f32::NAN.to_le_bytes().to_vec().into(),
    };
    let (body, _) = InferReply {
        outputs: vec![nan],
        ..InferReply::default()
    }
    .encode(&[]);
    assert!(body.windows(6).any(|part| part == b"[null]"));
    assert!(floats(&InferReply::decode(&body, None).unwrap().outputs[0])[0].is_nan());
}

/// A tensor of any type whose data fits its shape; floats are finite, so that JSON can hold them.
fn tensor(name: &'static str) -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0_i64..5, 0..4);
    (prop::sample::select(DataType::ALL.to_vec()), shape, any::<u64>()).prop_map(move |(dtype, shape, seed)| {
        let count = element_count(&shape).unwrap();
        let mut state = seed | 1;
        let mut next = || {
            // splitmix64, for bytes that differ
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        let mut data = Vec::new();
        for _ in 0..count {
            let bits = next();
            match dtype {
                DataType::Bool => data.push((bits & 1) as u8),
                DataType::Bytes => {
                    let text: String = (0..bits % 7).map(|i| if i % 3 == 2 { 'é' } else { '"' }).collect();
                    data.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    data.extend_from_slice(text.as_bytes());
                }
                DataType::Fp32 => {
                    let value = f32::from_bits(bits as u32);
                    data.extend_from_slice(&(if value.is_finite() { value } else { 0.5 }).to_le_bytes());
                }
                DataType::Fp64 => {
                    let value = f64::from_bits(bits);
                    data.extend_from_slice(&(if value.is_finite() { value } else { 0.5 }).to_le_bytes());
                }
                _ => data.extend_from_slice(&bits.to_le_bytes()[..dtype.size().unwrap()]),
            }
        }
        Tensor {
            name: name.to_owned(),
            dtype,
            shape,
            data: data.into(),
        }
    })
}

fn request() -> impl Strategy<Value = InferRequest> {
    let outputs = prop::option::of(any::<bool>());
    (
        tensor("a"),
        tensor("b \" \\"),
        outputs,
        any::<bool>(),
        (prop::option::of(any::<u64>()), any::<u64>()),
        ".{0,9}",
    )
        .prop_map(
            |(a, b, output, binary_output, (timeout_us, priority), id)| InferRequest {
                id: Some(id),
                inputs: vec![a, b],
                outputs: output
                    .map(|binary| RequestedOutput {
                        name: "y".into(),
                        binary,
                    })
                    .into_iter()
                    .collect(),
                binary_output,
                timeout_us,
                priority,
            },
        )
}

proptest! {
    #[test]
    fn binary_requests_read_back_however_they_arrive(request in request(), cuts in prop::collection::vec(any::<usize>(), 0..4)) {
        let (mut body, len) = request.encode_binary();
        let mut arrived = Data::default();
        for cut in cuts {
            arrived.push(body.split_to(cut % (body.len() + 1)));
        }
        arrived.push(body);
        prop_assert_eq!(InferRequest::decode(&arrived, Some(len)).unwrap(), request);
    }

    #[test]
    fn json_requests_read_back(mut request in request()) {
        request.inputs.retain(Tensor::has_json_form);
        prop_assume!(!request.inputs.is_empty());
        let body = Bytes::from(request.encode_json());
        prop_assert_eq!(InferRequest::decode(&body.into(), None).unwrap(), request);
    }

    #[test]
    fn replies_read_back(a in tensor("a"), b in tensor("b"), binary in any::<bool>()) {
        let reply = InferReply {
            model_name: "m".into(),
            model_version: "2".into(),
            id: Some("7".into()),
            outputs: vec![a, b],
        };
        let (body, len) = reply.encode(&[binary, false]);
        prop_assert_eq!(InferReply::decode(&body, len).unwrap(), reply);
    }

    #[test]
    fn any_bytes_are_read_or_refused(body in prop::collection::vec(any::<u8>(), 0..300), len in prop::option::of(0_usize..400)) {
        let body = Bytes::from(body);
        let _ = InferReply::decode(&body, len);
        let _ = InferRequest::decode(&body.into(), len);
    }

    #[test]
    fn damaged_requests_are_read_or_refused(
        request in request(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (body, len) = request.encode_binary();
        let mut body = body.to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        body.truncate(cut.index(body.len()) + 1);
        let _ = InferRequest::decode(&body.into(), Some(len));
    }
}
