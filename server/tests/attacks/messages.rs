//! Messages that are small on the wire and large in memory, or that claim more than they hold.
//!
//! In: sizes and names. Out: bytes, as a client sends them. Depends on nothing but gzip, so that tests and load tools can share
//! them; nothing here speaks to a server.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// The key of an empty entry: `ModelInferRequest`'s parameters, inputs, outputs, raw contents.
pub(crate) const EMPTY_PARAMETER: u8 = 0x22;
/// `inputs`.
pub(crate) const EMPTY_INPUT: u8 = 0x2a;
/// `outputs`.
pub(crate) const EMPTY_OUTPUT: u8 = 0x32;
/// `raw_input_contents`.
pub(crate) const EMPTY_RAW: u8 = 0x3a;

/// A length and the bytes behind it, after a key.
fn field(key: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![key];
    let mut left = content.len();
    while left >= 0x80 {
        field.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    field.push(left as u8);
    field.extend_from_slice(content);
    field
}

/// A `ModelInferRequest` for `model` with nothing but empty entries of a kind, of `bytes` bytes in all.
pub(crate) fn empty_entries(model: &str, key: u8, bytes: usize) -> Vec<u8> {
    let mut message = field(0x0a, model.as_bytes());
    message.extend([key, 0].repeat(bytes.saturating_sub(message.len()) / 2));
    message
}

/// A `ModelInferRequest` with one input whose `contents` are `count` elements of two bytes or less each: INT64 zeros in one
/// packed list, or empty texts.
pub(crate) fn typed_contents(model: &str, texts: bool, count: usize) -> Vec<u8> {
    let list = if texts {
        [0x42, 0].repeat(count)
    } else {
        field(0x1a, &vec![0; count])
    };
    let input = [
        field(0x0a, b"x"),
        field(0x12, if texts { b"BYTES" } else { b"INT64" }),
        field(0x2a, &list),
    ];
    [field(0x0a, model.as_bytes()), field(0x2a, &input.concat())].concat()
}

/// A `RepositoryModelLoad` with as many parameters of its own names as fit into `bytes`.
pub(crate) fn load_parameters(model: &str, bytes: usize) -> Vec<u8> {
    let mut message = field(0x12, model.as_bytes());
    for i in 0_u32.. {
        let name = i.to_le_bytes();
        let entry = field(
            0x1a,
            &field(0x0a, &name[..3].iter().map(|byte| byte & 0x7f).collect::<Vec<u8>>()),
        );
        if message.len() + entry.len() > bytes {
            break;
        }
        message.extend(entry);
    }
    message
}

/// A gRPC frame around a message.
pub(crate) fn frame(message: &[u8], compressed: bool) -> Vec<u8> {
    let mut frame = vec![u8::from(compressed)];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// A request of one input `x` with `count` elements, each written as `element`, in a row.
pub(crate) fn json_elements(dtype: &str, element: &str, count: usize) -> Vec<u8> {
    let mut body =
        format!(r#"{{"inputs":[{{"name":"x","shape":[1,{count}],"datatype":"{dtype}","data":["#).into_bytes();
    let one = [element.as_bytes(), b","].concat();
    body.extend(one.repeat(count));
    if count > 0 {
        body.pop();
    }
    body.extend_from_slice(b"]}]}");
    body
}

/// A request whose `outputs` are a list of empty names, of `bytes` bytes in all.
pub(crate) fn json_outputs(bytes: usize) -> Vec<u8> {
    let one = br#"{"name":""},"#;
    let mut body = br#"{"outputs":["#.to_vec();
    body.extend(one.repeat(bytes / one.len()));
    body
}

/// A request whose shape is a list of so many bytes.
pub(crate) fn json_shape(bytes: usize) -> Vec<u8> {
    let mut body = br#"{"inputs":[{"name":"x","datatype":"FP32","shape":["#.to_vec();
    body.extend(b"1,".repeat(bytes / 2));
    body
}

/// One gzip member.
pub(crate) fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

/// A POST over HTTP/1.1, head and body.
pub(crate) fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}
