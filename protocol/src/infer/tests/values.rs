//! Elements, nests, literals of numbers, and nulls.

use super::*;

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
fn what_a_client_writes_as_null_is_nothing() {
    // The form of MLServer's `InferenceRequest.dict()`.
    let tensor = r#""name":"x","shape":[1],"datatype":"INT8","parameters":null,"data":[7]"#;
    for outputs in ["null", r#"[{"name":"y","parameters":null}]"#] {
        let read = decode(&format!(
            r#"{{"id":null,"parameters":null,"inputs":[{{{tensor}}}],"outputs":{outputs}}}"#
        ));
        let read = read.unwrap();
        assert_eq!((read.id, read.outputs.len()), (None, usize::from(outputs != "null")));
    }
    let twice = refusal(&format!(r#"{{"id":"a","inputs":[{{{tensor}}}],"id":null}}"#));
    assert!(twice.contains("duplicate `id`"), "{twice}");
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
