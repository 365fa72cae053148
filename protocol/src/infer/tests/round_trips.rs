//! Bodies that are written and read again, whole or damaged.

use super::*;

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
    let outputs = prop::option::of((any::<bool>(), prop_oneof![Just(0), any::<u64>()]));
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
                    .map(|(binary, classes)| RequestedOutput {
                        name: "y".into(),
                        binary,
                        classes,
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
