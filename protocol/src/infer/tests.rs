use super::*;
use crate::tensor::{DataType, element_count};
use bytes::Bytes;
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
        (r#"{"inputs":[],"inputs":[]}"#, "`inputs` is given twice"),
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
            "input `x`: expected an array as `data`, got `5`",
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
            "`data` is given twice",
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
            "input `x`: the name is given twice",
        ),
        (
            r#"{"outputs":[{"name":"y"},{"name":"y"}],"inputs":[]}"#,
            "output `y`: the name is given twice",
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
fn what_is_no_number_is_written_and_read_as_triton_does_it() {
    let json = |dtype: &str, data: &str| {
        format!(r#"{{"inputs":[{{"name":"x","shape":[5],"datatype":"{dtype}","data":{data}}}]}}"#)
    };
    let bits = |tensor: &Tensor| match tensor.dtype {
        DataType::Fp32 => tensor.data.whole().to_vec(),
        _ => tensor
            .data
            .whole()
            .chunks(8)
            .map(|b| f64::from_le_bytes(b.try_into().unwrap()) as f32)
            .flat_map(f32::to_le_bytes)
            .collect(),
    };
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5, f32::INFINITY];
    let expected: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
    for dtype in ["FP32", "FP64"] {
        for text in [
            json(dtype, "[NaN,Infinity,-Infinity,1.5,Inf]"),
            json(dtype, "[NaN , Infinity,-Inf,15e-1 ,Infinity]"),
            json(dtype, "[[NaN,Infinity,-Infinity,1.5,Infinity]]").replace("[5]", "[1,5]"),
            format!(
                r#"{{"inputs":[{{"data":[NaN,Infinity,-Infinity,1.5,Infinity],"name":"NaN \" Infinity","shape":[5],
                    "datatype":"{dtype}","parameters":{{"note":-Infinity}}}}],"id":"Infinity"}}"#
            ),
        ] {
            let request = decode(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(bits(&request.inputs[0]), expected, "{text}");
        }
    }
    let reply = InferReply {
        outputs: vec![Tensor {
            name: "y".into(),
            dtype: DataType::Fp32,
            shape: vec![5],
            data: expected.into(),
        }],
        ..InferReply::default()
    };
    let (body, _) = reply.encode(&[]);
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains("[NaN,Infinity,-Infinity,1.5,Infinity]"), "{text}");
    assert_eq!(InferReply::decode(&body, None).unwrap(), reply);
}

#[test]
fn what_an_element_must_not_be_is_said_with_what_to_write() {
    let refused = |dtype: &str, data: &str| {
        refusal(&format!(
            r#"{{"inputs":[{{"name":"x","shape":[3],"datatype":"{dtype}","data":{data}}}]}}"#
        ))
    };
    for (dtype, data, named) in [
        (
            "INT64",
            "[1,2,16000.0]",
            "input `x`: element 2: 16000.0 in `data` is no INT64: integers have no point and no exponent, write 16000",
        ),
        (
            "UINT8",
            "[1,2e0,3]",
            "element 1: 2.0 in `data` is no UINT8: integers have no point and no exponent, write 2",
        ),
        ("INT64", "[1,-0,2]", "no exponent, write 0 at"),
        ("INT64", "[NaN,1,2]", "element 0: NaN in `data` is no INT64"),
        (
            "BYTES",
            "[\"a\",Infinity,\"b\"]",
            "element 1: inf in `data` is no BYTES",
        ),
        (
            "FP32",
            "[1,null,2]",
            "element 1: null in `data` is no FP32: what is no number is written NaN, Infinity or -Infinity",
        ),
        (
            "FP64",
            "[\"NaN\",1,2]",
            "or sent as binary data (the header Inference-Header-Content-Length)",
        ),
        (
            "FP32",
            "[1,1e300,2]",
            "element 1: 1e300 in `data` is no FP32: it is too large",
        ),
        ("FP32", "[1,{},2]", "expected a value, got `{`"),
        ("FP32", "[1,{\"\":1},2]", "expected a value, got `{`"),
        ("FP32", "[NaN,{},2]", "expected a value"),
        ("FP64", "[1e400,1,2]", "number out of range"),
        ("FP32", "[01,1,2]", "expected a value, got `0`"),
        ("FP32", "[NaNs,1,2]", "expected"),
        ("FP32", "[+Infinity,1,2]", "expected"),
    ] {
        let message = refused(dtype, data);
        assert!(message.contains(named), "{message}\n  should say {named}");
    }
}

/// MemoryBudget for so many bytes.
struct Least(std::cell::Cell<usize>);

impl MemoryBudget for Least {
    fn take(&self, bytes: usize) -> bool {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or(0));
        left.is_some()
    }
}

