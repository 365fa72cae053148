//! Replies as servers send them, correct and wrong.

use super::*;
use http_body_util::{Full, StreamBody};
use hyper::body::Bytes;
use proptest::prelude::*;
use tierlab_protocol::grpc::messages::ModelInferResponse;
use tierlab_protocol::infer::{InferReply, Tensor};
use tierlab_protocol::tensor::{DataType, TensorSpec};

impl Received {
    /// Creates a body that was read to its end.
    pub(crate) fn complete(bytes: Bytes, trailers: Option<hyper::header::HeaderMap>) -> Self {
        let mut received = Self::default();
        (received.bytes, received.trailers) = (bytes, trailers);
        received
    }
}

fn spec(name: &str, dtype: DataType, shape: &[i64]) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        dtype,
        shape: shape.into(),
    }
}

/// Two rows of a model with two outputs.
fn expected() -> Expected {
    let outputs = [
        spec("y", DataType::Fp32, &[-1, 2]),
        spec("label", DataType::Bytes, &[-1]),
    ];
    Expected::new("m", &outputs, Some(2))
}

const Y: &str = r#"{"name":"y","datatype":"FP32","shape":[2,2],"data":[0.5,-1e-3,7,NaN]}"#;
const LABEL: &str = r#"{"name":"label","datatype":"BYTES","shape":[2],"data":["a\"b","\u00e9"]}"#;

fn document(outputs: &[&str]) -> String {
    format!(
        r#"{{"model_name":"m","model_version":"1","outputs":[{}],"parameters":{{"a":[1,{{}}]}}}}"#,
        outputs.join(",")
    )
}

/// Checks a reply in JSON.
fn check_json(expected: &Expected, text: &str) -> Result<(), NoReply> {
    let checked = expected.check_http(&Bytes::copy_from_slice(text.as_bytes()), None);
    checked.map(drop)
}

fn check(text: &str) -> Result<(), NoReply> {
    check_json(&expected(), text)
}

#[track_caller]
fn assert_fault(checked: Result<(), NoReply>, what: &str) {
    let fault = checked.expect_err(what).to_string();
    assert!(fault.contains(what), "`{fault}` does not say `{what}`");
}

