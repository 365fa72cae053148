//! `mlp`: a 64-256-256-1 perceptron. It takes microseconds, so a request for it measures the overhead.

use super::layers::Net;
use crate::onnx::ModelProto;
use crate::onnx::messages::ElementType;
use crate::weights::xavier_bound;

const INPUT: usize = 64;
const HIDDEN: usize = 256;

/// `input` FP32 [-1, 64] to `output` FP32 [-1, 1].
pub(super) fn build(seed: u64) -> ModelProto {
    let mut net = Net::new("mlp", seed);
    let input = net.graph.input("input", ElementType::Float, &[-1, INPUT as i64]);
    let hidden = net.perceptron("hidden", &input, &[INPUT, HIDDEN, HIDDEN]);
    let output = net.linear("output", &hidden, [HIDDEN, 1], xavier_bound(HIDDEN, 1));
    net.graph.output(&output, ElementType::Float, &[-1, 1]);
    net.graph
        .finish("A 64-256-256-1 perceptron with random weights: the overhead probe")
}
