//! Requests that are refused, with the field in the message.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
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
        (r#"{"inputs":[],"inputs":[]}"#, "duplicate `inputs`"),
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
        (
            &tensor(r#""shape":[1],"datatype":"FP32","data":[1e300]"#),
            "not a valid FP32",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"FP32","data":5"#),
            "input `x`: expected an array as `data`, got `5`",
        ),
        (&tensor(r#""shape":[1],"datatype":"FP32","data":[{}]"#), "input `x`"),
        (
            &tensor(r#""shape":[1],"datatype":"UINT8","data":[256]"#),
            "256 in `data` is not a valid UINT8",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"INT64","data":[1.5]"#),
            "1.5 in `data` is not a valid INT64",
        ),
        (
            &tensor(r#""shape":[1],"datatype":"BOOL","data":[1]"#),
            "not a valid BOOL",
        ),
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
        (&tensor(r#""shape":[1],"datatype":"INT8""#), "missing `data` or"),
        (
            &tensor(r#""shape":[1],"datatype":"INT8","data":[1],"data":[1]"#),
            "duplicate `data`",
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
            "input `x`: duplicate name",
        ),
        (
            r#"{"outputs":[{"name":"y"},{"name":"y"}],"inputs":[]}"#,
            "output `y`: duplicate name",
        ),
        (
            r#"{"outputs":[{"name":"y","parameters":{"classification":-1}}],"inputs":[]}"#,
            "`classification`: expected a whole number",
        ),
        (
            r#"{"parameters":{"classification":3},"inputs":[]}"#,
            "`parameters.classification` is not supported here",
        ),
    ] {
        let message = refusal(json);
        assert!(message.contains(named), "{json}\n  {message}\n  should name {named}");
    }
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
            "input `x`: element 2: 16000.0 in `data` is not a valid INT64 (integers do not have a point or an exponent: write 16000)",
        ),
        (
            "UINT8",
            "[1,2e0,3]",
            "element 1: 2.0 in `data` is not a valid UINT8 (integers do not have a point or an exponent: write 2)",
        ),
        ("INT64", "[1,-0,2]", "an exponent: write 0) at"),
        ("INT64", "[NaN,1,2]", "element 0: NaN in `data` is not a valid INT64"),
        (
            "BYTES",
            "[\"a\",Infinity,\"b\"]",
            "element 1: inf in `data` is not a valid BYTES",
        ),
        (
            "FP32",
            "[1,null,2]",
            "element 1: null in `data` is not a valid FP32 (write NaN, Infinity or -Infinity",
        ),
        (
            "FP64",
            "[\"NaN\",1,2]",
            "or send binary data with the header Inference-Header-Content-Length)",
        ),
        (
            "FP32",
            "[1,1e300,2]",
            "element 1: 1e300 in `data` is not a valid FP32 (too large",
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
