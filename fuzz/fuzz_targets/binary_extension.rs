//! A body with binary tensors: the first two bytes say where its JSON part ends.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tierlab_protocol::infer::{InferReply, InferRequest, bytes_elements};

fuzz_target!(|data: &[u8]| {
    let Some((length, body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let json_len = Some(usize::from(u16::from_le_bytes(*length)));
    let body = Bytes::copy_from_slice(body);
    if let Ok(request) = InferRequest::decode(&body, json_len) {
        let (written, json_len) = request.encode_binary();
        let again = InferRequest::decode(&written, Some(json_len)).expect("what was written can be read");
        assert_eq!(again.inputs, request.inputs);
        for input in &request.inputs {
            bytes_elements(&input.data).for_each(drop);
        }
    }
    let _ = InferReply::decode(&body, json_len);
});
