//! The JSON body of an infer request, and of a reply: it decodes or is refused, and what was decoded reads back.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use tierlab_protocol::infer::{InferReply, InferRequest, Tensor};

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    if let Ok(request) = InferRequest::decode(&body.clone().into(), None)
        && request.inputs.iter().all(Tensor::has_json_form)
    {
        let again = InferRequest::decode(&request.encode_json().into(), None).expect("what was written can be read");
        assert_eq!(again.inputs.len(), request.inputs.len());
        assert_eq!(
            (again.id, again.timeout_us, again.priority),
            (request.id, request.timeout_us, request.priority)
        );
    }
    let _ = InferReply::decode(&body, None);
});
