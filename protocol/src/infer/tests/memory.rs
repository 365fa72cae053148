//! Memory that is asked for before it is taken, and the bounds of lists.

use super::*;

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
        assert!(
            within(&json, bytes - 1)
                .unwrap_err()
                .to_string()
                .contains("not enough memory")
        );
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
    assert!(
        within(&escaped, 1_000_000)
            .unwrap_err()
            .to_string()
            .contains("not enough memory")
    );
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
        // A list that is too long is refused before the bytes behind it are reached.
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
        (format!(r#"{{"id":"{long}""#), "`id`: longer than 1024 bytes"),
        (format!(r#"{{"inputs":[{{"name":"{long}""#), "input 0: `name`: longer"),
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
    // Binary data is not copied, and takes nothing.
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
