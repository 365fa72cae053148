//! Layers of the generated networks.

use crate::onnx::GraphBuilder;
use crate::onnx::graph::{int, ints};
use crate::onnx::messages::ElementType;
use crate::weights::{Weights, he_bound};

/// Half the width of the biases' interval: small against activations of order 1, large enough to matter.
const BIAS_BOUND: f32 = 0.05;

/// Graph under construction with its stream of weights. Layers take and return names of values.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) graph: GraphBuilder,
    pub(super) weights: Weights,
}

impl Net {
    pub(super) fn new(name: &str, seed: u64) -> Self {
        Self {
            graph: GraphBuilder::new(name),
            weights: Weights::new(name, seed),
        }
    }

    /// Adds a constant of floats, uniform in ±`bound`.
    pub(super) fn uniform(&mut self, name: &str, dims: &[usize], bound: f32) -> String {
        let values = self.weights.uniform(dims.iter().product(), bound);
        self.graph.constant(name, ElementType::Float, &signed(dims), values)
    }

    /// `[batch, from] -> [batch, to]`, without activation.
    pub(super) fn linear(&mut self, name: &str, input: &str, widths: [usize; 2], bound: f32) -> String {
        let weight = self.uniform(&format!("{name}.weight"), &widths, bound);
        let bias = self.uniform(&format!("{name}.bias"), &widths[1..], BIAS_BOUND);
        self.graph.node(name, "Gemm", &[input, &weight, &bias], &[])
    }

    pub(super) fn relu(&mut self, name: &str, input: &str) -> String {
        self.graph.node(&format!("{name}.relu"), "Relu", &[input], &[])
    }

    /// Linear layers of the given widths, each followed by ReLU.
    pub(super) fn perceptron(&mut self, name: &str, input: &str, widths: &[usize]) -> String {
        let mut value = input.to_owned();
        for (i, pair) in widths.windows(2).enumerate() {
            let layer = format!("{name}.{i}");
            let linear = self.linear(&layer, &value, [pair[0], pair[1]], he_bound(pair[0]));
            value = self.relu(&layer, &linear);
        }
        value
    }

    /// Square convolution with bias, with batch normalisation folded into it, padded to keep the size at stride 1:
    /// `[batch, from, h, w] -> [batch, to, h / stride, w / stride]`. `gain` is a factor on He's weights: below 1 at the
    /// end of a residual branch.
    pub(super) fn conv(
        &mut self,
        name: &str,
        input: &str,
        [from, to]: [usize; 2],
        (kernel, stride): (usize, usize),
        gain: f32,
    ) -> String {
        let bound = he_bound(from * kernel * kernel) * gain;
        let weight = self.uniform(&format!("{name}.weight"), &[to, from, kernel, kernel], bound);
        let bias = self.uniform(&format!("{name}.bias"), &[to], BIAS_BOUND);
        let window = window(kernel, stride, kernel / 2);
        self.graph.node(name, "Conv", &[input, &weight, &bias], &window)
    }
}

/// Attributes of a square sliding window.
pub(super) fn window(kernel: usize, stride: usize, pad: usize) -> [crate::onnx::messages::AttributeProto; 3] {
    let square = |name, size: usize, times| ints(name, &signed(&vec![size; times]));
    [
        square("kernel_shape", kernel, 2),
        square("pads", pad, 4),
        square("strides", stride, 2),
    ]
}

/// The `axis` attribute.
pub(super) fn axis(at: i64) -> [crate::onnx::messages::AttributeProto; 1] {
    [int("axis", at)]
}

/// Dimensions in the format's type.
pub(super) fn signed(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&dim| dim as i64).collect()
}