#[test]
fn memory_is_asked_for_before_it_is_taken() {
    let within = |json: &str, budget: usize| {
        InferRequest::decode_within(&json.as_bytes().to_vec().into(), None, &Least(budget.into()))
    };
    let of = |dtype: &str, element: &str, count: usize| {
        let data = vec![element; count].join(",");
        format!(r#"{{"inputs":[{{"name":"x","shape":[{count}],"datatype":"{dtype}","data":[{data}]}}]}}"#)
    };
    // Each time the smallest on the wire that becomes the most in memory: exactly that is reserved.
    for (json, bytes) in [
        (of("FP64", "0", 10_000), 80_000),
        (of("FP64", "0.12345678901234567", 10_000), 80_000),
        (of("BYTES", "\"\"", 10_000), 40_000),
    ] {
        assert!(within(&json, bytes + 100).is_ok());
        assert!(within(&json, bytes - 1).unwrap_err().to_string().contains("no room"));
    }
    // A shape that claims more than the text can hold takes no more than the text could.
    let lie = of("FP64", "0", 3).replace("[3]", "[1000000000000]");
    assert!(
        within(&lie, lie.len() * 4 + 8)
            .unwrap_err()
            .to_string()
            .contains("3 elements")
    );
    // Texts that are longer than was set aside for them.
    let long = "a".repeat(5000);
    let json = of("BYTES", &format!("\"{long}\""), 10);
    assert!(within(&json, 60_000).is_err());
    let read = within(&json, 400_000).unwrap();
    assert_eq!(read.inputs[0].data.len(), 50_040);
    // Escapes are written out in a place of their own.
    let escaped = of("BYTES", &format!("\"{}\"", "\\u0041".repeat(50_000)), 2);
    assert!(within(&escaped, 1_000_000).unwrap_err().to_string().contains("no room"));
    assert_eq!(within(&escaped, 2_000_000).unwrap().inputs[0].data.len(), 100_008);
    // A string in the wrong place takes nothing, and is not quoted.
    let misplaced = format!(r#"{{"inputs":"{}"}}"#, "\\u0041".repeat(50_000));
    let refused = within(&misplaced, 0).unwrap_err().to_string();
    assert!(refused.contains("expected an array of tensors"), "{refused}");
    // Several pieces are copied into one first.
    let mut pieces = Data::default();
    let json = of("INT8", "0", 10_000);
    json.as_bytes()
        .chunks(5000)
        .for_each(|piece| pieces.push(Bytes::copy_from_slice(piece)));
    let budget = |bytes| InferRequest::decode_within(&pieces, None, &Least(std::cell::Cell::new(bytes)));
    assert!(budget(json.len()).is_err() && budget(json.len() + 11_000).is_ok());
}

#[test]
fn lists_are_bounded_while_they_are_read() {
    let outputs = |count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!(r#"{{"name":"{i}"}}"#)).collect();
        let tensor = r#"{"name":"x","shape":[1],"datatype":"INT8","data":[1]}"#;
        // What comes behind the list is never reached where it is too long.
        format!(r#"{{"outputs":[{}],"inputs":[{tensor}]}}"#, names.join(","))
    };
    assert!(decode(&outputs(MAX_TENSORS)).is_ok());
    let cut = |json: String| json[..json.rfind("],\"inputs\"").unwrap()].to_owned();
    assert!(refusal(&cut(outputs(MAX_TENSORS + 1))).contains("more than 256 outputs"));
    let shape = vec!["1"; 17].join(",");
    let message = refusal(&format!(
        r#"{{"inputs":[{{"name":"x","datatype":"INT8","shape":[{shape},"#
    ));
    assert!(message.contains("`shape`: more than 16 dimensions"), "{message}");
    let long = "a".repeat(MAX_NAME_BYTES + 1);
    for (json, named) in [
        (format!(r#"{{"id":"{long}""#), "`id`: it is longer than 1024 bytes"),
        (
            format!(r#"{{"inputs":[{{"name":"{long}""#),
            "input 0: `name`: it is longer",
        ),
        (format!(r#"{{"outputs":[{{"name":"{long}""#), "longer than 1024"),
    ] {
        let message = refusal(&json);
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_large_reply_comes_in_pieces_and_each_is_asked_for() {
    let numbers = |dtype: DataType, count: usize| Tensor {
        name: dtype.to_string(),
        dtype,
        shape: vec![count as i64],
        data: (0..count * dtype.size().unwrap()).map(|i| (i % 120) as u8).collect(),
    };
    let texts = Tensor {
        name: "z".into(),
        dtype: DataType::Bytes,
        shape: vec![300_000],
        data: [[2, 0, 0, 0, b'a', b'"']; 300_000].concat().into(),
    };
    let reply = InferReply {
        outputs: vec![
            numbers(DataType::Fp64, 300_000),
            texts,
            numbers(DataType::Int16, 90_000),
        ],
        ..InferReply::default()
    };
    let whole = reply.encode(&[]).0;
    let encoded = reply.encode_within(&[], &Unlimited).unwrap();
    assert!(encoded.pieces.len() > 5);
    assert!(encoded.pieces.iter().all(|piece| piece.bytes().len() <= 1 << 20));
    assert_eq!(encoded.into_data(), whole[..]);
    assert_eq!(InferReply::decode(&whole, None).unwrap(), reply);
    assert!(reply.encode_within(&[], &Least(whole.len().into())).is_none());
    assert!(
        reply
            .encode_within(&[], &Least((whole.len() * 5 / 4 + (1 << 20)).into()))
            .is_some()
    );
    // What is binary is not copied, and takes nothing.
    let shared = reply.encode_within(&[true; 3], &Least(4096.into())).unwrap();
    let json_len = shared.json_len;
    assert!(
        shared
            .pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Shared(_)))
            .count()
            == 3
    );
    assert_eq!(
        InferReply::decode(&shared.into_data().into_whole(), json_len).unwrap(),
        reply
    );
    let binary = reply.encode(&[true; 3]);
    assert_eq!(InferReply::decode(&binary.0, binary.1).unwrap(), reply);
}

/// A budget without a limit that notes the most that was asked for at once.
#[derive(Default)]
struct LargestStep(std::cell::Cell<usize>);

impl MemoryBudget for LargestStep {
    fn take(&self, bytes: usize) -> bool {
        self.0.set(self.0.get().max(bytes));
        true
    }
}

#[test]
fn a_long_text_is_written_and_asked_for_step_by_step() {
    for text in ["\u{1}".repeat(3 << 20), "aä€\"\u{1f600}".repeat(100_000), String::new()] {
        let element = [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let reply = InferReply {
            outputs: vec![Tensor {
                name: "y".into(),
                dtype: DataType::Bytes,
                shape: vec![2],
                data: element.repeat(2).into(),
            }],
            ..InferReply::default()
        };
        let steps = LargestStep::default();
        let encoded = reply.encode_within(&[], &steps).unwrap();
        assert!(steps.0.get() <= 2 << 20, "{} bytes at once", steps.0.get());
        assert!(encoded.pieces.iter().all(|piece| piece.bytes().len() <= 1 << 20));
        let whole = encoded.into_data().into_whole();
        assert_eq!(InferReply::decode(&whole, None).unwrap(), reply);
        assert!(text.is_empty() || reply.encode_within(&[], &Least((2 << 20).into())).is_none());
    }
}

#[test]
fn an_empty_input_does_not_promise_more_than_could_be_sent() {
    let of = |shape: &str, more: &str| {
        let text = format!(r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"FP32"{more}}}]}}"#);
        let json_len = (!more.contains("data\":[")).then_some(text.len());
        InferRequest::decode(&text.into_bytes().into(), json_len)
    };
    for more in [r#","data":[]"#, r#","parameters":{"binary_data_size":0}"#] {
        for shape in ["[0]", "[0,3,640,640]", "[4096,0,4096]", "[0,0]"] {
            assert!(of(shape, more).is_ok(), "{shape}");
        }
        for shape in ["[0,1099511627776]", "[1,0,16777217]", "[4097,4096,0]"] {
            let refused = of(shape, more).unwrap_err().to_string();
            assert!(refused.contains("has a 0, and its other dimensions"), "{refused}");
        }
        assert!(of("[0,9223372036854775807,9223372036854775807]", more).is_err());
    }
}

/// A tensor of any type whose data fits its shape; a NaN is the usual one, so that JSON can hold it.
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
                    let value = [value, f32::INFINITY, f32::NEG_INFINITY, f32::NAN][(bits >> 62) as usize];
                    data.extend_from_slice(&(if value.is_nan() { f32::NAN } else { value }).to_le_bytes());
                }
                DataType::Fp64 => {
                    let value = f64::from_bits(bits);
                    let value = [value, f64::INFINITY, f64::NEG_INFINITY, f64::NAN][(bits % 4) as usize];
                    data.extend_from_slice(&(if value.is_nan() { f64::NAN } else { value }).to_le_bytes());
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

const USUAL: &str = r#"{"id":"7", "inputs":[{"name":"a","shape":[2,2],"datatype":"FP32","data":[0.5, -1, NaN,-Infinity]},
    {"name":"b","datatype":"INT64","shape":[1],"data":[8]}],"parameters":{"binary_data_output":true}}"#;

/// A number as JSON writes it, nearly one, or one of Triton's literals.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<f32>().prop_map(|float| float.to_string()),
        any::<f64>().prop_map(|float| format!("{float:e}")),
        any::<i64>().prop_map(|int| int.to_string()),
        any::<u64>().prop_map(|int| int.to_string()),
        (-300_i32..300).prop_map(|int| int.to_string()),
        (-1.0..1.0_f64).prop_map(|float| format!("{float:.6}")),
        "-?[0-9]{0,22}(\\.[0-9]{0,18})?([eE][+-]?[0-9]{0,4})?",
        "-?(NaN|Infinity|Inf|nan|I|N|Infinit)[0-9]?",
    ]
}

/// Value of a number by serde_json, with Triton's literals beside it.
fn by_serde(number: &str) -> Option<f64> {
    match number {
        "NaN" | "-NaN" => Some(f64::NAN),
        "Infinity" | "Inf" => Some(f64::INFINITY),
        "-Infinity" | "-Inf" => Some(f64::NEG_INFINITY),
        number => serde_json::from_str(number).ok(),
    }
}

proptest! {
    #[test]
    fn numbers_are_what_serde_json_reads(numbers in prop::collection::vec(number(), 1..6), space in "[ \n\t]{0,2}") {
        let data = numbers.join(&format!("{space},"));
        for (dtype, size) in [("FP64", 8), ("INT64", 8), ("UINT64", 8)] {
            let count = numbers.len();
            let text = format!(
                "{{\"inputs\":[{{\"name\":\"x\",{space}\"datatype\":\"{dtype}\",\"shape\":[{count},1]{space},\"data\":[{data}{space}]}}]}}"
            );
            let expected: Option<Vec<[u8; 8]>> = numbers.iter().map(|number| match dtype {
                "FP64" => by_serde(number).map(|value| value.to_bits().to_le_bytes()),
                "INT64" => serde_json::from_str(number).ok().map(i64::to_le_bytes),
                _ => serde_json::from_str(number).ok().map(u64::to_le_bytes),
            }).collect();
            let read = decode(&text);
            prop_assert_eq!(read.is_ok(), expected.is_some(), "{}: {:?}", text, read);
            if let (Ok(read), Some(expected)) = (read, expected) {
                let data = read.inputs[0].data.whole();
                for (have, want) in data.chunks(size).zip(expected) {
                    let (have, want) = (u64::from_le_bytes(have.try_into().unwrap()), u64::from_le_bytes(want));
                    let both_nan = dtype == "FP64" && f64::from_bits(have).is_nan() && f64::from_bits(want).is_nan();
                    prop_assert!(have == want || both_nan, "{}", text);
                }
            }
        }
    }

    #[test]
    fn damaged_text_is_read_or_refused(at in any::<prop::sample::Index>(), byte in prop::sample::select(b"{}[]\",:0-.e \\tn\nNI".to_vec())) {
        let mut text = USUAL.to_owned().into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let _ = decode(std::str::from_utf8(&text).unwrap());
        prop_assert!(decode(&USUAL[..at]).is_err());
    }

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

#[test]
fn what_a_client_writes_as_null_is_nothing() {
    // As MLServer's `InferenceRequest.dict()` has it.
    let tensor = r#""name":"x","shape":[1],"datatype":"INT8","parameters":null,"data":[7]"#;
    for outputs in ["null", r#"[{"name":"y","parameters":null}]"#] {
        let read = decode(&format!(
            r#"{{"id":null,"parameters":null,"inputs":[{{{tensor}}}],"outputs":{outputs}}}"#
        ));
        let read = read.unwrap();
        assert_eq!((read.id, read.outputs.len()), (None, usize::from(outputs != "null")));
    }
    let twice = refusal(&format!(r#"{{"id":"a","inputs":[{{{tensor}}}],"id":null}}"#));
    assert!(twice.contains("`id` is given twice"), "{twice}");
    for missing in [
        r#"{"inputs":null}"#,
        r#"{"inputs":[{"name":null}]}"#,
        r#"{"inputs":[{"name":"x","data":null}]}"#,
    ] {
        assert!(decode(missing).is_err(), "{missing}");
    }
}

#[test]
fn what_a_server_writes_as_null_is_nothing() {
    let text = br#"{"model_name":"m","model_version":null,"id":null,"parameters":null,"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":null,"data":[0.5]}]}"#;
    let reply = InferReply::decode(&bytes::Bytes::from_static(text), None).unwrap();
    assert_eq!(
        (reply.model_version.as_str(), reply.id, reply.outputs.len()),
        ("", None, 1)
    );
    let twice = br#"{"model_name":"m","id":"a","id":null,"outputs":[]}"#;
    assert!(InferReply::decode(&bytes::Bytes::from_static(twice), None).is_err());
}