#[test]
fn good_replies_pass_in_any_order_and_with_white_space() {
    let nested = Y.replace("[0.5,-1e-3,7,NaN]", "[ [0.5, -Infinity],\n[1, 2E+5] ]");
    for text in [
        document(&[Y, LABEL]),
        document(&[LABEL, Y]),
        document(&[&nested, LABEL]).replace(':', " :\t"),
        format!(r#" {{"outputs":[{Y},{LABEL}],"id":"7","model_name":"m"}} "#),
        document(&[Y, LABEL]).replace("\"y\"", "\"\\u0079\""),
    ] {
        assert_eq!(check(&text), Ok(()), "{text}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn what_is_no_reply_is_told_apart() {
    let good = document(&[Y, LABEL]);
    for (text, what) in [
        (
            r#"{"error": "the model is asleep"}"#,
            "the reply is an error: `\"the model is asleep\"`",
        ),
        (&good.replacen('{', r#"{"error":"late","#, 1), "the reply is an error"),
        (
            "<html><body>502 Bad Gateway</body></html>",
            "not a JSON object: `<html>",
        ),
        ("", "not a JSON object"),
        ("[]", "not a JSON object"),
        ("{}", "`model_name` is missing"),
        (r#"{"model_name":"m"}"#, "`outputs` is missing"),
        (r#"{"model_name":"m","outputs":[]}"#, "no outputs"),
        (&good.replacen("\"m\"", "\"other\"", 1), "from model `other`, not `m`"),
        (&document(&[Y]), "output `label` is missing"),
        (&document(&[Y, Y]), "output `y`: duplicate name"),
        (
            &document(&[Y, LABEL, &Y.replace("\"y\"", "\"z\"")]),
            "output `z` is not an output of the model",
        ),
        (
            &good.replace("FP32", "FP64"),
            "output `y` has type FP64, not the declared FP32",
        ),
        (&good.replace("FP32", "float"), "output `y`: `datatype`: "),
        (&good.replace("[2,2]", "[4]"), "output `y` has shape [4], not [2, 2]"),
        (
            &good.replace("[2,2]", "[1,2]"),
            "output `y`: more elements in `data` than `shape` [1, 2]",
        ),
        (&good.replace("7,NaN", "0"), "output `y`: 3 elements in `data`"),
        (
            &good.replace("7,NaN", "\"0\",NaN"),
            "element 2: a string in `data` is not a valid FP32",
        ),
        (
            &good.replace("7,NaN", "null,NaN"),
            "element 2: null in `data` is not a valid FP32",
        ),
        (
            &good.replace(r#""\u00e9""#, "null"),
            "element 1: null in `data` is not a valid BYTES",
        ),
        (
            &good.replace(r#","data":[0.5,-1e-3,7,NaN]"#, ""),
            "output `y`: missing `data`",
        ),
        (&good[..good.len() - 1], "got EOF"),
        (&good.replace("0.5", "0.5."), "at line 1 column"),
        (&good.replace("0.5", "05"), "at line 1 column"),
        (&format!("{good}x"), "trailing characters"),
        (&good.replace("[1,{}]", &"[".repeat(1_000)), "nested too deeply"),
        (&good.replace("[0.5", &"[".repeat(100)), "nested deeper than `shape`"),
        (
            &good.replace("[2,2]", "[99999999999999999999]"),
            "use a whole number below 2^63",
        ),
        (
            &good.replace("[2,2]", "[4294967296,4294967296,4294967296]"),
            "has a negative dimension",
        ),
        (
            &good.replace("[2,2]", &format!("[{}1]", "1,".repeat(40))),
            "more than 16 dimensions",
        ),
    ] {
        assert_fault(check(text), what);
    }
    let bare = Expected::new("m", &[], None);
    assert_eq!(check_json(&bare, &good), Ok(()));
    assert_fault(check_json(&bare, &good.replace("7,NaN", "0")), "3 elements in `data`");
}

#[test]
fn integers_have_no_fraction() {
    let expected = Expected::new("m", &[spec("n", DataType::Int64, &[-1])], Some(1));
    let check = |data: &str| {
        let output = format!(r#"{{"name":"n","datatype":"INT64","shape":[1],"data":[{data}]}}"#);
        check_json(&expected, &document(&[&output]))
    };
    for data in ["-7", "0"] {
        assert_eq!(check(data), Ok(()), "{data}");
    }
    for data in ["0.5", "7.0", "NaN", "-Infinity", "true", "null"] {
        assert_fault(check(data), "in `data` is not a valid INT64");
    }
}

#[test]
fn a_shape_fits_its_rows_its_declaration_or_neither() {
    let expected = expected();
    for (shape, fit) in [
        (&[2, 2][..], ShapeFit::Rows),
        (&[3, 2], ShapeFit::Declared),
        (&[2, 3], ShapeFit::Other),
        (&[2, 1, 2], ShapeFit::Other),
    ] {
        assert_eq!(expected.fit("y", shape), fit, "{shape:?}");
    }
    let any = expected.with_any_shape(|name| name == "y");
    let cube = document(&[&Y.replace("[2,2]", "[2,1,2]"), LABEL]);
    assert_eq!(check_json(&any, &cube), Ok(()));
    assert_fault(check_json(&any, &cube.replace("7,NaN", "0")), "3 elements in `data`");
    assert_eq!(any.elements(), None);
}

fn tensors() -> Vec<Tensor> {
    vec![
        Tensor {
            name: "y".into(),
            dtype: DataType::Fp32,
            shape: vec![2, 2],
            data: vec![0; 16].into(),
        },
        Tensor {
            name: "label".into(),
            dtype: DataType::Bytes,
            shape: vec![2],
            data: b"\x01\0\0\0a\0\0\0\0".to_vec().into(),
        },
    ]
}

fn binary(sizes: (usize, usize), raw: &[u8]) -> (Vec<u8>, usize) {
    let size = |text: &str, size: usize| {
        let (head, _) = text.split_once("\"data\"").unwrap();
        format!(r#"{head}"parameters":{{"binary_data_size":{size}}}}}"#)
    };
    let head = document(&[&size(Y, sizes.0), &size(LABEL, sizes.1)]);
    ([head.as_bytes(), raw].concat(), head.len())
}

#[test]
fn binary_tensors_have_the_length_of_their_shape() {
    let raw = [&[0; 16][..], b"\x01\0\0\0a\0\0\0\0"].concat();
    let check = |(body, len): (Vec<u8>, usize)| expected().check_http(&body.into(), Some(len)).map(drop);
    assert_eq!(check(binary((16, 9), &raw)), Ok(()));
    assert_fault(check(binary((12, 13), &raw)), "output `y`: 12 bytes of data");
    assert_fault(
        check(binary((16, 9), &raw[..20])),
        "output `label`: `binary_data_size` is 9, but 4 bytes are left",
    );
    assert_fault(
        check(binary((16, 9), &[&raw[..], b"x"].concat())),
        "1 bytes follow the last binary output",
    );
    assert_fault(check(binary((16, 5), &raw[..21])), "output `label`: 1 BYTES elements");
    assert_fault(check(binary((16, usize::MAX), &raw)), "are left in the body");
    assert_fault(check((b"{}".to_vec(), 9)), "is 9, but the body has 2 bytes");
}

fn message(change: impl FnOnce(&mut ModelInferResponse)) -> Vec<u8> {
    let mut message = ModelInferResponse::from(InferReply {
        model_name: "m".into(),
        model_version: "1".into(),
        id: None,
        outputs: tensors(),
    });
    change(&mut message);
    message.encode_to_vec()
}

#[test]
fn messages_are_held_to_the_same() {
    let check = |bytes: &[u8]| expected().check_grpc(&Bytes::copy_from_slice(bytes)).map(drop);
    assert_eq!(check(&message(|_| ())), Ok(()));
    assert_fault(check(&message(|m| m.model_name = "other".into())), "from model `other`");
    assert_fault(check(&message(|m| m.outputs.truncate(1))), "2 entries for 1 outputs");
    assert_fault(check(&message(|m| m.outputs.clear())), "2 entries for 0 outputs");
    assert_fault(
        check(&message(|m| m.outputs[0].shape = vec![1, 2])),
        "output `y`: 16 bytes of data",
    );
    assert_fault(
        check(&message(|m| m.outputs[0].shape = vec![-1, 2])),
        "has a negative dimension",
    );
    assert_fault(
        check(&message(|m| m.outputs[0].datatype = "INT8".into())),
        "output `y`: 16 bytes of data",
    );
    assert_fault(
        check(&message(|m| m.raw_output_contents[0].truncate(12))),
        "output `y`: 12 bytes of data",
    );
    assert_fault(
        check(&message(|m| m.raw_output_contents.truncate(1))),
        "1 entries for 2 outputs",
    );
    assert_fault(
        check(&message(|m| m.raw_output_contents.push(Bytes::new()))),
        "3 entries for 2 outputs",
    );
    assert_fault(check(b"{\"error\":\"x\"}"), "invalid protobuf message");
    let whole = message(|_| ());
    assert_fault(check(&whole[..whole.len() - 1]), "invalid protobuf message");
    // 2 bytes each, of which a message library makes hundreds.
    assert_fault(check(&[0x2a, 0].repeat(100_000)), "more than 256 outputs");
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), len in prop::option::of(0_usize..400)) {
        let bytes = Bytes::from(bytes);
        let _ = expected().check_http(&bytes, len);
        let _ = expected().check_grpc(&bytes);
    }

    /// Changes a byte of a good reply, or cuts off its end.
    #[test]
    fn damaged_replies_are_taken_or_refused(at in 0_usize..1_000, byte: u8, cut: bool) {
        let mut text = document(&[Y, LABEL]).into_bytes();
        let mut message = message(|_| ());
        for bytes in [&mut text, &mut message] {
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
        }
        let (text, message) = (expected().check_http(&text.into(), None), expected().check_grpc(&message.into()));
        prop_assert!(!cut || (text.is_err() && message.is_err()));
    }

    /// Encoded tensors are good replies, and so are the bytes that serde accepts.
    #[test]
    fn what_is_encoded_passes(rows in 0_usize..5, columns in 0_usize..5, values in prop::collection::vec(any::<f32>(), 25)) {
        let data: Vec<u8> = values[..rows * columns].iter().flat_map(|value| value.to_le_bytes()).collect();
        let reply = InferReply {
            model_name: "m".into(),
            model_version: "1".into(),
            id: None,
            outputs: vec![Tensor { name: "y".into(), dtype: DataType::Fp32, shape: vec![rows as i64, columns as i64], data: data.into() }],
        };
        let expected = Expected::new("m", &[spec("y", DataType::Fp32, &[-1, columns as i64])], Some(rows as u32));
        let (json, _) = reply.encode(&[false]);
        prop_assert_eq!(expected.check_http(&json, None), Ok(reply.clone()));
        prop_assert_eq!(expected.check_grpc(&ModelInferResponse::from(reply.clone()).encode_to_vec().into()), Ok(reply));
    }
}

#[test]
fn limits_follow_the_declared_outputs() {
    let of = |planned, outputs: &[TensorSpec]| {
        Limit::of_replies(planned, Expected::new("m", outputs, Some(2)).elements()).bytes
    };
    let small = [spec("y", DataType::Fp32, &[-1, 3])];
    assert_eq!(of(None, &small), (64 << 10) + 6 * 64);
    assert_eq!(of(Some(2_000), &small), 2_000);
    for unknown in [
        vec![],
        vec![spec("y", DataType::Fp32, &[-1, -1])],
        vec![spec("y", DataType::Bytes, &[-1, 3])],
        vec![spec("y", DataType::Fp32, &[1 << 40, 1 << 40])],
    ] {
        assert_eq!(of(None, &unknown), 64 << 20);
    }
}

/// Returns a body in frames of one byte.
fn frames(count: usize) -> impl hyper::body::Body<Data = Bytes, Error = std::convert::Infallible> + Unpin {
    let frame = |_| Ok(hyper::body::Frame::data(Bytes::from_static(b"x")));
    StreamBody::new(futures::stream::iter((0..count).map(frame)))
}

#[tokio::test]
async fn bodies_are_read_to_their_end_or_to_their_limit() {
    let limit = Limit::of(1_000);
    assert_eq!(read(frames(1_000), &limit).await.unwrap().bytes.len(), 1_000);
    let Err(BodyError::TooLarge(what)) = read(frames(1_001), &limit).await else {
        panic!("it was read")
    };
    assert!(what.to_string().contains("more than 1000 bytes"), "{what}");
    let announced = Full::new(Bytes::from(vec![0; 1_001]));
    assert!(matches!(read(announced, &limit).await, Err(BodyError::TooLarge(_))));
}

#[tokio::test]
async fn all_replies_together_have_a_limit_that_those_read_give_back() {
    let limit = Limit::new(200_000, received::ADVICE, 500_000);
    let body = || Full::new(Bytes::from(vec![0; 200_000]));
    let held = [read(body(), &limit).await.unwrap(), read(body(), &limit).await.unwrap()];
    let Err(BodyError::TooLarge(what)) = read(body(), &limit).await else {
        panic!("it was read")
    };
    assert!(what.to_string().contains("`reply_limit_bytes`"), "{what}");
    drop(held);
    assert!(read(body(), &limit).await.is_ok());
}

#[test]
fn what_a_server_writes_as_null_is_nothing() {
    let spec = tierlab_protocol::tensor::TensorSpec {
        name: "y".into(),
        dtype: DataType::Fp32,
        shape: vec![-1],
    };
    let expected = Expected::new("m", &[spec], Some(1));
    let text = r#"{"model_name":"m","model_version":null,"id":null,"parameters":null,"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":null,"data":[0.5]}]}"#;
    assert_eq!(check_json(&expected, text), Ok(()));
}
