//! Tests of requests and replies: what each file holds, as its name says; here what they share.

mod bodies;
mod memory;
mod refusals;
mod round_trips;
mod values;

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
