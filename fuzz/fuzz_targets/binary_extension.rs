//! A body with binary tensors, in two pieces: the first two bytes say where its JSON part ends, the third where it is cut.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tierlab_protocol::infer::{Data, InferReply, InferRequest, bytes_elements};

fuzz_target!(|data: &[u8]| {
    let Some(([low, high, cut], body)) = data.split_first_chunk::<3>() else {
        return;
    };
    let json_len = Some(usize::from(u16::from_le_bytes([*low, *high])));
    let body = Bytes::copy_from_slice(body);
    let cut = usize::from(*cut).min(body.len());
    let mut pieces = Data::from(body.slice(..cut));
    pieces.push(body.slice(cut..));
    let read = InferRequest::decode(&pieces, json_len);
    assert_eq!(read, InferRequest::decode(&body.clone().into(), json_len));
    if let Ok(request) = read {
        let (written, json_len) = request.encode_binary();
        let again = InferRequest::decode(&written.into(), Some(json_len)).expect("what was written can be read");
        assert_eq!(again.inputs, request.inputs);
        for input in &request.inputs {
            bytes_elements(&input.data.whole()).for_each(drop);
        }
    }
    let _ = InferReply::decode(&body, json_len);
});
